"""Devices: which chips this host has, who may use one now, and whether it can be trusted."""
