"""A checkout beside its dependencies that nobody installed: the doctor, `campaign run` and the server say one thing."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from orchestrator.diagnosis import doctor
from orchestrator.diagnosis.row import Level
from orchestrator.preparation.installed import MISSING, REMEDY

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout, and everything that is installed here but the project itself: no metadata of it in either."""
    folder = tmp_path_factory.mktemp("site")
    for path in ROOT.iterdir():
        if path.suffix != ".egg-info":
            (folder / path.name).symlink_to(path)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "dflash2_campaigns" not in path.name and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return folder


def run(dependencies: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(dependencies)}
    command = [sys.executable, "-S", "-m", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_campaign_run_ends_before_anything_is_leased_or_recorded(dependencies: Path, tmp_path: Path) -> None:
    answer = run(dependencies, tmp_path, "orchestrator.cli", "run", f"lease.lock_dir={tmp_path}/locks")
    assert answer.returncode == 5, answer.stderr
    assert answer.stderr.splitlines()[-1] == f"campaign: {MISSING}; {REMEDY}"
    assert not list(tmp_path.rglob("*.sqlite")) and not (tmp_path / "locks").exists()


def test_the_server_ends_with_a_sentence(dependencies: Path, tmp_path: Path) -> None:
    model = ROOT / "runtime/checkpoints/nano"
    answer = run(dependencies, tmp_path, "runtime.server", f"--model={model}", "--port=0")
    assert answer.returncode == 1
    assert answer.stderr.strip() == f"error: {MISSING}; {REMEDY}"


def test_the_doctor_has_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not [row for row in doctor._python(doctor.Scope(tmp_path)) if row.found == MISSING]

    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    [row] = [row for row in doctor._python(doctor.Scope(tmp_path)) if row.found == MISSING]
    assert row.level is Level.FAULT and row.remedy == REMEDY
