"""What facts prove: exactness, statistics, verdicts, gates, and how much must be measured to know.

Pure functions of records and numbers."""
