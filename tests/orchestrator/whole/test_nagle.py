"""A server with Nagle's algorithm left on is measured as rightly as any other, in every mode and attached."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from results.store.reader import Reader

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

SERVER = Path(__file__).with_name("nagle_server.py")
CAMPAIGN = Path(sys.executable).with_name("campaign")
ROUND_MS = 4.0
COMMON = (
    "arm@campaign.control=default",
    "arm@campaign.candidate=default",
    "campaign.startups=2",
    "campaign.pairs=4",
    "campaign.max_tokens=64",
    "campaign.required_exactness=3",
    "startup.calibrate_s=1",
)


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, SERVER, str(port), tmp_path / "truth", "--round-ms", str(ROUND_MS)]) as run:
        url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        try:
            yield url
        finally:
            run.terminate()


def measure(tmp_path: Path, *overrides: str) -> float:
    """The client's request averages against the server's own, matched by decode time: the median bias, relative."""
    store = tmp_path / "campaigns.sqlite"
    where = (f"store.path={store}", f"lease.lock_dir={tmp_path / 'locks'}")
    done = subprocess.run([CAMPAIGN, "run", *COMMON, *where, *overrides], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    truth = [json.loads(line) for file in tmp_path.glob("truth*") for line in file.read_text().splitlines()]
    answers = {(stamps[0], stamps[-1]): stamps for stamps in truth}
    biases, held, num_rows = [], 0, 0
    with Reader.open(store) as reader:
        for stored in reader.requests(reader.resolve("last")):
            request = stored.request
            assert request.first_content_ns is not None and request.last_content_ns is not None
            first, last = min(answers, key=lambda ends: abs(ends[1] - request.last_content_ns))
            num_rounds = len(answers[first, last]) - 1
            held += sum(row.coalesced for row in request.rounds)  # a busy host's client reads two at once
            num_rows += num_rounds
            bias_ns = (request.last_content_ns - request.first_content_ns - (last - first)) / num_rounds
            biases.append(abs(bias_ns) / statistics.median(b - a for a, b in pairwise(answers[first, last])))
    assert len(biases) >= 2 * 2 * 4
    print(
        f"{overrides[-1]}: {len(biases)} requests, bias of a {ROUND_MS} ms round: median "
        f"{statistics.median(biases):.3%}, largest {max(biases):.3%}; {held} of {num_rows} chunks read with another"
    )
    return statistics.median(biases)


@pytest.mark.parametrize("mode", ["co_resident", "sequential"])
def test_lives_of_a_server_with_nagle(tmp_path: Path, mode: str) -> None:
    words = [sys.executable, str(SERVER), "{port}", f"{tmp_path}/truth", "--round-ms", str(ROUND_MS)]
    arms = ("server=command", f"server.command={json.dumps(words)}", "campaign.mode=aa")
    assert measure(tmp_path, *arms, f"startup={mode}") < 0.01


def test_attached_server_with_nagle(tmp_path: Path, attached: str) -> None:
    assert measure(tmp_path, "server=attach", f"server.base_url={attached}", "campaign.mode=aa") < 0.01
