"""The pages of webhooks, their deliveries, and answers to GitHub."""
