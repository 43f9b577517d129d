"""The words behind `campaign run`, checked before Hydra sees them; and Hydra's complaints as sentences of ours.

Hydra names what it met, not what to write instead: here the groups come from `conf/`, the keys from the schema.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Sweep
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue, OmegaConfBaseException

from campaigns.errors import UsageError
from campaigns.nearest import nearest
from orchestrator.settings.conf_files import fault, shown
from orchestrator.settings.folders import check_folders, find, groups, options, own_folders
from orchestrator.settings.keys import keys_of, kind_of, meant, paths, wanted
from orchestrator.settings.texts import quoted

Known = Mapping[str, tuple[str, ...]]  # group to the names of its files
_TAKEN = re.compile(r"Could not append to config. An item is already at '(.+?)'")
_UNKNOWN_KEY = re.compile(r"Key '(.+)' not in '(\w+)'")


def store_override(path: Path) -> str:
    """`--store FILE` as the key that it stands for, quoted for Hydra's grammar."""
    return f"store.path={quoted_value(str(path))}"


def quoted_value(text: str) -> str:
    """Text that stays text in Hydra's grammar."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def check(words: Sequence[str], *, sweeps: bool = False) -> None:
    """UsageError for the first word that names no group, option or key, or is none at all."""
    own = own_folders(words)
    check_folders(own)
    known = options(own)
    for word in words:
        override = _parsed(word, known)
        if override.key_or_group.partition("/")[0].partition(".")[0] == "hydra":
            continue
        if override.is_sweep_override() and not sweeps:
            raise UsageError(f"{word} names several values: add --multirun, or write a list as [a,b]")
        if override.key_or_group in known:
            _check_group(word, override, known[override.key_or_group])
        else:
            _check_key(word, override, known)


def replacing(words: Sequence[str]) -> list[str]:
    """The words for Hydra: text as it was typed, and a mapping that is given is what there is then, as a list is.

    Hydra would merge it.
    """
    return [part for word in words for part in _replacing(quoted(word))]


def _replacing(word: str) -> tuple[str, ...]:
    key, given, _ = word.partition("=")
    if not given or typing.get_origin(kind_of(key)) is not dict:
        return (word,)
    return f"{key}=???", f"+{word}"  # OmegaConf then merges into nothing, and the plus lets in new names


def _parsed(word: str, known: Known) -> Override:
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        if "=" in word:
            forms = "KEY=[a,'{port}'], KEY={a: b} or KEY='some text'"
            raise UsageError(f"{word} cannot be read: write {forms}, and all of it in quotes for the shell") from None
        raise UsageError(f"{word or repr(word)} is no setting: {_setting(word, known)}") from None
    if not override.key_or_group:
        raise UsageError(f"{word} names no key: write KEY=VALUE; see campaign run --help")
    return override


def _setting(word: str, known: Known) -> str:
    """What a bare word may have been meant to be."""
    holders = [f"{group}={word}" for group in groups() if word in known[group.partition("@")[0]]]
    if holders:
        return f"did you mean {' or '.join(holders)}?"
    if word in paths():
        return f"give it a value, as {word}=…"
    return "write KEY=VALUE, as campaign=smoke or campaign.startups=3; see campaign run --help"


def _check_group(word: str, override: Override, names: Sequence[str]) -> None:
    name = override.key_or_group
    whole = f"{name}@{override.package}" if override.package else name
    if whole not in groups() and not override.is_add():
        holders = [group for group in groups() if group.partition("@")[0] == name]
        raise UsageError(f"{word}: there is no {whole}; choose {' or '.join(f'{group}=…' for group in holders)}")
    if whole in groups() and override.is_add():
        raise UsageError(f"{word}: {whole} is chosen already; drop the plus")
    for choice in _choices(override):
        if choice not in names:
            raise UsageError(f"{word}: there is no {name}/{choice}; {nearest(choice, names)}")


def _choices(override: Override) -> list[str]:
    if override.is_delete():
        return []
    if isinstance(override.value(), Sweep):
        return [str(choice) for choice in override.sweep_string_iterator()]
    value = override.value()
    return ["null" if choice is None else str(choice) for choice in (value if isinstance(value, list) else [value])]


def _check_key(word: str, override: Override, known: Known) -> None:
    path = override.key_or_group
    if kind_of(path) is None:
        raise UsageError(f"{word}: there is no key {path}; {meant(path, groups())}")
    group = next((name for name in groups() if name.partition("@")[2] == path), "")
    if group and (choices := _choices(override)) and choices[0] in known[group.partition("@")[0]]:
        raise UsageError(f"{word}: a group is chosen by its own name; did you mean {group}={choices[0]}?")
    if override.is_delete() and path in paths():
        raise UsageError(f"{word}: a key cannot be left out; give it another value, as {path}=…")


def sentence(error: BaseException, words: Sequence[str]) -> str:
    """One sentence of what Hydra or OmegaConf refused; the deepest cause names the key with its full path."""
    cause: BaseException = error
    while isinstance(cause.__cause__, HydraException | OmegaConfBaseException):
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    if isinstance(cause, MissingConfigException):
        return lines[0]
    key = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    said = "; ".join(line for line in lines if not line.startswith(("full_key:", "object_type", "reference_type")))
    if file := re.match(r"In '(.+?)': \w+ raised while composing config:; ", said):
        return _of_file(find(file[1], own_folders(words)), key, said[file.end() :])
    path = key.partition("[")[0]
    above = [word for word in words if f"{path}.".startswith(f"{word.lstrip('+').partition('=')[0]}.")]
    told = max(above, key=lambda word: len(word.lstrip("+").partition("=")[0]), default="")
    if unknown := _UNKNOWN_KEY.fullmatch(said):
        return f"{told or key}: {unknown[2]} has no key {unknown[1]}; {nearest(unknown[1], keys_of(unknown[2]))}"
    if there := _TAKEN.match(said):
        return f"{there[1]} is there already: leave the plus out, {there[1]}=…"
    if said.endswith("is not in struct"):
        return f"{told or key} is not there yet: add it with a plus, +{told or key}"
    if isinstance(cause, MissingMandatoryValue):
        return f"{key} has no value: give one, as {key}=…"
    kind = kind_of(path) if told and not isinstance(cause, InterpolationResolutionError) else None
    return f"{told}: must be {wanted(kind)}" if kind not in (None, Any) else f"{told or key}: {said}".removeprefix(": ")


def _of_file(path: Path, key: str, said: str) -> str:
    """What a file of a group holds that the schema refuses."""
    if told := fault(path):
        return told
    if unknown := _UNKNOWN_KEY.fullmatch(said):
        return f"{shown(path)}: there is no key {unknown[1]}; {nearest(unknown[1], keys_of(unknown[2]))}"
    if said == "Cannot merge DictConfig with ListConfig":
        return f"{shown(path)}: a list stands where a mapping is wanted, as {{key: value}}"
    kind = kind_of(key.partition("[")[0]) if key else None
    return f"{shown(path)}: {key}: must be {wanted(kind)}" if kind not in (None, Any) else f"{shown(path)}: {said}"
