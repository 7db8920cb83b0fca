"""The pages of webhooks, their deliveries, and reports to GitHub."""
