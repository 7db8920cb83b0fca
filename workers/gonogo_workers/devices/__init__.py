"""Devices: the chips of this host, who may use one now, and whether it can be trusted."""
