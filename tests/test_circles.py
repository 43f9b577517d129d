"""No module imports itself through others or what is not there, wherever: in functions, TYPE_CHECKING, relative."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("campaigns", "results", "orchestrator", "runtime", "kernels")


def modules(root: Path) -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def imported(module: str, path: Path) -> Iterator[str]:
    """Every dotted name that a statement anywhere in the file may import."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in nodes(path.read_text()):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def known(name: str, among: Mapping[str, Path]) -> str | None:
    """The module that a name lies in: itself, or the nearest one above it."""
    while name and name not in among:
        name = name.rpartition(".")[0]
    return name or None


def circle(root: Path) -> list[str] | None:
    found = modules(root)
    graph = {
        module: {target for name in imported(module, path) if (target := known(name, found)) and target != module}
        for module, path in found.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def given(path: Path) -> set[str]:
    """The names that a module binds at its top level, whatever the branch."""
    found: set[str] = set()
    for node in nodes(path.read_text()):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def absent(root: Path) -> list[str]:
    """`module: name` for every name that a module of ours imports from another that does not have it."""
    found = modules(root)
    has = {module: given(path) for module, path in found.items()}
    return [
        f"{module}: {name}"
        for module, path in found.items()
        for name in imported(module, path)
        if name.partition(".")[0] in PACKAGES and name not in found
        if name.rpartition(".")[2] not in has.get(name.rpartition(".")[0], set())
    ]


def test_what_one_module_imports_from_another_is_there(tmp_path: Path) -> None:
    """The data plane has no type checker, and some of it runs on a GPU alone."""
    assert absent(ROOT) == []
    folder = tmp_path / "results"
    folder.mkdir()
    for name, text in (("__init__", ""), ("a", "def late():\n    from .b import gone, here\n"), ("b", "here = 1\n")):
        (folder / f"{name}.py").write_text(text)
    assert absent(tmp_path) == ["results.a: results.b.gone"]


def test_no_module_imports_itself_through_others() -> None:
    assert len(modules(ROOT)) > 250
    assert circle(ROOT) is None


@pytest.mark.parametrize(
    "back",
    [
        "from results import a\n",
        "from results.a import thing\n",
        "def late():\n    from results.a import thing\n",
        "def late():\n    import results.a\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from results.a import Thing\n",
        "def late():\n    from . import a\n",
        "def late():\n    from .a import thing\n",
    ],
)
def test_a_planted_circle_is_found(tmp_path: Path, back: str) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    for name, text in (("__init__", ""), ("a", "from results import b\n"), ("b", "import json\n")):
        (folder / f"{name}.py").write_text(text)
    assert circle(tmp_path) is None
    (folder / "b.py").write_text(back)
    assert set(circle(tmp_path) or ()) == {"results.a", "results.b"}
