"""The program that a reader of an answer would run, or why there is none.

Blocks come from `campaigns.scorers.blocks`; which of them count, and what has to be put together, is decided here.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from campaigns.scorers.blocks import Block, blocks
from campaigns.syntax import syntax_tree

_PYTHON = re.compile(r"(?:i?python|py)[\d.]*|pycon|sage")
_PROMPT = re.compile(r"^(?:>>>|\.\.\.)(?: |$)")
_STDIN = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0\b")
_STARTS = re.compile(r"^(?:from|import|def|class|async|@)\b|^@", re.MULTILINE)
MAX_PARSED = 200_000  # characters; what is longer is taken as it stands
_MAX_TRIMMED = 60  # lines of prose behind code that no fence sets apart
_KNOWN = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}


@dataclass(frozen=True)
class Extracted:
    source: str  # empty when there is nothing to run
    reason: str = ""  # then why


def extract_code(text: str, names: Iterable[str] = (), *, reads_stdin: bool = False) -> Extracted:
    """Of the Python blocks that can be read as Python the last one that defines one of `names`, or else the last one.

    For a program on standard input (`reads_stdin`) the last one that reads it. Blocks in other languages count only
    where there are none, and are Python all the same. What the chosen block uses and another one defines is put in
    front of it. A text without any block is code itself, or ends and begins with prose.
    """
    wanted = list(names)
    found = blocks(text)
    if not found:
        return _unfenced(text, wanted)
    usable = [_without_prompts(block) for block in found if not block.language or _PYTHON.fullmatch(block.language)]
    marked = [_without_prompts(block) for block in found if _PYTHON.fullmatch(block.language)]
    usable, marked = ([one for one in some if one.strip()] for some in (usable, marked))
    if not usable:
        return _mislabelled(found, wanted, reads_stdin)
    chosen = _best(usable, marked, wanted, reads_stdin)
    return Extracted(_runnable(chosen, usable, wanted))


def _best(usable: Sequence[str], marked: Sequence[str], names: Sequence[str], reads_stdin: bool) -> str:
    fitting = [block for block in usable if _fits(block, names, reads_stdin)]
    tier = fitting or marked or usable
    whole = [block for block in tier if _parsed(block) is not None]
    return (whole or tier)[-1]


def _fits(block: str, names: Sequence[str], reads_stdin: bool) -> bool:
    return bool(_STDIN.search(block)) if reads_stdin else any(_defines(block, name) for name in names)


def _mislabelled(found: Sequence[Block], names: Sequence[str], reads_stdin: bool) -> Extracted:
    """`text` and the like in front of Python."""
    python = [b.content for b in found if _parsed(b.content) is not None and _fits(b.content, names, reads_stdin)]
    if python:
        return Extracted(python[-1])
    languages = sorted({block.language for block in found if block.language}) or ["empty"]
    return Extracted("", f"no Python among its blocks: {', '.join(languages)}")


def _unfenced(text: str, names: Sequence[str]) -> Extracted:
    """Code without any fence, prose round it left away."""
    if not text.strip():
        return Extracted("", "the final answer is empty")
    inline = [code for code in re.findall(r"`([^`\n]+)`", text) if any(_defines(code, name) for name in names)]
    if inline:
        return Extracted(inline[-1])
    if _parsed(text) is not None or not (start := _STARTS.search(text)):
        return Extracted(text)
    lines = text[start.start() :].split("\n")
    for end in range(len(lines), max(0, len(lines) - _MAX_TRIMMED), -1):
        part = "\n".join(lines[:end])
        if part.strip() and _parsed(part) is not None:
            return Extracted(part + "\n")
    return Extracted(text)


def _without_prompts(block: Block) -> str:
    """A session of the interpreter without its prompts and its output, where all of it is one."""
    lines = block.content.split("\n")
    if not lines or not _PROMPT.match(next((line for line in lines if line.strip()), "")):
        return block.content
    return "\n".join(line[4:] for line in lines if _PROMPT.match(line)) + "\n"


def _runnable(chosen: str, usable: Sequence[str], names: Sequence[str]) -> str:
    """The block with the ones that it needs in front, without a main program that would wait for input."""
    tree = _parsed(chosen)
    if tree is None:
        return chosen
    parts, missing = [chosen], _free_names(chosen) - _defined_names(tree)
    for block in reversed(usable):
        other = _parsed(block) if block is not chosen and missing else None
        if other is not None and (given := _defined_names(other) & missing):
            parts.insert(0, block)
            missing = (missing - given) | (_free_names(block) - _defined_names(other))
    source = "\n".join(part if part.endswith("\n") else part + "\n" for part in parts) if len(parts) > 1 else chosen
    return _importable(source) if names and _STDIN.search(source) else source


def _importable(source: str) -> str:
    """A class or function beside a program on standard input: the definitions, since nobody gives it any input."""
    tree = _parsed(source)
    if tree is None:
        return source
    readers = {"input", "stdin"}
    kept: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kept.append(statement)
            if readers & set(_words(statement)):
                readers.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom) or not readers & set(_words(statement)):
            kept.append(statement)
        else:
            readers |= _bound_names(statement)
    try:
        return source if len(kept) == len(tree.body) else ast.unparse(ast.Module(kept, [])) + "\n"
    except RecursionError:  # an expression that is nested too deeply to be written again
        return source


def _words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _parsed(source: str) -> ast.Module | None:
    if len(source) > MAX_PARSED:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # invalid escapes are common
            return syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defined_names(tree: ast.Module) -> set[str]:
    return {name for statement in tree.body for name in _bound_names(statement)}


def _bound_names(statement: ast.stmt) -> set[str]:
    """What a statement at the top level binds there."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    found: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def _free_names(source: str) -> set[str]:
    """Names that some scope of it takes from the module and nobody in it binds, without the builtin ones."""
    try:
        with warnings.catch_warnings(action="ignore"):
            table = symtable.symtable(source, "answer", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    tables, found = [table], set[str]()
    for one in tables:
        tables += one.get_children()
        is_module = one.get_type() == "module"
        for symbol in one.get_symbols():
            bound = symbol.is_assigned() or symbol.is_imported() or symbol.is_parameter()
            if symbol.is_referenced() and (symbol.is_global() or (is_module and not bound)):
                found.add(symbol.get_name())
    return found - _KNOWN


def _defines(block: str, name: str) -> bool:
    return re.search(rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b", block, re.MULTILINE) is not None
