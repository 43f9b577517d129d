"""What facts prove: statistics, verdicts, gates.

Pure functions of records and numbers."""
