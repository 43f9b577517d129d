"""Operators and their schedules. Knows neither models nor requests. Importing this package loads nothing heavy."""
