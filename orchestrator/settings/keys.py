"""The configuration's keys, read from the schema: which there are, and what each wants. Knows no Hydra."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from campaigns.nearest import alike, nearest
from orchestrator.settings import config

_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_ITEMS: dict[Any, str] = {int: "whole numbers, as [0,1]", str: "words, as [one,two]"}


def kind_of(path: str) -> Any:
    """The type of a key such as `campaign.startups`; Any below a mapping or a list; None where there is no such key."""
    kind: Any = config.Config
    for name in path.split("."):
        if typing.get_origin(_bare(kind)) in (dict, list):
            return Any
        kind = typing.get_type_hints(kind).get(name) if is_dataclass(kind) else None
        if kind is None:
            return None
    return kind


def paths(kind: Any = config.Config, before: str = "") -> Iterator[str]:
    """Every key, groups of keys too."""
    for name, inner in typing.get_type_hints(kind).items():
        yield before + name
        if is_dataclass(inner):
            yield from paths(inner, f"{before}{name}.")


def meant(path: str, others: tuple[str, ...] = ()) -> str:
    """What may stand for an unknown key: one of the same last name, one beside it, any written alike."""
    every = list(dict.fromkeys((*paths(), *others)))
    above, _, name = path.rpartition(".")
    beside = [known.rpartition(".")[2] for known in every if known.rpartition(".")[0] == above]
    if same := [known for known in every if known.endswith(f".{path}")]:
        return f"did you mean {' or '.join(same)}?"
    if found := alike(name, beside):
        return f"did you mean {above}{'.' if above else ''}{found}?"
    if above and beside:
        return f"{above} has {', '.join(beside)}"
    return nearest(path, every) if alike(path, every) else f"there are {', '.join(n for n in every if '.' not in n)}"


def wanted(kind: Any) -> str:
    """`must be …`"""
    inner = _bare(kind)
    if inner is not kind:
        return f"{wanted(inner)}, or null"
    if is_dataclass(kind):
        return f"a group of keys: {', '.join(typing.get_type_hints(kind))}"
    if typing.get_origin(kind) is list:
        [item] = typing.get_args(kind)
        return f"a list of {_ITEMS.get(item, 'mappings, as [{key: value}]')}"
    if typing.get_origin(kind) is dict:
        return "a mapping, as {key: value}"
    return _WORDS.get(kind, "another value")


def keys_of(schema: str) -> tuple[str, ...]:
    """Keys of a class of the schema, by its name; OmegaConf names no more of what it refuses."""
    kind = getattr(config, schema, None)
    return tuple(typing.get_type_hints(kind)) if is_dataclass(kind) else ()


def _bare(kind: Any) -> Any:
    """Without `| None`."""
    if not isinstance(kind, types.UnionType):
        return kind
    [inner] = [part for part in typing.get_args(kind) if part is not type(None)]
    return inner
