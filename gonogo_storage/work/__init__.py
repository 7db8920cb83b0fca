"""The work of jobs: how it is cut into chunks, and the ranges whose chunks are still to be made."""
