"""The database: engine, tables and one module of queries per noun. No SQL anywhere else."""
