"""Submissions from every source: the bodies, and the checks from a body to a stored job."""
