"""Python source as a tree, for threads too.

CPython counts how deep it is while it makes nodes, once for all threads. Where garbage is collected meanwhile
another thread may make its own, and one ends with a SystemError, `AST constructor recursion depth mismatch`
(github.com/python/cpython/issues/106905; seen in 3.11.7).
"""

from __future__ import annotations

import ast
import threading

_parsing = threading.Lock()


def syntax_tree(source: str | bytes) -> ast.Module:
    """Raises what `ast.parse` does of source that is wrong."""
    with _parsing:
        return ast.parse(source)
