"""Where code and configuration lie, what a tree of files hashes to, revisions in trees of their own.

Knows folders and git; nothing of campaigns."""
