"""Who looks at the pages: users and their passwords, signed sessions, tokens of forms."""
