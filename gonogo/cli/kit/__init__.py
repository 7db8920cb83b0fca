"""Shared by the subcommands: the HTTP client, tables and progress bars, and errors as JSON."""
