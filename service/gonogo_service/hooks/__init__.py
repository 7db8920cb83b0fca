"""Incoming webhooks: deliveries from GitHub and other CI systems.

They are verified, processed by the rules, and fetched later if they were missed.
"""
