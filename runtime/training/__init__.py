"""How the shipped checkpoints are made: text, vocabulary, target and drafter, all from this project.

`python -m runtime.training --help`. Importing this package loads nothing heavy. The server does not know it.
"""
