"""The ground of the database code: engine, dialects, column types, ids, encoding, and pages of lists."""
