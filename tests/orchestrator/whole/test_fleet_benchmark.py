"""`benchmarks/fleet.py` as far as no Ray is needed: it drives the real loop, whose words change."""

from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.checkouts.places import ROOT

pytestmark = pytest.mark.acceptance


def test_it_measures_a_small_fleet_to_its_end() -> None:
    words = ("--devices", "2", "--startups", "2", "--rounds", "400", "--request-s", "0.01")
    told = subprocess.run([sys.executable, ROOT / "benchmarks/fleet.py", *words], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "| startups, devices, most at once | 2, 2, 2 |" in told.stdout
    assert "| requests, rounds | 40, 400 |" in told.stdout
