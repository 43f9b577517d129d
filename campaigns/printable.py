"""Text that anybody may have written, made fit to be printed: shown and not obeyed, whatever it is printed on.

A name of a store, a server's message, a model's answer may hold what commands a terminal, ends a line of a table, or
turns the direction of reading round (Unicode TR 36, "Trojan Source"). Such a character is spelt as Python spells it.
"""

from __future__ import annotations

import json
import re
from typing import Any

# C0 but for tab and newline, DEL, C1, line and paragraph separators, marks of direction, interlinear annotation.
_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]"
)
_BREAKS = re.compile(r"[ \t]*(?:\r?\n[ \t]*)+|\t+")


def printable(text: str) -> str:
    """Lines stay lines."""
    return _COMMANDS.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """For a cell, a heading, an entry of a list: line ends and tabs are a space."""
    return printable(_BREAKS.sub(" ", text))


def json_text(value: Any, **layout: Any) -> str:
    """JSON with everything else in UTF-8; JSON has a spelling of its own, so that nothing is lost."""
    plain = json.dumps(value, ensure_ascii=False, **layout)
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)
