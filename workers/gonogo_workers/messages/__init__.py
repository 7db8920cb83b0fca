"""What a worker is told and what it tells: chunks, result rows and their batches."""
