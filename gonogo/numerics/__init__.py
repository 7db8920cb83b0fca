"""Number formats, statistics, directions and a Tensix core's arithmetic, for every kernel."""
