"""Results of jobs: the rows of seeds, the two aggregates, and what pages and rules read of them."""
