"""Seeds as rows: one compact row for each, and the objects that readers see."""
