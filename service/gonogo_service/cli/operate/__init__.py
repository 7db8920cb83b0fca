"""Subcommands that run or administer a service: up, serve, doctor, db, chips."""
