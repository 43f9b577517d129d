"""What was measured: the store, figures, reports, history. Knows neither Ray nor servers."""
