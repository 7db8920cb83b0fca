"""Devices and their workers: state, health, golden digests, and activity by minute and hour."""
