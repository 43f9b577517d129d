"""The YAML files of a configuration: what is wrong with one that cannot be read, with its line. Knows no key of any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from yaml import MarkedYAMLError, YAMLError

from campaigns.errors import UsageError
from orchestrator.checkouts.places import CONF, ROOT


def load(path: Path) -> dict[str, Any]:
    """What a file holds, which must be a mapping."""
    if told := fault(path):
        raise UsageError(told)
    found: Any = OmegaConf.to_container(OmegaConf.load(path))
    return dict(found)


@contextmanager
def read_by_hydra(own: Sequence[Path] = ()) -> Iterator[None]:
    """Hydra lets through what it meets in a file, not always with its name: then the files are looked through."""
    try:
        yield
    except (YAMLError, ValueError, OSError) as error:
        faults = {path: told for path in _files((CONF, *own)) if (told := fault(path))}
        if not faults:
            raise
        met = [told for path, told in faults.items() if str(path) in str(error)]
        raise UsageError([*met, *faults.values()][0]) from error


def _files(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.yaml"))]


def shown(path: Path) -> str:
    """As a person who stands in the checkout names it."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def fault(path: Path) -> str:
    """Why the file is no mapping that can be read, as a sentence; empty where it is one, or holds nothing."""
    try:
        found = OmegaConf.load(path)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return f"{shown(path)}, line {line}: not UTF-8; save the file as UTF-8"
    except MarkedYAMLError as error:
        return f"{shown(path)}, {_line(error)}: {error.problem or error.context}; correct the YAML"
    except YAMLError as error:
        return f"{shown(path)}: {str(error).splitlines()[0]}; correct the YAML"
    except OSError as error:
        return f"{shown(path)}: {error.strerror or 'holds a single value'}; write a mapping, as KEY: VALUE"
    if not isinstance(found, DictConfig):
        return f"{shown(path)}: holds a list; write a mapping, as KEY: VALUE"
    if "defaults" in found and not OmegaConf.is_list(found["defaults"]):
        return f"{shown(path)}: defaults must be a list, as [override /server: embedded]"
    return ""


def _line(error: MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}" if mark else "no line"
