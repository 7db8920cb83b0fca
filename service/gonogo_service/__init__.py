"""The service: the API under /api/v1, access to it, and the background process."""
