"""Operation: health, metrics, backups, the schema's state, retention."""
