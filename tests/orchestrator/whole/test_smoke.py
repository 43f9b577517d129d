"""The smoke campaign as a new user runs it: real processes, real server, real store; then its report is recomputed.

Figures are checked against plain SQL and the standard library, so that store, frames and report cannot agree by sharing
a mistake.
"""

from __future__ import annotations

import json
import math
import sqlite3
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[3]
PAIRS = 2  # half of what `make demo` takes: one pair in either order
# Answered in three fifths of the tokens that its own problems take; those are asked by the first campaign's tutorial.
ASKED = {"sum": "What is 17 + 25?", "code": "Write a function add(a, b) that returns the sum."}
ITEMS = ",".join(f"{{id:{name},seeds:[1],messages:[{{role:user,content:'{text}'}}]}}" for name, text in ASKED.items())


def campaign(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchestrator.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("smoke")
    brief = (f"campaign.pairs={PAIRS}", "startup.calibrate_s=0.5", f"fixtures.items=[{ITEMS}]")
    return folder, campaign(folder, "run", *brief, f"lease.lock_dir={folder}/locks")


@pytest.fixture
def rows(ran: tuple[Path, object]) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{ran[0] / 'outputs/campaigns.sqlite'}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def report(ran: tuple[Path, object]) -> dict[str, Any]:
    answer = campaign(ran[0], "report", "last", "--format", "json")
    assert answer.returncode == 0, answer.stderr
    parsed: dict[str, Any] = json.loads(answer.stdout)
    return parsed


def test_it_completes_and_prints_its_report(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, process = ran
    assert process.returncode == 0, process.stderr
    answer = process.stdout.splitlines()
    assert answer[0].startswith("screen (") and f"all {4 * PAIRS} pairs exact" in answer[0]
    assert all(line.startswith("  ! ") for line in answer[1:])  # progress goes to standard error
    assert "projection: columns-32 -> columns-128; selection: sort -> keys" in process.stderr
    assert "Traceback" not in process.stderr
    [written] = (ran[0] / "outputs").glob("*/report.md")
    assert written.read_text().startswith("# smoke: torch-tuned against torch-plain (projection")


def test_every_planned_pair_is_there_and_exact(report: dict[str, Any]) -> None:
    assert (report["n_pairs"], report["n_exact_pairs"], report["n_excluded"]) == (4 * PAIRS, 4 * PAIRS, 0)
    assert report["evidence"] == "screen" and report["verdict"] == "screen"  # two startups allow no more
    assert len(report["startups"]) == 2 and len(report["fixtures"]) == 2


def test_both_arms_took_their_own_route(rows: sqlite3.Connection) -> None:
    taken = defaultdict(set)
    for row in rows.execute("SELECT role, counters FROM request WHERE phase = 'measure'"):
        taken[row["role"]] |= {name for name, hits in json.loads(row["counters"]).items() if hits}
    own = {
        "control": {"projection/columns-32", "selection/sort"},
        "candidate": {"projection/columns-128", "selection/keys"},
    }
    for role, other in (("control", "candidate"), ("candidate", "control")):
        assert own[role] <= taken[role] and not own[other] & taken[role]


def test_answers_end_by_themselves_and_drafts_are_accepted(rows: sqlite3.Connection) -> None:
    assert {row[0] for row in rows.execute("SELECT finish_reason FROM request")} == {"stop"}
    accepted, rounds = rows.execute("SELECT sum(accepted), count(*) FROM v_round WHERE kind = 'spec'").fetchone()
    assert accepted / rounds >= 0.5


def test_startups_are_independent_server_lives(rows: sqlite3.Connection) -> None:
    lives = [json.loads(row[0]) for row in rows.execute("SELECT processes FROM startup ORDER BY startup")]
    marks = [{(process["pid"], process["start_ticks"]) for process in life} for life in lives]
    assert len(marks) == 2 and all(marks) and not marks[0] & marks[1]


def test_warm_ups_are_kept_and_do_not_count(rows: sqlite3.Connection) -> None:
    counted = dict(rows.execute("SELECT phase, count(*) FROM request GROUP BY phase").fetchall())
    assert counted == {"warmup": 2 * 2 * 2, "measure": 2 * 2 * PAIRS * 2}


def test_the_reports_medians_come_out_of_the_rows(rows: sqlite3.Connection, report: dict[str, Any]) -> None:
    """Median of startup medians of engine decode time over speculative rounds, and of the paired log ratios."""
    levels: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    pairs: dict[tuple[str, int, int], dict[str, float]] = defaultdict(dict)
    query = "SELECT startup, fixture, repeat, role, engine_decode_ns, n_rounds FROM request WHERE phase = 'measure'"
    for startup, fixture, repeat, role, decode_ns, n_rounds in rows.execute(query):
        round_ms = decode_ns * 1e-6 / n_rounds
        levels[fixture, role][startup].append(round_ms)
        pairs[fixture, startup, repeat][role] = round_ms
    for shown in report["fixtures"]:
        fixture = shown["fixture_id"]
        for role in ("control", "candidate"):
            expected = statistics.median(statistics.median(v) for v in levels[fixture, role].values())
            assert shown[role]["request_average_engine_ms"] == pytest.approx(expected, rel=1e-12)
        effects = defaultdict(list)
        for (name, startup, _), both in pairs.items():
            if name == fixture:
                effects[startup].append(math.log(both["candidate"] / both["control"]))
        effect = statistics.median(statistics.median(v) for v in effects.values())
        assert shown["effect_pct"] == pytest.approx(100 * math.expm1(effect), rel=1e-9)


def test_each_round_row_adds_up(rows: sqlite3.Connection) -> None:
    """One row a round; the prefill's token and the emitted ones are the whole answer."""
    query = """SELECT r.completion_tokens, r.first_tokens, r.n_rounds, r.n_q1_steps, count(*), sum(d.emitted),
                      sum(d.client_tokens) FROM request r JOIN round d ON d.request_id = r.id GROUP BY r.id"""
    found = rows.execute(query).fetchall()
    assert found
    for total, first, n_rounds, n_q1, n_rows, emitted, client_tokens in found:
        assert n_rows == n_rounds + n_q1 and total == first + emitted == first + client_tokens


def test_verify_agrees_and_finds_one_changed_number(ran: tuple[Path, object], tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes((ran[0] / "outputs/campaigns.sqlite").read_bytes())
    assert campaign(tmp_path, "verify", "last", "--store", str(copy)).returncode == 0
    with sqlite3.connect(copy) as connection:
        connection.execute("UPDATE round SET engine_ns = engine_ns - 1 WHERE request_id = 5 AND round_index = 2")
    connection.close()
    answer = campaign(tmp_path, "verify", "last", "--store", str(copy))
    assert answer.returncode == 6 and "5" in answer.stdout + answer.stderr
