"""The overview: what needs attention, the fleet, and seeds by day."""
