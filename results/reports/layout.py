"""Rows as text: an aligned table for the terminal, Markdown, CSV, JSON, JSON lines. Knows no meaning of any column."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from campaigns.errors import UsageError
from campaigns.printable import json_text, one_line, printable
from results.reading.spreadsheet import inert

Rows = Sequence[Sequence[Any]]


def lay_out(format: str, header: Sequence[str], rows: Rows) -> str:
    """`format`: one of FORMATS."""
    if format not in _LAYOUTS:
        raise UsageError(f"there is no format {format!r} here: take one of {', '.join(_LAYOUTS)}")
    return _LAYOUTS[format](header, rows)


def table(header: Sequence[str], rows: Rows) -> str:
    """Numbers to the right, words to the left, two spaces between."""
    cells = [[_cell(value) for value in row] for row in rows]
    names = [one_line(name) for name in header]
    widths = [max(len(line[i]) for line in [names, *cells]) for i in range(len(header))]
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(header))]
    lines = [names, ["-" * width for width in widths], *cells]
    return "\n".join(_line(line, widths, right) for line in lines) + "\n"


def fitted(
    header: Sequence[str], rows: Rows, width: int, expendable: Sequence[Sequence[str]]
) -> tuple[list[str], Rows]:
    """Without as many groups of the expendable columns, the first first, as a table of so many characters needs."""
    kept, cells = list(header), [list(row) for row in rows]
    for group in expendable:
        if max(map(len, table(kept, cells).splitlines())) <= width:
            break
        stays = [name not in group for name in kept]
        kept = list(compress(kept, stays))
        cells = [list(compress(row, stays)) for row in cells]
    return kept, cells


def _line(line: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True))
    return "  ".join(padded).rstrip()


def _cell(value: Any) -> str:
    if _known(value) is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else one_line(str(_plain(value)))


def _csv(header: Sequence[str], rows: Rows) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([inert(_shown(_plain(value))) for value in row] for row in [header, *rows])
    return out.getvalue()


def _json(header: Sequence[str], rows: Rows) -> str:
    plain = [dict(zip(header, (_plain(value) for value in row), strict=True)) for row in rows]
    return json_text(plain, indent=2) + "\n"


def _jsonl(header: Sequence[str], rows: Rows) -> str:
    """An object a line: for what is read while it grows, or line by line."""
    plain = (dict(zip(header, (_plain(value) for value in row), strict=True)) for row in rows)
    return "".join(json_text(row) + "\n" for row in plain)


def _markdown(header: Sequence[str], rows: Rows) -> str:
    lines = [
        [one_line(name) for name in header],
        ["---"] * len(header),
        *([_cell(value) for value in row] for row in rows),
    ]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _plain(value: Any) -> Any:
    """Bytes as hex."""
    return value.hex() if isinstance(value, bytes) else _known(value)


def _shown(value: Any) -> Any:
    """Lines of a text stay lines: CSV quotes them."""
    return printable(value) if isinstance(value, str) else value


def _known(value: Any) -> Any:
    """None for NaN: unknown is an empty field in CSV and null in JSON."""
    return None if isinstance(value, float) and math.isnan(value) else value


_LAYOUTS: dict[str, Callable[[Sequence[str], Rows], str]] = {
    "table": table,
    "md": _markdown,
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
}
