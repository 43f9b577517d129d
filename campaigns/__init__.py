"""What is measured: plans, facts, comparison, statistics, gates, corpora, scorers. Pure; no I/O but reading corpus files."""
