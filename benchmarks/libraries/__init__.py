"""Judge kernels of other libraries, right ones and mutants, with no arithmetic model named."""
