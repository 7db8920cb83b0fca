"""Detection limits: the faults that an output could not have shown."""
