"""Many campaigns: what was measured before, side by side, over time, and what it says of the next one.

Statements across campaigns rest on paired effects alone. Knows nothing of running campaigns or servers."""
