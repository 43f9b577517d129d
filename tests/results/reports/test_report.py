"""Reports against golden files and against the rows they come from; exit codes; what a report must not hide.

A golden file changes with the report on purpose: run this file with `--golden`, then read the difference.
"""

import json
import math
import sqlite3
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from campaigns.errors import Exit
from campaigns.judging.verdicts import Verdict
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, PairKey, Role, ServerPlan, StartupMode
from campaigns.reasons import Reason
from campaigns.records import Calibration, CampaignStatus, Failure, StartupEnd, StartupStatus
from orchestrator.cli import main
from results.history.entries import history
from results.reading import frames
from results.reading.groups import Group
from results.reading.levels import ArmLevels
from results.reading.summary import Summary, summarise
from results.reports.headline import headline
from results.reports.report import render
from results.reports.report_json import content
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver, without_engine

GOLDEN = Path(__file__).with_name("golden")
PLAN = CampaignPlan(
    name="endpoint",
    control=Arm("default"),
    candidate=Arm("columns-32", (("projection", "columns-32"),)),
    fixtures=(Fixture("release1k", "{}", (20260925,)), Fixture("mbpp28", "{}", (0,))),
    server=ServerPlan("dflash2", model="embedded"),
    startups=3,
    pairs=5,
    warmups=1,
)
TRAJECTORIES = {"release1k": Trajectory(283, 94, 189), "mbpp28": Trajectory(297, 65, 232)}


def script(step, attempt, *, factor=0.97, **more):
    key = step.key
    wobble = 1 + 0.0004 * ((7 * key.startup + 3 * key.repeat + len(key.fixture)) % 5 - 2)
    level = {"release1k": 32.9, "mbpp28": 29.8}.get(key.fixture, 16.0)
    ms = level * wobble * (factor if step.role is Role.CANDIDATE else 1)
    trajectory = TRAJECTORIES.get(key.fixture, Trajectory(30, 10, 19))
    return Script(trajectory, ms, 480.0 + key.repeat, token_seed=len(key.fixture), growth=0.02, **more)


def campaign(path, plan=PLAN, scripts=script, **options):
    with Store.open(path) as store:
        return Driver(store, plan, scripts, **options).run()


def summary(path):
    with Reader.open(path) as reader:
        return summarise(reader, reader.resolve("last"))


def report(path, format="md", **options):
    with Reader.open(path) as reader:
        return render(reader, reader.resolve("last"), format, **options)


@pytest.fixture
def path(ram):
    return ram / "store.sqlite"


@pytest.fixture(scope="module")
def eventful(module_ram):
    """A startup that died in a block and was repeated, a cache hit, a stalled request, a divergence, an exclusion."""

    def scripts(step, attempt):
        made = script(step, attempt)
        key, role = step.key, step.role
        if (key.startup, key.fixture, key.repeat, role) == (1, "mbpp28", 2, Role.CANDIDATE):
            return replace(made, reasons=(Reason.CACHE_HIT,), admissible=False, cached_tokens=64)
        if (key.startup, key.fixture, key.repeat, role) == (2, "release1k", 3, Role.CANDIDATE):
            return replace(made, token_seed=99)
        return made

    path = module_ram / "eventful.sqlite"
    with Store.open(path) as store:
        driver = Driver(store, PLAN, scripts, samples=True)
        made = driver.campaign()
        store.begin(made)
        store.status(made.campaign_id, CampaignStatus.RUNNING)
        first, second = blocks(PLAN, 0)
        driver.start(made.campaign_id, 0, 1)
        driver.block(made.campaign_id, first, 1)
        driver.block(made.campaign_id, second, 1, stop_after=6)
        died = "the server died during a request: exit code -9"
        store.failure(Failure(made.campaign_id, CREATED, Reason.SERVER_DIED, died, 0, 1, second.keys[1]))
        store.startup_end(
            made.campaign_id, 0, 1, StartupEnd(StartupStatus.FAILED, CREATED, Reason.SERVER_DIED, "exit code -9")
        )
        driver.life(made.campaign_id, 0, 2, (second,))
        for startup in (1, 2):
            driver.life(made.campaign_id, startup, 1, blocks(PLAN, startup))
        key = blocks(PLAN, 2)[1].keys[0]
        store.failure(Failure(made.campaign_id, CREATED, Reason.THROTTLE, "power cap for 40 s", 2, 1, key))
        store.status(made.campaign_id, CampaignStatus.COMPLETE)
    return path


def test_every_figure_stands_in_the_json(eventful, monkeypatch):
    """A script must not have to read Markdown for a figure that somebody computed."""
    made, read = summary(eventful), defaultdict(set)

    def noted(figures, name):
        read[type(figures)].add(name)
        return object.__getattribute__(figures, name)

    for kind in (Summary, Group, ArmLevels):
        monkeypatch.setattr(kind, "__getattribute__", noted)
    content(made)
    missing = {kind: {field.name for field in fields(kind)} - read[kind] for kind in (Summary, Group, ArmLevels)}
    assert missing == {Summary: set(), Group: {"fixture"}, ArmLevels: set()}  # its id names the fixture


def test_a_drafter_against_none_is_judged_by_decode_time_and_says_so(path):
    """Rounds of 13 ms that emit three tokens each, against rounds of 10 ms that emit one."""

    def scripts(step, attempt):
        made = script(step, attempt, factor=1.3)
        tokens = made.trajectory.tokens
        alone = Trajectory(tokens, tokens - 1, 0)
        return replace(made, trajectory=alone) if step.role is Role.CONTROL else made

    plan = replace(PLAN, required_exactness=3)
    campaign(path, plan, scripts)
    found = summary(path)
    assert found.verdict is Verdict.FASTER and found.exit_code() == 0
    for group in found.groups:
        rounds = TRAJECTORIES[group.fixture]
        assert math.exp(group.judgement.effect) == pytest.approx(1.3 * rounds.rounds / (rounds.tokens - 1), rel=1e-3)
        assert group.level_ratio == pytest.approx(1.3, rel=1e-3) and group.n_unequal_rounds == 15
    text = report(path)
    assert "The effect is that of the time per decoded token: the arms took different numbers of rounds." in text
    assert "release1k: 15 pairs whose arms took different numbers of rounds" in text
    assert main(["verify", "last", "--store", str(path)]) == 0


@pytest.mark.parametrize("format", ["md", "json", "csv"])
def test_golden(eventful, format, request):
    found = report(eventful, format)
    golden = GOLDEN / f"eventful.{format}"
    if request.config.getoption("--golden", default=False):
        golden.write_text(found)
    assert found == golden.read_text()


def test_nothing_that_happened_is_hidden(eventful):
    found = summary(eventful)
    assert (found.n_planned, found.n_pairs, found.n_exact_pairs) == (30, 30, 29)
    assert found.n_excluded == 3 and found.n_admissible_pairs == 27
    assert found.exclusions == {"cache-hit": 1, "partner-excluded": 1, "below-required-exactness": 1, "throttle": 1}
    assert found.n_superseded == 6
    markdown = report(eventful)
    for fact in (
        "| 1 | 1 | failed |",
        "server-died exit code -9",
        "3 of 30 pairs, both arms of each",
        "startup 1, mbpp28, seed 0, attempt 1: 6 requests",
        "startup 3, release1k, seed 20260925, repeat 3: text from character 8: nothing / '9'; ids from ",
        "server-died: the server died during a request: exit code -9",
        "throttle: power cap for 40 s",
        "candidate, release1k, seed 20260925: startup 3 differs from startup 1, at token 0: 21077 became 47908",
        "K = 5 is odd",
        "fewer than three startups of comparable A/A campaigns",
        "imbalance",
    ):
        assert fact in markdown, fact
    lives = json.loads(report(eventful, "json"))["startups"]
    assert [(life["startup_index"], life["attempt"], life["status"]) for life in lives] == [
        (0, 1, "failed"),
        (0, 2, "complete"),
        (1, 1, "complete"),
        (2, 1, "complete"),
    ]


def test_the_report_is_recomputed_from_rows(path):
    campaign(path)
    rows = sqlite3.connect(path).execute(
        "SELECT fixture, startup, repeat, role, engine_decode_ns * 1e-6 / n_rounds FROM request WHERE phase = 'measure'"
    )
    ms = {(fixture, startup, repeat, role): value for fixture, startup, repeat, role, value in rows}
    for group in summary(path).groups:
        for role in Role:
            medians = [np.median([ms[group.id, s, k, role.value] for k in range(5)]) for s in range(3)]
            assert group.arm(role).level_ms == pytest.approx(np.median(medians), rel=1e-12)
        effects = [
            np.median([math.log(ms[group.id, s, k, "candidate"] / ms[group.id, s, k, "control"]) for k in range(5)])
            for s in range(3)
        ]
        assert group.judgement.effect == pytest.approx(np.median(effects), rel=1e-9)


# -- exit codes ------------------------------------------------------------------------------------------------------


def quick(path, factor, *, startups=3, **more):
    plan = replace(PLAN, fixtures=(Fixture("short", "{}", (0,)),), startups=startups, pairs=4)
    return campaign(path, plan, lambda step, attempt: script(step, attempt, factor=factor, **more))


@pytest.mark.parametrize(
    ("options", "verdict", "code", "strict"),
    [
        ({"factor": 0.97}, "faster", 0, 0),
        ({"factor": 1.03}, "slower", 2, 2),
        ({"factor": 1.0}, "equivalent", 0, 0),
        ({"factor": 0.97, "startups": 1}, "screen", 0, 3),
        ({"factor": 0.97, "admissible": False, "reasons": (Reason.CACHE_HIT,)}, "inadmissible", 4, 4),
    ],
)
def test_exit_codes(path, capsys, options, verdict, code, strict):
    quick(path, **options)
    assert summary(path).verdict.value == verdict
    assert main(["report", "last", "--store", str(path)]) == code
    assert main(["report", "last", "--store", str(path), "--strict"]) == strict
    assert f"**{'+-=~!'[['faster', 'slower', 'equivalent', 'screen', 'inadmissible'].index(verdict)]} {verdict}**" in (
        capsys.readouterr().out
    )


def test_an_inexact_pair_ends_with_2_however_fast(path):
    plan = replace(PLAN, fixtures=(Fixture("short", "{}", (0,)),), pairs=4)

    def odd(step, attempt):
        differs = (step.key.startup, step.key.repeat, step.role) == (0, 0, Role.CANDIDATE)
        return replace(script(step, attempt), token_seed=7 if differs else 1)

    campaign(path, plan, odd)
    found = summary(path)
    assert found.verdict.value == "faster" and found.exit_code() is Exit.SLOWER


def test_a_failed_pair_is_missing_and_no_regression(path):
    """A request without an answer says nothing of its arm: what is left decides, and the report says what is not."""
    plan = replace(PLAN, fixtures=(Fixture("short", "{}", (0,)),), pairs=4)

    def fails(step, attempt):
        made = script(step, attempt)
        failed = (step.key.startup, step.key.repeat, step.role) == (0, 0, Role.CANDIDATE)
        return replace(made, reasons=(Reason.HTTP_ERROR,), admissible=False) if failed else made

    campaign(path, plan, fails)
    found = summary(path)
    assert (found.n_exact_pairs, found.n_failed_pairs, found.n_inexact_pairs, found.n_excluded) == (11, 1, 0, 1)
    assert found.verdict.value == "faster" and found.exit_code() is Exit.COMPLETE
    whose = "0 of the control's requests and 1 of the candidate's requests failed: what is told is told of the others"
    assert whose in headline(found).warnings
    assert "1 of them failed: a request got no answer" in report(path)
    assert "no mismatch on 1 prompt bounds" in report(path)


def test_a_campaign_without_pairs_has_measured_nothing(path):
    with Store.open(path) as store:
        store.begin(Driver(store, PLAN, script).campaign())
    found = summary(path)
    assert found.verdict.value == "nothing-measured" and found.exit_code() is Exit.NOTHING_ADMISSIBLE
    assert found.status is CampaignStatus.INTERRUPTED
    assert "nothing-measured" in report(path) and json.loads(report(path, "json"))["n_pairs"] == 0
    assert "<svg" not in report(path, "html") and report(path, "csv")


def test_one_slow_fixture_is_not_averaged_away(path):
    plan = replace(PLAN, pairs=4)
    factors = {"release1k": 0.90, "mbpp28": 1.02}
    campaign(path, plan, lambda step, attempt: script(step, attempt, factor=factors[step.key.fixture]))
    found = summary(path)
    assert [group.judgement.verdict.value for group in found.groups] == ["faster", "slower"]
    assert found.verdict.value == "slower" and found.exit_code() is Exit.SLOWER


# -- sources and scopes ----------------------------------------------------------------------------------------------


def silent_campaign(path, silent):
    """Requests for which `silent` holds come from a server that reports no rounds of its own."""
    with Store.open(path) as store:
        keep = store.request
        store.request = lambda request: keep(without_engine(request) if silent(request) else request)
        return Driver(store, replace(PLAN, required_exactness=3), script).run()


def test_without_engine_times_everything_is_told_by_the_client(path):
    silent_campaign(path, lambda request: True)
    markdown, found = report(path), json.loads(report(path, "json"))
    assert "complete round ms (request average, client clock" in markdown and "engine clock" not in markdown
    assert found["round_source"] == "sse-chunk"
    assert "request_average_client_ms" in found["fixtures"][0]["candidate"]
    assert "request_average_engine_ms" not in found["fixtures"][0]["candidate"]
    assert any("engine times were not reported" in note for note in found["missing"])


def test_chunks_that_are_no_rounds_give_no_round_quantiles(path):
    def merged(request):
        return replace(without_engine(request), reasons=(Reason.CLIENT_ROUNDS_UNUSABLE,))

    with Store.open(path) as store:
        keep = store.request
        store.request = lambda request: keep(merged(request))
        Driver(store, replace(PLAN, required_exactness=3), script).run()
    found = json.loads(report(path, "json"))["fixtures"][0]["candidate"]
    assert found["round_sse_chunk_quantiles_ms"]["p50"]["value"] is None
    assert found["request_average_client_ms"] is not None


def test_an_answer_that_came_at_once_has_no_request_average(path):
    def at_once(request):
        return replace(without_engine(request), last_content_ns=request.first_content_ns)

    with Store.open(path) as store:
        keep = store.request
        store.request = lambda request: keep(at_once(request) if request.position == 4 else without_engine(request))
        Driver(store, replace(PLAN, required_exactness=3), script).run()
    assert "request average, client clock" in report(path)


def test_one_silent_request_moves_the_whole_campaign_to_one_clock(path):
    silent_campaign(path, lambda request: request.position == 4 and request.startup == 1)
    found = summary(path)
    assert not found.source.engine_averages and not found.source.engine_rounds
    assert all(group.judgement.n_pairs for group in found.groups)
    assert "engine clock" not in report(path)


def test_refused_quantiles_are_printed_only_when_asked_and_marked_with_n(path):
    campaign(path)
    [line] = [line for line in report(path).splitlines() if line.startswith("| candidate round p50")]
    assert line.split("|")[2].strip().endswith("/ –")  # 94 rounds give no p99
    [line] = [
        line for line in report(path, all_quantiles=True).splitlines() if line.startswith("| candidate round p50")
    ]
    assert "(refused, n=94)" in line
    quantile = json.loads(report(path, "json"))["fixtures"][0]["candidate"]["round_engine_step_quantiles_ms"]["p99"]
    assert quantile == {"value": None, "n": 94, "confidence": "refused"}


def test_a_delta_below_the_resolution_is_called_so(path):
    blunt = Calibration(2000, 110_000, 400_000, 800, 20_000, 1_500_000)  # 1.5 ms: sees nothing of 1 ms
    campaign(path, replace(PLAN, pairs=4), script, calibration=blunt)
    markdown = report(path)
    assert "(below-resolution)" in markdown
    assert "Resolution of a request average: 1.500000 ms" in markdown


def test_sequential_lives_are_said_to_be_no_pairs_in_time(path):
    campaign(path, replace(PLAN, startup_mode=StartupMode.SEQUENTIAL))
    assert "pairs are matched by index only" in report(path)


def test_weights_that_a_server_made_are_told_and_must_agree(path):
    campaign(path)

    def made(digest, startup):
        told = json.dumps({"seed": 1, "format": "nvfp4", "sha256": digest})
        with sqlite3.connect(path) as connection:
            query = "UPDATE startup SET identity = json_set(identity, '$.made_weights', json(?)) WHERE startup >= ?"
            connection.execute(query, (told, startup))
        connection.close()

    made("aa", 0)
    text = report(path)
    assert "random weights, seed 1, nvfp4: made `aa`: startups 1, 2, 3" in text
    assert "different random weights" not in text
    made("bb", 2)
    text = report(path)
    assert "made `aa`: startups 1, 2" in text and "made `bb`: startups 3" in text and "different random weights" in text


def test_markdown_tables_are_well_formed(path):
    campaign(path, replace(PLAN, candidate=Arm("a|b")))
    for block in report(path).split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1, block


@pytest.mark.parametrize("ms", [0.0, -5.0])
def test_pairs_without_a_time_are_counted_once_and_for_one_reason(path, ms):
    """An engine that tells times of zero or less: the verdict, the table, the head and the exit code agree."""
    campaign(path, scripts=lambda step, attempt: replace(script(step, attempt), round_ms=ms, growth=0.0))
    found = summary(path)
    assert (found.n_pairs, found.n_admissible_pairs, found.exclusions) == (30, 0, {"no-time": 30})
    assert found.exit_code() == Exit.NOTHING_ADMISSIBLE == 4
    text = report(path)
    assert "none of 30 pairs is admissible" in text and "| admissible pairs | 0/15 | 0/15 |" in text
    assert "0 admissible of 30 pairs" in text and "15/15 |" not in text.split("admissible pairs")[1].splitlines()[0]
    told = json.loads(report(path, "json"))
    assert told["n_admissible_pairs"] == 0 and [group["n_admissible_pairs"] for group in told["fixtures"]] == [0, 0]


def test_energy_stands_beside_every_speed_and_is_the_same_in_the_history(path):
    """The candidate draws 20 % more for 3 % less time."""
    watts = {Role.CONTROL: 500.0, Role.CANDIDATE: 600.0}
    campaign(path, scripts=lambda step, attempt: replace(script(step, attempt), watts=watts[step.role]))
    found = json.loads(report(path, "json"))
    with Reader.open(path) as reader:
        rows = {row["fixture"]: row for row in history(reader).to_dict("records")}
        requests = frames.measured(frames.requests(reader, reader.resolve("last")))
    for group in found["fixtures"]:
        for role in Role:
            arm = group[role.value]
            of_arm = requests[(requests.role == role.value) & (requests.fixture == group["fixture_id"])]
            joules = watts[role] * (of_arm.end_ns - of_arm.send_ns).sum() * 1e-9
            assert arm["energy_per_request_j"] == pytest.approx(joules / len(of_arm), rel=1e-6)
            assert arm["energy_per_token_j"] == pytest.approx(joules / of_arm.completion_tokens.sum(), rel=1e-6)
            assert rows[group["fixture_id"]][f"{role.value}_j_per_token"] == pytest.approx(arm["energy_per_token_j"])
    text = report(path)
    assert "| energy per token J | " in text and "energy: counters of NVML of all leased devices" in text
    assert "energy_per_token_j" in report(path, "csv") or "energy per token J" in report(path, "csv")


def test_a_request_whose_energy_is_unknown_leaves_no_figure(path):
    def scripts(step, attempt):
        unknown = step.key == PairKey(0, "mbpp28", 0, 1) and step.role is Role.CONTROL
        return replace(script(step, attempt), watts=None if unknown else 500.0)

    campaign(path, scripts=scripts)
    levels = {(g.id, role): g.arm(role).energy_per_token_j for g in summary(path).groups for role in Role}
    assert [key for key, joules in levels.items() if joules is None] == [("mbpp28", Role.CONTROL)]
    assert "unknown for 1 of 60 requests" in report(path)


def test_a_cpu_has_no_energy_and_the_report_says_so(path):
    campaign(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE startup SET device_uuids = '[\"cpu-0123\"]'")
    connection.close()
    assert "energy: none, the device is this host's CPU" in report(path) and "energy per token" not in report(path)


def test_output_goes_to_a_file_or_says_why_not(path, tmp_path, capsys):
    campaign(path)
    target = tmp_path / "report.json"
    words = ["report", "last", "--store", str(path), "--format", "json", "--output"]
    assert main([*words, str(target)]) == 0
    assert json.loads(target.read_text())["schema_version"] == 1
    assert main([*words, str(tmp_path / "no" / "where.json")]) == 1
    assert main(["report", "last", "--store", str(path), "--format", "pdf"]) == 1
    assert "--format pdf: there are md, json, jsonl, html, csv, github, junit" in capsys.readouterr().err
