"""What a test spec must know of each kernel: tensors, shapes, parameters, emulated builds. No NumPy."""
