"""Who is asking, and what they may do: tokens, logins, sessions, and the outermost middleware."""
