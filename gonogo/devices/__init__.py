"""Rules about devices: the golden digest of a canary, and when a device is suspected instead of its tests."""
