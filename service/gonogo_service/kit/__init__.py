"""What the API, the pages, and the background share: problem documents, answers, logs, metrics, live events."""
