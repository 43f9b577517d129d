"""The house's walls that import-linter cannot see: installed packages, light imports, where the source lies."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_foreign_project_named_kernels_is_not_installed() -> None:
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.distribution("kernels")


def test_the_deprecated_project_named_pynvml_is_not_installed() -> None:
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.distribution("pynvml")


@pytest.mark.parametrize("package", ["kernels", "runtime", "campaigns", "orchestrator", "results"])
def test_packages_import_nothing_heavy(package: str) -> None:
    probe = f"import {package}, sys; print([m for m in ('torch', 'ray', 'pandas', 'matplotlib') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.strip() == "[]"


def test_a_question_to_the_store_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    """Each of these would cost more than the answer."""
    store = shutil.copy(sorted(ROOT.glob("tests/results/store/stores/*.sqlite"))[-1], tmp_path)
    probe = (
        f"import sys; from orchestrator.cli import main; main(['query', 'SELECT 1', '--store', {str(store)!r}]);"
        "print([m for m in ('torch', 'ray', 'hydra', 'pandas', 'scipy', 'matplotlib', 'alembic') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.splitlines()[-1] == "[]"


@pytest.mark.acceptance  # `make lint` reads every import for it; this one loads them
def test_control_plane_modules_never_load_torch() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for plane in ("campaigns", "results", "orchestrator")
        for path in sorted((ROOT / plane).rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py") and "migrations" not in path.parts
    ]
    probe = f"import importlib, sys; [importlib.import_module(m) for m in {modules}]; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT)
    assert answer.stdout.strip() == "False", answer.stderr


def test_only_the_five_packages_are_installed() -> None:
    files = metadata.distribution("dflash2-campaigns").read_text("top_level.txt")
    assert sorted((files or "").split()) == ["campaigns", "kernels", "orchestrator", "results", "runtime"]


def test_the_walks_of_the_architecture_name_what_is_there() -> None:
    walks = (ROOT / "docs/architecture.md").read_text().partition("### The walk of one request")[2]
    walks = walks.partition("State lives")[0]
    paths = {path for path in re.findall(r"`([a-z]+/[\w./]*)", walks) if "NAME" not in path}
    assert len(paths) > 25
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    named = re.findall(r"`([\w/]+\.py)`: `([\w.]+)`", walks)
    assert len(named) > 2
    for path, name in named:
        assert re.search(rf"\b(def|class) {name.rpartition('.')[2]}\b", (ROOT / path).read_text()), (path, name)
