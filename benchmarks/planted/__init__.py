"""Faults planted in the native sources: which, how they are built, and what the contract gate says (mutants.py)."""
