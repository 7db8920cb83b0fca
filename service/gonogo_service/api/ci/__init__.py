"""CI over HTTP: comparison, rules, incoming webhooks, outgoing webhooks, answers to GitHub."""
