"""The API under /api/v1: a router and its schemas per noun."""
