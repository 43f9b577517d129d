"""What to measure next, and how much: startups for a precision, which arms stay, which commit is probed.

Pure functions of what was found; knows no campaign that runs."""
