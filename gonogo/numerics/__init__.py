"""Number formats, statistics, directions, and the arithmetic of a Tensix core: the same for every kernel."""
