"""Operators and their schedules. Importing this package loads nothing heavy."""
