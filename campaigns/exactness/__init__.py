"""How far two answers agree, and in which words what they do not share is told. Knows no time and no verdict."""
