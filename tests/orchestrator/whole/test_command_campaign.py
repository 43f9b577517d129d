"""Whole campaigns through `server=command` and `server=attach`, on the example server, in every startup mode."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.checkouts.places import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

SERVER = ROOT / "docs" / "examples" / "small_openai_server.py"
CAMPAIGN = Path(sys.executable).with_name("campaign")
SMALL = (
    "arm@campaign.control=default",
    "arm@campaign.candidate=default",
    "campaign.candidate.name=other",
    "campaign.max_tokens=64",
    "campaign.startups=2",
    "campaign.pairs=2",
    "startup.calibrate_s=0.5",
)

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a campaign; its exit code and its report as JSON."""
    store = tmp_path / "campaigns.sqlite"

    def start(*overrides: str) -> tuple[int, dict[str, Any]]:
        where = (f"store.path={store}", f"lease.lock_dir={tmp_path / 'locks'}")
        done = subprocess.run([CAMPAIGN, "run", *SMALL, *where, *overrides], capture_output=True, text=True)
        told = subprocess.run(
            [CAMPAIGN, "report", "last", "--format", "json", "--store", store], capture_output=True, text=True
        )
        assert told.stdout, done.stderr + told.stderr
        return done.returncode, json.loads(told.stdout)

    return start


def command(*flags: str) -> str:
    words = [sys.executable, str(SERVER), "{port}", *flags]
    return f"server.command={json.dumps(words)}"


@pytest.mark.parametrize("mode", ["co_resident", "sequential"])
def test_arms_that_are_server_lives(run: Run, mode: str) -> None:
    width = "campaign.candidate.args=['--round-ms','6']"
    code, report = run("server=command", command(), width, f"startup={mode}", "campaign.required_exactness=3")
    assert code == 0
    assert (report["status"], report["startup_mode"]) == ("complete", mode)
    assert (report["n_pairs"], report["n_exact_pairs"], report["n_excluded"]) == (8, 8, 0)
    assert report["required_exactness"] == "E3"
    assert report["round_source"] == "sse-chunk"
    assert all(effect > 20 for effect in report["startup_effects_pct"].values())


def test_one_server_for_equal_arms(run: Run) -> None:
    code, report = run("server=command", command(), "campaign.mode=aa", "startup=switch")
    assert code == 0
    assert (report["mode"], report["n_pairs"], report["n_exact_pairs"]) == ("aa", 8, 8)


def test_server_without_ids_or_tokenize(run: Run) -> None:
    lacking = command("--no-ids", "--no-tokenize")
    code, report = run("server=command", lacking, "campaign.mode=aa", "campaign.required_exactness=1")
    assert code == 0
    assert (report["n_pairs"], report["n_exact_pairs"]) == (8, 8)
    assert any("token ids were not returned" in note for note in report["missing"])
    code, report = run("server=command", lacking, "campaign.mode=aa", "campaign.required_exactness=3")
    assert (report["n_pairs"], report["n_exact_pairs"], report["verdict"]) == (8, 0, "inadmissible")
    assert code in (2, 4)


def test_server_without_tokenize_needs_a_cap(run: Run) -> None:
    lacking = command("--no-tokenize")
    done = subprocess.run(
        [CAMPAIGN, "run", *SMALL, "server=command", lacking, "campaign.mode=aa", "campaign.max_tokens=null"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "give the fixture a max_tokens, or all of them one with campaign.max_tokens" in done.stderr + done.stdout


def test_attached_server_is_measured_and_left_alone(run: Run) -> None:
    port = "18391"
    with subprocess.Popen([sys.executable, SERVER, port]) as server:
        try:
            _await(f"http://127.0.0.1:{port}/health")
            code, report = run("server=attach", f"server.base_url=http://127.0.0.1:{port}", "campaign.mode=aa")
            assert code == 0
            assert (report["n_pairs"], report["n_exact_pairs"]) == (8, 8)
            assert server.poll() is None
        finally:
            server.terminate()


def _await(url: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


DECIDED = ("campaign.stop=decided", "campaign.startups=6", "campaign.required_exactness=3", "startup=co_resident")


def test_a_planted_difference_ends_a_campaign_early(run: Run) -> None:
    code, report = run("server=command", command(), "campaign.candidate.args=['--round-ms','9']", *DECIDED)
    assert (code, report["verdict"], report["status"]) == (2, "slower", "complete")
    assert report["n_startups"] < 6 and report["looks"][-1]["decided"]
    assert report["status_reason"] == f"slower after {report['n_startups']} of at most 6 startups"


def test_equal_arms_end_as_equivalent_or_at_the_last_startup(run: Run) -> None:
    code, report = run("server=command", command(), "campaign.mode=aa", *DECIDED, "campaign.margin_percent=5")
    assert code == 0
    assert report["verdict"] == "equivalent" or report["n_startups"] == 6
    assert [look["n_seen"] for look in report["looks"]] == list(range(3, report["n_startups"] + 1))
