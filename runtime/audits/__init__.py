"""Two schedules held against each other inside the runtime: one tape, every logit, every state.

Knows the engine; the engine does not know it, and no campaign does."""
