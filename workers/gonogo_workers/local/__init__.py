"""Running kernels and test programs here, without a server."""
