"""What a campaign says while it runs: this process's streams, its progress, its journal; and leaving the terminal.

Knows counts and texts; nothing of servers, nor of the store."""
