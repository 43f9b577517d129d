"""A profiled campaign tells where rounds go, and no other campaign's figures know of it."""

import json
import sqlite3
from dataclasses import replace

import pytest

from campaigns.plan import Mode, Role
from campaigns.reasons import Reason
from campaigns.records import OperatorTime, Profile
from orchestrator.cli import main
from results.history.entries import history
from results.history.evidence import evidence
from results.history.pace import pace
from results.reading.summary import summarise
from results.reports.report import render
from results.store.reader import Reader
from results.store.verify import Tally, verify
from results.store.writer import Store
from results.transfer.synthetic import Driver
from tests.results.history.test_history import HOST, PLAN, script

LIKE = HOST | {"weights_sha256": "ab" * 32, "server.args": "[]"}
TIMES = {
    Role.CONTROL: (("draft", "norm", "rows", 10, 1_000), ("verify", "projection", "wide", 40, 8_000)),
    Role.CANDIDATE: (("draft", "norm", "rows", 10, 1_000), ("verify", "projection", "narrow", 40, 6_000)),
}


def profiled(step, attempt):
    """Five rounds a request; the second repeat takes twice as long."""
    factor = 1 + step.key.repeat % 2
    times = [OperatorTime(p, o, s, n, 2 * n, ns * factor) for p, o, s, n, ns in TIMES[step.role]]
    profile = Profile(5, "device", 90_000 * factor, (*times, OperatorTime("", "", "", 0, 5, 500 * factor)))
    made = script(0.9)(step, attempt)
    return replace(made, reasons=(Reason.PROFILED,), admissible=False, profile=profile)


@pytest.fixture(scope="module")
def made(module_ram):
    """An A/B campaign, and beside it a profiled A/A and a profiled A/B on the same build, recorded before it."""
    path = module_ram / "store.sqlite"
    with Store.open(path) as store:

        def run(day, plan, scripts):
            utc = f"2026-01-0{day}T00:00:00+00:00"
            return Driver(store, plan, scripts, LIKE, created_utc=utc, run_number=day).run()

        wide = replace(PLAN, profile=True)
        noise = replace(wide, mode=Mode.AA, candidate=PLAN.control, startups=8)
        ids = {
            "noise": run(1, noise, profiled),
            "profiled": run(2, wide, profiled),
            "measured": run(3, PLAN, script(1)),
        }
    return path, ids


def test_where_a_round_goes(made):
    path, ids = made
    with Reader.open(path) as reader:
        found = summarise(reader, ids["profiled"])
        text, page = (render(reader, ids["profiled"], kind) for kind in ("md", "html"))
        told = json.loads(render(reader, ids["profiled"], "json"))
    assert found.profiled and found.verdict.value == "inadmissible" and found.exit_code(strict=True) == 0
    # Two of four pairs take twice as long: 1.5 times the single request's five rounds.
    assert "| mbpp28 | verify | projection | 2.4 / 1.8 | -0.6 | 84.2 % / 80.0 % | 8 / 8 | wide / narrow |" in text
    assert "| mbpp28 | between | other | 0.1 / 0.1 | +0.0 |" in text
    assert "| mbpp28 | all |  | 2.9 / 2.2 | -0.6 | 100.0 % / 100.0 % | 21 / 21 launches | 60 / 60 rounds |" in text
    assert "Scope: profiled" in text and "Where a round goes" in page
    assert "profiled: it tells where rounds go and compares no times, all 24 pairs exact" in text
    assert "complete round ms" not in text and "% faster" not in text
    [row] = [
        row
        for row in told["where_a_round_goes"]
        if (row["fixture_id"], row["role"], row["operator"]) == ("mbpp28", "candidate", "projection")
    ]
    assert (row["rounds"], row["calls"], row["total_ns"], row["schedules"]) == (60, 480, 108_000, ["narrow"])


def test_rows_hold_and_a_changed_one_is_found(made, tmp_path):
    path, ids = made
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(path.read_bytes())
    with Reader.open(copy) as reader:
        assert list(verify(reader, ids["profiled"], Tally())) == []
        changed = reader.operator_times(ids["profiled"])[7]["id"]
    connection = sqlite3.connect(copy)
    connection.execute("UPDATE operator_time SET total_ns = total_ns - 1 WHERE id = ?", (changed,))
    connection.commit()
    connection.close()
    with Reader.open(copy) as reader:
        [finding] = verify(reader, ids["profiled"], Tally())
    assert finding.row.startswith(f"operator_time id {changed}")


def test_no_reader_takes_its_times(made):
    path, ids = made
    with Reader.open(path) as reader:
        assert set(history(reader).campaign_id) == {ids["measured"]}
        judged = summarise(reader, ids["measured"])
        assert judged.groups[0].judgement.floor.source == "no A/A"
        assert [result.campaign_id for result in evidence(reader, "columns-32").results] == [ids["measured"]]
        requests = len(list(reader.requests(ids["measured"])))
        assert pace(reader, LIKE["weights_sha256"], LIKE["server.args"]).source.startswith(f"{requests} recorded")


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "profiled", "measured"),
        ("compare", "measured", "profiled"),
        ("baseline", "set", "base", "profiled"),
        ("floor", "noise", "--by", "me", "--reason", "x"),
        ("plan", "--from", "profiled"),
        ("export", "profiled", "--format", "vllm-bench"),
    ],
)
def test_what_holds_measurements_refuses_it(made, words, capsys):
    path, ids = made
    assert main([*(ids.get(word, word) for word in words), "--store", str(path)]) == 1
    assert "ran under a profiler (campaign.profile=true)" in capsys.readouterr().err


def test_a_requests_profile_is_kept_with_it_and_only_once(made):
    path, ids = made
    with Reader.open(path) as reader:
        rows = reader.operator_times(ids["profiled"])
        measured = [r for r in reader.requests(ids["profiled"]) if r.request.phase == "measure"]
    assert len(rows) == 3 * len(measured)
    assert all(r.request.profile is None and not r.request.admissible for r in measured)
