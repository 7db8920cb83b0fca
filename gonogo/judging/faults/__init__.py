"""The faults that a diagnosis by replay knows, each with what it does to an output."""
