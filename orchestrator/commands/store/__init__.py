"""The faces of a store: reports, questions over many campaigns, and what people add to it."""
