"""`campaign probe neighbours` on this machine, with real processes, and the next report that cites it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.errors import Exit
from orchestrator.checkouts.places import ROOT
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import name_holder
from orchestrator.hosts.locks import Kind, LockFolder
from results.store.reader import Reader

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

CAMPAIGN = Path(sys.executable).with_name("campaign")
SERVER = ROOT / "docs" / "examples" / "small_openai_server.py"


def words_for(folder: Path) -> list[str]:
    return [
        "campaign.mode=aa",
        "arm@campaign.control=default",
        "arm@campaign.candidate=default",
        "campaign.required_exactness=1",
        "campaign.max_tokens=24",
        "campaign.pairs=4",
        "campaign.warmups=1",
        "startup.calibrate_s=0",
        "server=command",
        f"server.command={json.dumps([sys.executable, str(SERVER), '{port}', '--round-ms', '20'])}",
        "lease=simulated",
        f"lease.lock_dir={folder / 'locks'}",
    ]


def test_a_probe_is_recorded_and_the_next_report_cites_it(tmp_path: Path) -> None:
    words = [*words_for(tmp_path), "lease.per_host=2"]
    store = ["--store", str(tmp_path / "s.sqlite")]
    probed = subprocess.run(
        [CAMPAIGN, "probe", "neighbours", *words, "--turns", "2", *store], capture_output=True, text=True, cwd=tmp_path
    )
    assert probed.returncode == 0, probed.stderr
    assert "lease.per_host=2: times are" in probed.stdout and probed.stdout.rstrip().endswith("held")
    with Reader.open(tmp_path / "s.sqlite") as reader:
        [probe] = reader.probes()
        names = [campaign.name for campaign in reader.campaigns()]
        told = json.loads(probe.line_json)
        assert sorted(told["campaigns"]) == sorted(campaign.campaign_id for campaign in reader.campaigns())
    assert sorted(names) == ["neighbours alone"] * 2 + ["neighbours beside"] * 2
    ran = subprocess.run(
        [CAMPAIGN, "run", *words, "campaign.startups=2", "lease.parallel=2", "--report", *store],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "over 2 turns on such devices found times" in ran.stdout, ran.stderr


def test_a_neighbour_that_finds_no_device_ends_the_probe_with_its_reason(tmp_path: Path) -> None:
    """Two of three devices are another's: one turn alone, one neighbour, and no room for the second."""
    (tmp_path / "three.json").write_text('{"order": [0, 1, 2]}')
    inventory = f"simulated:{tmp_path / 'three.json'}"
    others = [device.uuid for device in open_inventory(inventory).devices()[1:]]
    held = [LockFolder(str(tmp_path / "locks")).try_lock(uuid, name_holder("another"), Kind.CLAIM) for uuid in others]
    words = [*words_for(tmp_path), "lease.per_host=3", f"lease.inventory={inventory}"]
    command = [CAMPAIGN, "probe", "neighbours", *words, "--turns", "1", "--store", str(tmp_path / "s.sqlite")]
    probed = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert None not in held and probed.returncode == Exit.WORLD
    [said] = [
        line for line in probed.stderr.splitlines() if line.startswith("campaign: a neighbour ended with 5 before")
    ]
    assert "before it measured; its last words: campaign: " in said and "is held by another of" in said
