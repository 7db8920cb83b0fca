"""What subcommands share: the HTTP client, tables and progress bars, errors as JSON, and where the database is."""
