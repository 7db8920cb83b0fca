"""The tolerances' pages."""
