"""Text stays as it was written: `8.10` is a version and no number, `6e1234` a commit and not infinity.

Hydra and YAML read a word as a number or as true and false where they can, and text keys then get that number's text. A
word of the command line is quoted for Hydra where its key wants text; a file is refused with what to write instead.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import yaml
from antlr4 import CommonTokenStream, InputStream  # type: ignore[import-untyped]  # what Hydra reads words with
from hydra.core.override_parser.overrides_parser import create_functions
from hydra.core.override_parser.overrides_visitor import HydraOverrideVisitor
from hydra.grammar.gen.OverrideLexer import OverrideLexer
from hydra.grammar.gen.OverrideParser import OverrideParser
from omegaconf._utils import get_yaml_loader

from campaigns.errors import UsageError
from orchestrator.settings import config
from orchestrator.settings.conf_files import shown

_NOT_TEXT = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")


def quoted(word: str) -> str:
    """A readable KEY=VALUE whose text is in quotes wherever Hydra would make something else of it."""
    key = word.lstrip("+~").partition("=")[0].partition("@")[0]
    spans = _spans(word, _below(config.Config, key))
    for start, stop in reversed(spans):
        word = f"{word[:start]}'{word[start:stop]}'{word[stop:]}"
    return word


def check_texts(path: Path, package: str) -> None:
    """UsageError for the first value of a file, merged at `package`, that is no text where text is wanted."""
    node = yaml.compose(path.read_text(encoding="utf-8"), Loader=get_yaml_loader())
    kind = _below(config.Config, package) if package else config.Config
    for scalar, name in _no_texts(node, kind, ""):
        raise UsageError(
            f"{shown(path)}, line {scalar.start_mark.line + 1}: {name} wants text and {scalar.value} is none in YAML; "
            f"write '{scalar.value}'"
        )


def _no_texts(node: Any, kind: Any, name: str) -> Iterator[tuple[Any, str]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _no_texts(value, _inner(kind, str(key.value)), f"{name}.{key.value}".lstrip("."))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _no_texts(item, _inner(kind, ""), name)
    elif isinstance(node, yaml.ScalarNode) and kind is str and node.tag in _NOT_TEXT:
        yield node, name


def _below(kind: Any, path: str) -> Any:
    for name in path.split("."):
        kind = _inner(kind, name)
    return kind


def _inner(kind: Any, name: str) -> Any:
    """The type of what lies below; None where the schema does not say. `str | None` is str: null stays null."""
    kind = _bare(kind)
    if is_dataclass(kind):
        return _bare(typing.get_type_hints(kind).get(name))
    arguments = typing.get_args(kind)
    return _bare(arguments[-1]) if arguments else None


def _bare(kind: Any) -> Any:
    if not isinstance(kind, types.UnionType):
        return kind
    return next(part for part in typing.get_args(kind) if part is not type(None))


def _spans(word: str, kind: Any) -> list[tuple[int, int]]:
    """Where in the word numbers and truth values stand that are wanted as text."""
    lexer = OverrideLexer(InputStream(word))
    lexer.removeErrorListeners()
    parser = OverrideParser(CommonTokenStream(lexer))
    parser.removeErrorListeners()
    visitor = _Visitor(kind)
    # ANTLR generates parsers without types.
    visitor.visit(parser.override())  # type: ignore[no-untyped-call]
    return visitor.spans


class _Visitor(HydraOverrideVisitor):
    """Follows the types down into lists and mappings while Hydra reads the value."""

    def __init__(self, kind: Any) -> None:
        super().__init__(create_functions())
        self._kinds = [kind]
        self.spans: list[tuple[int, int]] = []

    def visitPrimitive(self, ctx: Any) -> Any:  # noqa: N802  # Hydra names it
        value = super().visitPrimitive(ctx)
        if self._kinds[-1] is str and isinstance(value, int | float):
            self.spans.append((ctx.start.start, ctx.stop.stop + 1))
        return value

    def visitListContainer(self, ctx: Any) -> Any:  # noqa: N802  # Hydra names it
        return self._within("", lambda: super(_Visitor, self).visitListContainer(ctx))

    def visitDictKeyValuePair(self, ctx: Any) -> Any:  # noqa: N802  # Hydra names it
        key = ctx.getChild(0).getText()
        return self._within(key, lambda: super(_Visitor, self).visitDictKeyValuePair(ctx))

    def visitFunction(self, ctx: Any) -> Any:  # noqa: N802  # Hydra names it
        """What a sweep's function makes of its arguments is its own."""
        if ctx.getChild(0).getText() == "choice":
            return super().visitFunction(ctx)
        self._kinds.append(None)
        value = super().visitFunction(ctx)
        self._kinds.pop()
        return value

    def _within(self, name: str, visit: Any) -> Any:
        self._kinds.append(_inner(self._kinds[-1], name))
        value = visit()
        self._kinds.pop()
        return value
