"""What passes between a worker and the service: chunks, result rows, heartbeats, and cancel keys."""
