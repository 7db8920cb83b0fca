"""Messages between a worker and the service: chunks, result rows, heartbeats, cancel keys."""
