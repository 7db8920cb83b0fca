"""The pages of devices: the fleet, and one device's health and activity."""
