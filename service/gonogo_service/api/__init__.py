"""The API under /api/v1: one router with its schemas per noun."""
