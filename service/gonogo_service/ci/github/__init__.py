"""Answers to GitHub: a commit status, a check run, and one comment per pull request."""
