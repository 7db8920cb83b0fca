"""GitHub is told what became of a commit: a status, a check run, one comment per pull request."""
