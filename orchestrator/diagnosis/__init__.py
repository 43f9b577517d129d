"""What this machine can do for a campaign, and how to mend what it cannot: `campaign doctor`.

Looks at every other room's ground; knows no campaign, and nothing but its command depends on it."""
