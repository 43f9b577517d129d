"""Where the files of a configuration lie: conf/ of the checkout, and folders of one's own that a command line names.

Hydra takes the first file that it meets and says nothing of the second, so no two folders may hold files of one name.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from campaigns.errors import UsageError
from orchestrator.checkouts.places import CONF
from orchestrator.settings.conf_files import load, shown

_KEY = "hydra.searchpath"
_WHERE = f"--config-dir or {_KEY}:"
_FORM = f"write {_KEY}=[FOLDER,FOLDER], or --config-dir FOLDER"


@cache
def groups() -> tuple[str, ...]:
    """What the defaults list of conf/config.yaml lets a word choose: `server`, `arm@campaign.control`, …"""
    lines = load(CONF / "config.yaml")["defaults"]
    chosen = [next(iter(line)) for line in lines if isinstance(line, dict)]
    return tuple(name for name in chosen if not name.startswith("override "))


def names() -> tuple[str, ...]:
    """The folders below conf/ that hold the groups' files."""
    return tuple(dict.fromkeys(name.partition("@")[0] for name in groups()))


@cache
def options(own: tuple[Path, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Group to the names of its files, in conf/ and in one's own folders."""
    return {
        name: tuple(sorted(path.stem for folder in (CONF, *own) for path in (folder / name).glob("*.yaml")))
        for name in names()
    }


def with_folders(words: Sequence[str], named: Sequence[Path]) -> list[str]:
    """The words with one `hydra.searchpath` of absolute folders for those that they and `--config-dir` name."""
    own = [*own_folders(words), *named]
    if not own:
        return list(words)
    quoted = ",".join("'file://" + _escaped(str(folder.absolute())) + "'" for folder in own)
    return [*(word for word in words if not _is_searchpath(word)), f"{_KEY}=[{quoted}]"]


def own_folders(words: Sequence[str]) -> tuple[Path, ...]:
    """The folders that `hydra.searchpath=[…]` names, in order."""
    return tuple(dict.fromkeys(folder for word in words if _is_searchpath(word) for folder in _folders(word)))


def check_folders(own: Sequence[Path]) -> None:
    """UsageError for a folder that is missing or holds no group, and for a file whose name is taken."""
    taken = {path.relative_to(CONF): path for path in CONF.rglob("*.yaml")}
    for folder in own:
        if not folder.is_dir():
            raise UsageError(f"{_WHERE} {folder}: no such folder; campaign init {folder} writes a first one")
        if not any((folder / name).is_dir() for name in names()):
            raise UsageError(f"{_WHERE} {folder}: none of {', '.join(names())} is a folder in it")
        for path in sorted(folder.rglob("*.yaml")):
            other = taken.setdefault(path.relative_to(folder), path)
            if other != path:
                raise UsageError(f"{path} and {shown(other)} have one name: rename yours; a word means one file")


def find(name: str, own: Sequence[Path]) -> Path:
    """The file of `arm/mine`; the one in conf/ where no folder has it."""
    paths = [folder / f"{name}.yaml" for folder in (CONF, *own)]
    return next((path for path in paths if path.is_file()), paths[0])


def _is_searchpath(word: str) -> bool:
    return word.lstrip("+").partition("=")[0] == _KEY


def _folders(word: str) -> Iterator[Path]:
    try:
        value = OverridesParser.create().parse_override(word).value()
    except HydraException:
        raise UsageError(f"{word} cannot be read: {_FORM}") from None
    if not isinstance(value, list):
        raise UsageError(f"{word}: must be a list of folders; {_FORM}")
    for item in value:
        scheme, found, rest = str(item).rpartition("://")[0], "://" in str(item), str(item).rpartition("://")[2]
        if found and scheme == "pkg":
            yield _package(word, rest)
        elif found and scheme != "file":
            raise UsageError(f"{word}: nothing is read from {scheme}://; {_FORM}")
        else:
            yield Path(rest)


def _package(word: str, name: str) -> Path:
    """Hydra's pkg://NAME, as the folder that it is."""
    try:
        spec = importlib.util.find_spec(name.replace("/", "."))
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"{word}: there is no package {name} to import; {_FORM}")
    return Path(spec.submodule_search_locations[0])


def _escaped(text: str) -> str:
    """For Hydra's grammar, between single quotes."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
