"""The files of a server that a command line starts, by content: a path may hold other code tomorrow.

Looked at are the words that name a program, a script, a configuration or weights by an absolute path (the server runs
in a folder of its own), also behind `--flag=`, the program that the first word means, values of its environment, a
model that is a file or a folder, and of a Python script the modules that it imports from its own folder. Other files
may be what the server writes, a log above all. What a server maps beyond that it must say itself.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from campaigns.plan import Arm, CampaignPlan
from campaigns.syntax import syntax_tree
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.trees import file_sha256, tree_sha256

_OURS = "dflash2"  # it has an identity of its own
_READ = frozenset(  # what a server reads and does not write; an executable file is read whatever its name
    [
        ".py",
        ".sh",
        ".so",
        ".pyz",
        ".jar",
        ".json",
        ".yaml",
        ".yml",
        ".toml",
        ".ini",
        ".cfg",
        ".conf",
        ".jinja",
        ".jinja2",
        ".model",
        ".safetensors",
        ".gguf",
        ".bin",
        ".pt",
        ".pth",
        ".onnx",
        ".engine",
        ".plan",
        ".cubin",
    ]
)


def files_of(plan: CampaignPlan, path: str | None = None) -> dict[Path, str]:
    """Path -> SHA-256 of what it holds now. `path` is the PATH that the server will have; None: this process's."""
    if plan.server.adapter == _OURS:
        return {}
    found = {path for word in _words(plan) for path in _named(word)}
    if plan.server.command and (program := shutil.which(plan.server.command[0], path=path)):
        found.add(Path(program))
    found |= {module for path in found if path.suffix == ".py" for module in _imported(path)}
    hashes = {path: file_sha256(path) for path in sorted(found)}
    return hashes | _model(plan)


def tree_of(arm: Arm) -> str:
    """SHA-256 of the arm's tree, what was built in it included; hidden files and Python's byte code are left out."""
    return tree_sha256(Path(arm.tree), ["."]) if arm.tree else ""


def named(files: Mapping[Path, str]) -> dict[str, str]:
    """For a fingerprint, which knows no paths: two files of one name are told apart by their order."""
    names: dict[str, str] = {}
    for path, sha256 in files.items():
        name = path.name
        while f"server.file.{name}" in names:
            name += "'"
        names[f"server.file.{name}"] = sha256
    return names


def without_paths(word: str, files: Mapping[Path, str]) -> str:
    """The word with the names of its files in place of their paths: equal code at two places is equal."""
    flag, equals, value = word.rpartition("=")
    path = Path(value)
    return f"{flag}{equals}{path.name}" if path in files else word


def _words(plan: CampaignPlan) -> Iterator[str]:
    server, arms = plan.server, (plan.control, plan.candidate)
    yield from (*server.command, *server.args, *(value for _, value in server.env))
    for arm in arms:
        yield from (*arm.args, *(value for _, value in arm.env))


def _named(word: str) -> Iterator[Path]:
    path = Path(word.rpartition("=")[2])
    try:
        if path.is_absolute() and path.is_file() and (path.suffix in _READ or os.access(path, os.X_OK)):
            yield path
    except OSError:  # a name too long to be one
        return


def _imported(script: Path) -> set[Path]:
    """Modules of the script's own folder, which Python puts first on its path; theirs too."""
    folder, found, todo = script.parent, set[Path](), [script]
    while todo:
        for name in _imports(todo.pop()):
            parts = Path(*name.split("."))
            for path in (folder / parts.with_suffix(".py"), folder / parts / "__init__.py"):
                if path.is_file() and path not in found and path != script:
                    found.add(path)
                    todo.append(path)
    return found


def _imports(path: Path) -> Iterator[str]:
    try:
        tree = syntax_tree(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return  # the server will say what is wrong with it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _model(plan: CampaignPlan) -> dict[Path, str]:
    model = ROOT / plan.server.model
    if not plan.server.model or not model.exists() or (model / "config.json").is_file():
        return {}  # a checkpoint is hashed as one
    return {model: tree_sha256(model, ["."]) if model.is_dir() else file_sha256(model)}
