"""The life of a job, from its chunks to its verdict."""
