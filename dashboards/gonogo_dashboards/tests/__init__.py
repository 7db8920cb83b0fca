"""The pages of tests: the list, and one test's grade, error over builds, and every seed."""
