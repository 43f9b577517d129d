"""The faces of what measures or scores: run, resume, stop, race, bisect, score; and what they need: plan, corpus."""
