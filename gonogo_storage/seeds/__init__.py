"""Results of seeds: storing them, and reading them in the order that pages need."""
