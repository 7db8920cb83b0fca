"""The messages that a worker receives and sends: chunks, result rows and their batches."""
