"""One attempt at a chunk: the pipeline of seeds, the reference build, the stored evidence."""
