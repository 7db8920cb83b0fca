"""Kernels as a test spec sees them: tensors, shapes, parameters, emulated builds. No NumPy."""
