"""Subcommands that talk to a server: jobs, suites, comparison, bisection, imports, waivers."""
