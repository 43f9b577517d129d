"""Exercises that nano learns and is tested on: drawn, worded, solved by rules of our own.

Knows no tensor."""
