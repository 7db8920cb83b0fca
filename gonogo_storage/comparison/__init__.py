"""Builds against each other: head against base, the build matrix, and waivers."""
