"""Database basics: engine, dialects, column types, ids, encoding, and pages of lists."""
