"""Operating the database: its schema, and the numbers behind metrics and health checks."""
