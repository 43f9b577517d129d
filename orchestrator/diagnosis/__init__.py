"""What this machine can do for a campaign, and how to mend what it cannot: `campaign doctor`.

Looks at every other room's ground; nothing depends on it."""
