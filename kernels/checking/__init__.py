"""Whether a schedule keeps its contract: cases, comparisons, hammer, sanitizers, and the sheet of what was found.

Knows the operators; of the runtime only its audits use a comparison of it."""
