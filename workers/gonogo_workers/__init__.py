"""The device side: workers that take chunks, run kernels in child processes, and send results."""
