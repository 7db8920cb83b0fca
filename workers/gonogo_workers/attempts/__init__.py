"""One attempt at a chunk: the pipeline of seeds, the reference build, and what is kept as evidence."""
