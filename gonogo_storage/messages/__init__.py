"""Messages that enter or leave the database: outbox, deliveries, webhooks, answers to GitHub, and live events."""
