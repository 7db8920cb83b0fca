"""Rules about devices: the golden digest of a canary, and suspicion of a device.

A device is suspected instead of its tests.
"""
