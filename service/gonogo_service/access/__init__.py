"""Access: tokens, logins, sessions, scopes, and the outermost middleware."""
