"""Subcommands that need no server: check, judge, gauge."""
