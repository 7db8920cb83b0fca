"""What a test is: spec, selection, suite, tolerance, build, verdict, and the canonical JSON that keys are made of. No NumPy."""
