"""Blocks of code in an answer, as models write Markdown: more forgiving than CommonMark where a reader would be.

Knows no Python. One pass over the lines: answers that repeat themselves are long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_QUOTE = re.compile(r"[ \t]*>[ ]?")
_FENCE = re.compile(r"[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(`{3,}|~{3,})[ \t]*(.*?)[ \t]*\r?\n?\Z", re.DOTALL)
_ONE_LINE = re.compile(r"\A[^`]*```([^`\n]+)```")
_LANGUAGE = re.compile(r"\A\{?[ \t]*\.?([A-Za-z][\w+#-]*(?:[ \t]?[\d.]+)?)")
_TAGGED = re.compile(
    r"<pre>\s*<code(?:\s+class=\"(?:language-)?(\w+)\")?>(.*?)</code>|\[(PYTHON)\](.*?)\[/PYTHON\]"
    r"|\\begin\{(?:lstlisting|verbatim|minted)\}(?:\[[^\]\n]*\])?(?:\{(\w+)\})?(.*?)\\end\{(?:lstlisting|verbatim|minted)\}",
    re.DOTALL,
)
_BEGINS = re.compile(r"[ \t]*(?:def|class|async|import|from|@)\b|[ \t]*@")
_MARKUP = ("markdown", "md")


@dataclass(frozen=True)
class Block:
    language: str  # lower case, without attributes; empty where none is named
    content: str


def blocks(text: str) -> list[Block]:
    """Every block of `text` in its order; the last one may be open to the end."""
    found = [inner for block in _fenced(text) for inner in _opened(block)]
    return found or list(_tagged(text))


def _opened(block: Block) -> list[Block]:
    """An answer that is one block of Markdown holds its code inside."""
    return (blocks(block.content) if block.language in _MARKUP else []) or [block]


def _fenced(text: str) -> Iterator[Block]:
    fence, language, width, quoted = "", "", 0, False
    lines: list[str] = []
    for line in _lines(text):
        bare = _unquoted(line) if quoted or not fence else line
        mark = _FENCE.match(bare)
        if not fence:
            if mark and "`" not in mark[2]:
                fence, language, width, lines = mark[1], _language(mark[2]), mark.start(1), []
                quoted = bare != line
            elif one := _ONE_LINE.match(bare):
                yield _on_one_line(one[1])
        elif mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence):
            yield Block(language, _outdented(lines, width))
            # a fence with a language in an open block begins the next one: nobody closed this one
            named = _language(mark[2]) if _is_language(mark[2]) else ""
            fence, language, lines = (mark[1], named, []) if named else ("", "", [])
        else:
            lines.append(bare)
    if fence:
        yield Block(language, _outdented(lines, width))


def _lines(text: str) -> list[str]:
    """With their ends. Not str.splitlines, which splits texts of Python at U+2028 and the like."""
    lines = [line + "\n" for line in text.split("\n")]
    return [*lines[:-1], lines[-1][:-1]] if lines[-1] != "\n" else lines[:-1]


def _unquoted(line: str) -> str:
    """Without the mark of a quotation; Python's prompt has three of them."""
    quote = _QUOTE.match(line)
    return line if quote is None or line.lstrip().startswith(">>>") else line[quote.end() :]


def _language(told: str) -> str:
    """`python`, `Python 3`, `{.python .numberLines}`, `python title="a.py"`, `{python}` are one language."""
    named = _LANGUAGE.match(told)
    return named[1].lower().replace(" ", "").replace("\t", "") if named else ""


def _is_language(told: str) -> bool:
    """Behind a closing fence some go on with prose; a language stands alone or before attributes."""
    return re.fullmatch(r"\{.*\}|[A-Za-z+#\d.]+(?:[ \t]+[\w-]+=.*|[ \t]*\{.*\})?", told) is not None


def _on_one_line(content: str) -> Block:
    first, _, rest = content.strip().partition(" ")
    return Block(first.lower(), rest + "\n") if first.lower() in ("python", "py") else Block("", content.strip() + "\n")


def _outdented(lines: list[str], width: int) -> str:
    """Without the indentation of its fence, and of its first line where that begins a definition or an import."""
    outdented = [line[min(width, len(line) - len(line.lstrip(" \t"))) :] for line in lines]
    first = next((line for line in outdented if line.strip()), "")
    more = len(first) - len(first.lstrip(" \t"))
    if not more or not _BEGINS.match(first) or any(line[:more].strip() for line in outdented):
        return "".join(outdented)
    return "".join(line[more:] if line.strip() else "\n" for line in outdented)


def _tagged(text: str) -> Iterator[Block]:
    import html

    for match in _TAGGED.finditer(text):
        if match[2] is not None:
            yield Block((match[1] or "").lower(), html.unescape(match[2]))
        elif match[3]:
            yield Block("python", match[4])
        else:
            yield Block((match[5] or "").lower(), match[6])
