"""What each kind of kernel computes: a folder per kind, and what kinds that normalize rows share."""
