"""What is measured: plans, facts, comparison, statistics, gates, corpora, scorers. Pure but for corpus files."""
