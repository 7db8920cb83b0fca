"""Right and wrong outputs of libraries, and of NumPy, judged for every shipped kernel."""
