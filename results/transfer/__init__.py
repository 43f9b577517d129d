"""Facts that enter or leave a store: another store's campaigns, probes, tables for other tools, made campaigns.

Knows rows and files; judges nothing."""
