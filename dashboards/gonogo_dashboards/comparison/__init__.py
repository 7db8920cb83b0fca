"""The page of a commit against its base."""
