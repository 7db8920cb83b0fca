"""The `gonogo` command: each subcommand is a module of its own, imported only when it is called."""
