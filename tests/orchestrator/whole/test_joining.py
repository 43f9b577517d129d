"""Nodes without this checkout, with another one, with their weights elsewhere: code and weights are the driver's."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.namespaces import Fleet, fleet, refusal
from campaigns.errors import Exit
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.trees import CONTROL_PLANE, DATA_PLANE
from results.store.reader import Reader

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

CAMPAIGN = Path(sys.executable).with_name("campaign")
NANO = ROOT / "runtime" / "checkpoints" / "nano"
PLANES = (*CONTROL_PLANE, *DATA_PLANE, "conf")


def absent() -> str:
    """No code, and nothing that says it was installed."""
    info = next(path for path in Path(sys.executable).parents[1].glob("lib/python*/site-packages/dflash2_*.dist-info"))
    return "; ".join(f"mount -t tmpfs none {path}" for path in (*(ROOT / name for name in PLANES), info))


def other(folder: Path) -> str:
    """Other code at the same place."""
    for name in ("orchestrator", "runtime"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (folder / name).rglob("*.py"):
            path.write_text("raise SystemExit('this is not the code that was sent')\n")
    return "; ".join(f"mount --bind {folder / name} {ROOT / name}" for name in ("orchestrator", "runtime"))


def mounted(folder: Path, host: str, *names: str) -> str:
    """What this host has at folder/NAME."""
    for name in names:
        (folder / host / name).mkdir(parents=True, exist_ok=True)
        (folder / name).mkdir(exist_ok=True)
    return "; ".join(f"mount --bind {folder / host / name} {folder / name}" for name in names)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Path]]:
    """Node 1 has no code, node 2 has other code; each has the weights at another place below the same root."""
    if told := refusal():
        pytest.skip(told)
    folder = tmp_path_factory.mktemp("joining")
    first, second = (mounted(folder, host, "models", "locks") for host in ("one", "two"))
    shutil.copytree(NANO, folder / "one" / "models" / "shelf" / "its-own-name")
    shutil.copytree(NANO, folder / "two" / "models" / "nano")
    shutil.copytree(NANO, folder / "models" / "nano")
    with fleet(()) as made:
        made.add(1, 0, f"{first}; {absent()}")
        made.add(2, 0, f"{second}; {other(folder / 'other')}")
        yield made, folder


def words(nodes: Fleet, folder: Path, *more: str) -> list[str]:
    return [
        str(CAMPAIGN),
        "run",
        "server=embedded",
        "campaign=smoke",
        "server.model=nano",
        f"server.model_root=[{folder / 'models'}]",
        "campaign.startups=4",
        "campaign.pairs=2",
        "campaign.max_tokens=16",
        "startup.calibrate_s=0",
        "lease=one",
        "lease.inventory=cpu",
        f"lease.lock_dir={folder / 'locks'}",
        f"lease.ray_address={nodes.address}",
        "lease.parallel=2",
        "lease.wait_s=120",
        f"store.path={folder / 's.sqlite'}",
        *more,
    ]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def newest(folder: Path) -> tuple[Any, list[Any], int]:
    with Reader.open(folder / "s.sqlite") as reader:
        campaign = reader.campaigns()[-1]
        lives = reader.lives(campaign.campaign_id)
        return campaign, lives, len(reader.recorded(campaign.campaign_id).pairs)


def test_code_and_weights_are_the_drivers_wherever_a_startup_runs(strangers: tuple[Fleet, Path]) -> None:
    nodes, folder = strangers
    done = run(words(nodes, folder), folder)
    assert done.returncode in (Exit.COMPLETE, Exit.SLOWER), done.stderr[-4000:]
    campaign, lives, num_pairs = newest(folder)
    assert num_pairs == 4 * 2 * 2
    assert {life.startup.host for life in lives} == {"fleet1", "fleet2"}
    models = {life.startup.host: life.startup.command[life.startup.command.index("--model") + 1] for life in lives}
    assert models == {"fleet1": f"{folder}/models/shelf/its-own-name", "fleet2": f"{folder}/models/nano"}
    sources = {life.startup.identity["source_sha256"] for life in lives}
    assert sources == {campaign.fingerprint["runtime_sha256"]}
    assert all("runtime_resources" in life.startup.environment["PYTHONPATH"] for life in lives)


def test_every_node_shows_its_devices_without_the_code(strangers: tuple[Fleet, Path]) -> None:
    nodes, folder = strangers
    listed = run([str(CAMPAIGN), "lease", "list", "--cluster", nodes.address, "--inventory", "cpu"], folder)
    assert listed.returncode == 0 and "fleet1 (" in listed.stdout and "fleet2 (" in listed.stdout, listed


def test_other_weights_are_refused_naming_both_hosts(strangers: tuple[Fleet, Path]) -> None:
    nodes, folder = strangers
    for host in ("one", "two"):
        for config in (folder / host / "models").rglob("drafter/config.json"):
            config.write_text(config.read_text() + "\n")
    done = run(words(nodes, folder), folder)
    assert done.returncode == Exit.IDENTITY, done.stderr[-4000:]
    assert "has no weights with sha256" in done.stderr and "this driver's host" in done.stderr
    assert newest(folder)[2] == 0


def test_other_libraries_are_refused_naming_both_hosts(strangers: tuple[Fleet, Path]) -> None:
    nodes, folder = strangers
    info = next(Path(sys.executable).parents[1].glob("lib/python*/site-packages/numpy-*.dist-info"))
    changed = folder / "numpy-info"
    shutil.copytree(info, changed)
    lines = (info / "METADATA").read_text().splitlines()
    (changed / "METADATA").write_text("\n".join("Version: 1.0" if x.startswith("Version: ") else x for x in lines))
    for number in (1, 2):
        nodes.nodes[number].kill()
    nodes.add(3, 0, f"{mounted(folder, 'three', 'models', 'locks')}; mount --bind {changed} {info}")
    deadline = time.monotonic() + 120  # until Ray knows that the others are gone
    listed = [str(CAMPAIGN), "lease", "list", "--cluster", nodes.address, "--inventory", "cpu"]
    while "fleet1" in (told := run(listed, folder).stdout) or "fleet2" in told:
        assert time.monotonic() < deadline, told
    done = run(words(nodes, folder, "server.model=runtime/checkpoints/nano"), folder)
    assert done.returncode == Exit.IDENTITY, done.stderr[-4000:]
    assert "fleet3 has numpy 1.0 and this driver's host has " in done.stderr
