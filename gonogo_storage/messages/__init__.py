"""The outbox, webhooks and deliveries, incoming deliveries, reports to GitHub, and job events."""
