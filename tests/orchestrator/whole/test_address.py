"""A private Ray outlives the host's address.

From public reports: a host whose address is a VPN's or a DHCP server's loses a Ray that was started under another one
(github.com/ray-project/ray, issues 7316, 31264, 33554).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.namespaces import refusal
from orchestrator.checkouts.places import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.ray, pytest.mark.timeout(600)]

SERVER = ROOT / "docs" / "examples" / "small_openai_server.py"
ADDRESS = "192.0.2.77/24"  # of a network for examples


def within(pid: int, *command: str) -> str:
    """In the namespace of that process."""
    words = ["nsenter", "-t", str(pid), "-n", *command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(bool(refusal()), reason=refusal() or "never")
def test_a_host_whose_address_goes_away(tmp_path: Path) -> None:
    server = json.dumps([sys.executable, str(SERVER), "{port}", "--round-ms", "10"])
    words = ["arm@campaign.control=default", "arm@campaign.candidate=default", "campaign.mode=aa"]
    words += ["campaign.max_tokens=60", "campaign.startups=2", "campaign.pairs=4", "startup=switch"]
    words += ["startup.calibrate_s=0.4", "server=command", f"server.command={server}", "lease.inventory=simulated:one"]
    words += [f"store.path={tmp_path / 'c.sqlite'}", f"lease.lock_dir={tmp_path / 'locks'}"]
    steps = ("link set lo up", "link add eth0 type veth peer name eth1", "link set eth1 up", "addr add $0 dev eth0")
    made = "; ".join(f"ip {step}" for step in (*steps, "link set eth0 up", "route add default dev eth0"))
    command = ["unshare", "-n", "sh", "-c", f'{made}; exec "$@"', ADDRESS]
    with (tmp_path / "out").open("w") as out:
        run = [*command, sys.executable, "-m", "orchestrator.cli", "run", *words]
        driver = subprocess.Popen(run, cwd=ROOT, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(ROOT)})
        deadline = time.monotonic() + 240
        while "pair 1/" not in (tmp_path / "out").read_text() and time.monotonic() < deadline:
            assert driver.poll() is None, (tmp_path / "out").read_text()
            time.sleep(0.1)
        within(driver.pid, "ip", "addr", "del", ADDRESS, "dev", "eth0")
        assert driver.wait(240) == 0, (tmp_path / "out").read_text()
    assert "all 16 pairs exact" in (tmp_path / "out").read_text().replace("all 32", "all 16")
