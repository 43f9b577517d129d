"""Two schedules held against each other inside the runtime: one tape, every logit, every state."""
