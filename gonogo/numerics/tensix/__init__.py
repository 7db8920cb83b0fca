"""The arithmetic of a Wormhole Tensix core: the NumPy definition, and its compiled version."""
