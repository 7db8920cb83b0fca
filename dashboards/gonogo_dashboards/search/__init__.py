"""The search over jobs, builds, tests, commits and pages."""
