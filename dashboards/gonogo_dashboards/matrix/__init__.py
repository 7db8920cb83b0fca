"""The build matrix: tests by builds of a branch."""
