"""Mutants: small faults planted in the code, to see whether the tests near it notice."""
