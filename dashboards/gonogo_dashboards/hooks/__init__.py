"""The pages of incoming webhooks and of the rules about them."""
