"""Published figures come out of raw records: rounds follow the published trajectories, the report prints the digits.

Sources: the DFlash2 team's campaigns of 2026 (TP4 and TP2 on V100). Where a published figure aggregates otherwise than
its inputs allow, the difference is recorded here instead of being fitted.
"""

import json
import re
import sqlite3
from dataclasses import dataclass

import pytest

from campaigns.plan import Arm, CampaignPlan, Fixture, Order, PairKey, Role, ServerPlan
from campaigns.records import Calibration
from campaigns.remarks import Score
from results.reading.summary import summarise
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

BLUNT = Calibration(2000, 110_000, 400_000, 800, 20_000, 6_000)  # a client that cannot see 0.005 ms
KEEN = Calibration(2000, 110_000, 400_000, 100, 5_000, 1)  # six decimals of a ms were published


@dataclass(frozen=True)
class Point:
    """One fixture: its trajectory and, per startup, (control, candidate) in ms."""

    trajectory: Trajectory
    startups: tuple[tuple[float, float], ...]
    seeds: tuple[int, ...] = (0,)


def measure(ram, points, *, pairs=5, calibration=KEEN, order=Order.ABBA):
    """A store with one campaign in which every request of a startup takes exactly what is published."""
    plan = CampaignPlan(
        name="published",
        control=Arm("control"),
        candidate=Arm("candidate"),
        fixtures=tuple(Fixture(name, "{}", point.seeds) for name, point in points.items()),
        server=ServerPlan("null"),
        startups=len(next(iter(points.values())).startups),
        pairs=pairs,
        warmups=1,
        order=order,
    )

    def script(step, attempt):
        point = points[step.key.fixture]
        control, candidate = point.startups[step.key.startup]
        ms = control if step.role is Role.CONTROL else candidate
        return Script(point.trajectory, ms, client_delay_ns=0)

    path = ram / "store.sqlite"
    with Store.open(path) as store:
        Driver(store, plan, script, calibration=calibration).run()
    return path


def report(path, format="md"):
    with Reader.open(path) as reader:
        return render(reader, reader.resolve("last"), format)


def summary(path):
    with Reader.open(path) as reader:
        return summarise(reader, reader.resolve("last"))


def row(markdown, name):
    """The cells of the table row that begins with `name`."""
    [line] = [line for line in markdown.splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


TRAJECTORIES = {
    "tp4-release1k": (Trajectory(272, 91, 181), "1.989011", "2.989011", -1),
    "tp4-mbpp28": (Trajectory(634, 130, 504), "3.876923", "4.876923", -1),
    "tp2-release1k": (Trajectory(283, 94, 189), "2.010638", "3.010638", -1),
    "tp2-mbpp28": (Trajectory(297, 65, 232), "3.569231", "4.569231", -1),
    "boundary-1": (Trajectory(256, 50, 201), "4.020000", "5.120000", 4),
    "boundary-2": (Trajectory(256, 55, 196), "3.563636", "4.654545", 4),
    "boundary-3": (Trajectory(256, 44, 208), "4.727273", "5.818182", 3),
    "curve-1k": (Trajectory(256, 54, 204), "3.777778", "4.740741", -3),
    "curve-32k": (Trajectory(256, 66, 191), "2.893939", "3.878788", -2),
    "curve-64k": (Trajectory(256, 65, 197), "3.030769", "3.938462", -7),
    "curve-128k": (Trajectory(256, 65, 194), "2.984615", "3.938462", -4),
}


def test_accepted_and_emitted_per_round_of_every_trajectory(ram):
    path = measure(ram, {name: Point(t[0], ((16.0, 15.9),)) for name, t in TRAJECTORIES.items()}, pairs=1)
    markdown = report(path)
    for cells, figure in (("accepted drafts per round", 1), ("emitted tokens per round", 2)):
        printed = [cell.split(" / ")[1] for cell in row(markdown, cells)]
        assert printed == [t[figure] for t in TRAJECTORIES.values()]
    residuals = [group.candidate.residuals for group in summary(path).groups]
    assert residuals == [(t[3],) for t in TRAJECTORIES.values()]


def test_tp4_speed_startup(ram):
    path = measure(
        ram,
        {
            "release1k": Point(Trajectory(272, 91, 181), ((16.571456, 16.339483),)),
            "mbpp28": Point(Trajectory(634, 130, 504), ((16.144814, 15.907431),)),
        },
    )
    markdown = report(path)
    assert row(markdown, "complete round ms") == ["16.571456 / 16.339483", "16.144814 / 15.907431"]
    assert [cell.split(" / ")[1] for cell in row(markdown, "decode tok/s")] == ["182.259", "306.098"]
    assert "~ screen" in row(markdown, "verdict")[0]  # one startup, whatever it shows


def test_tp2_endpoint(ram):
    release = ((32.934885, 31.884546), (32.9, 31.8), (33.0, 31.9))
    mbpp = ((29.830193, 29.279787), (29.8, 29.2), (29.9, 29.3))
    path = measure(
        ram,
        {
            "release1k": Point(Trajectory(283, 94, 189), release),
            "mbpp28": Point(Trajectory(297, 65, 232), mbpp),
        },
    )
    markdown = report(path)
    assert row(markdown, "complete round ms") == ["32.934885 / 31.884546", "29.830193 / 29.279787"]
    decode = row(markdown, "decode tok/s")
    assert decode[0] == "91.089 / 94.089"
    # Known difference: 155.623 was published for the MBPP28 candidate, which its own round time does not give.
    assert decode[1] == "152.659 / 155.529"
    assert row(markdown, "exact pairs") == ["15/15 (15 repeats of one prompt)"] * 2
    assert "K = 5 is odd" in markdown


@pytest.mark.parametrize(
    ("startups", "medians"),
    [
        (((44.808, 35.823), (44.897, 35.797), (44.872, 35.930)), "44.872000 / 35.823000"),
        (((35.051, 32.694), (34.953, 32.678), (35.318, 32.861)), "35.051000 / 32.694000"),
        (
            ((34.496555, 34.132393), (34.429623, 34.174315), (34.576248, 34.201821)),
            "34.496555 / 34.174315",
        ),
        (
            ((31.288474, 30.914687), (31.708845, 31.277764), (31.530112, 31.126483)),
            "31.530112 / 31.126483",
        ),
    ],
)
def test_medians_of_the_listed_startup_medians(ram, startups, medians):
    path = measure(ram, {"fixture": Point(Trajectory(283, 94, 189), startups)}, pairs=2)
    markdown = report(path)
    assert row(markdown, "complete round ms") == [medians]
    listed = [line for line in markdown.splitlines() if line.startswith("| fixture |")][1:]
    for i, (control, candidate) in enumerate(startups):
        assert f"| {i + 1} | {control:.6f} / {candidate:.6f} |" in listed[i]
    assert f"| median of startups | {medians} |" in listed[3]


CURVE = {
    "context-1024": Point(Trajectory(256, 54, 204), ((16.008, 15.982), (16.01, 15.98), (16.0, 15.99))),
    # the third startup is 0.005 ms slower, and it is included
    "context-32768": Point(Trajectory(256, 66, 191), ((18.222, 18.185), (18.230, 18.180), (18.218, 18.223))),
    "context-65536": Point(Trajectory(256, 65, 197), ((20.084, 20.040), (20.09, 20.03), (20.08, 20.05))),
    "context-131072": Point(Trajectory(256, 65, 194), ((23.786, 23.687), (23.78, 23.69), (23.79, 23.68))),
    "context-261888": Point(Trajectory(256, 55, 196), ((37.547, 37.298), (37.54, 37.29), (37.55, 37.30))),
}


def test_long_context_curve(ram):
    path = measure(ram, CURVE, calibration=BLUNT)
    markdown = report(path)
    levels = ["16.008 / 15.982", "18.222 / 18.185", "20.084 / 20.040", "23.786 / 23.687", "37.547 / 37.298"]
    lengths = [name.removeprefix("context-") for name in CURVE]
    assert [" / ".join(row(markdown, f"{length} ")[:2]) for length in lengths] == levels
    growths = [row(markdown, f"{length} ")[7] for length in lengths[2:]]
    assert [growth.split()[0] for growth in growths] == ["+1.855", "+3.647", "+13.611"]
    per_1024 = [float(growth.split("(")[1].split()[0]) for growth in growths]
    assert per_1024 == pytest.approx([0.057968, 0.056977, 0.106546], abs=1e-5)  # from levels of three decimals
    # Medians of the listed startups' ratios: 23.687 / 23.786, 37.30 / 37.55.
    effects = {length: row(markdown, f"{length} ")[2:4] for length in lengths}
    assert effects["131072"][0] == "-0.42 %" and effects["261888"][0] == "-0.67 %"
    assert re.fullmatch(r"-0\.5\d+ … -0\.3\d+ %", effects["131072"][1])  # t over three startups
    decode = {length: float(row(markdown, f"{length} ")[4].split(" / ")[1]) for length in lengths}
    published = {"1024": 295.464, "32768": 212.458, "261888": 124.306}
    for length, rate in published.items():
        assert decode[length] == pytest.approx(rate, rel=5e-5), length
    # Known differences: 196.015 (64K) and 165.712 (128K) were published; the round times give these.
    assert (decode["65536"], decode["131072"]) == pytest.approx((195.762, 165.622), abs=1e-3)


def told(path, moved, name="NVIDIA H200", startup=0):
    """What the servers say that a round moves, from `startup` on."""
    with sqlite3.connect(path) as connection:
        parts = "'$.round_bytes', json(?), '$.devices', json(?)"
        query = f"UPDATE startup SET identity = json_set(identity, {parts}) WHERE startup >= ?"
        connection.execute(query, (json.dumps(moved), json.dumps([{"rank": 0, "name": name}]), startup))
    connection.close()
    return report(path)


def test_a_curve_has_the_limit_of_the_bandwidth_where_servers_tell_what_a_round_moves(ram):
    path = measure(ram, CURVE, pairs=1, calibration=BLUNT)
    assert "limit" not in report(path).split("## Context")[1].split("##")[0]
    markdown = told(path, {"fixed": 24_000_000_000, "per_token": 32768})
    # (24e9 + 32768 n) bytes / 4.8e12 bytes a second.
    expected = {"1024": "5.007", "131072": "5.895", "261888": "6.788"}
    assert {length: row(markdown, f"{length} ")[6] for length in expected} == expected
    assert "24.00 GB a round and 32768 bytes a token" in markdown and "4.80 TB/s of the NVIDIA H200" in markdown
    drawn = report(path, "html")
    assert "limit, NVIDIA H200" in drawn and "Paired effects over the context" in drawn
    assert "limit ms" not in told(path, {"fixed": 24_000_000_000, "per_token": 32768}, "Some other device")
    assert "limit ms" not in told(path, {"fixed": 1, "per_token": 1}, startup=2)  # servers differ


def test_a_pair_slower_by_less_than_the_client_can_see_is_listed_as_such(ram):
    path = measure(ram, CURVE, calibration=BLUNT)
    [third] = [line for line in report(path).splitlines() if line.startswith("| context-32768 | 3 |")]
    assert "18.218 / 18.223 | +0.03 % (below-resolution) |" in third
    [group] = [group for group in summary(path).groups if group.id == "context-32768"]
    assert len(group.judgement.startup_medians) == 3 and group.n_admissible_pairs == 15


def test_tail_graphs_by_seed(ram):
    points = {
        "context-1024": Point(Trajectory(256, 54, 204), ((15.823, 15.824),) * 3),
        "context-131072": Point(Trajectory(256, 65, 194), ((22.573, 22.577),) * 3),
        "context-261888": Point(Trajectory(256, 55, 196), ((35.464, 31.396),) * 3, seeds=(0, 2)),
    }
    path = measure(ram, points, pairs=4)
    found = summary(path)
    assert found.n_pairs == 48 == found.n_exact_pairs
    markdown = report(path)
    assert row(markdown, "level ratio")[2:] == ["-11.47 %"] * 2
    assert row(markdown, "metric")[2:] == ["context-261888 seed 0", "context-261888 seed 2"]


# -- the corpus -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dataset:
    cases: int
    control_tps: float
    candidate_tps: float
    accepted_share: str
    accepted: float
    emitted: float
    drafted_per_round: float = 7.0


DATASETS = {
    "gsm8k": Dataset(32, 309.791, 316.749, "57.9715 %", 4.058008, 5.058848),
    "math500": Dataset(32, 243.960, 246.660, "48.2514 %", 3.377595, 4.377883),
    "humaneval": Dataset(32, 225.650, 229.195, "42.8062 %", 2.996437, 3.996309),
    "mbpp": Dataset(32, 231.882, 234.678, "43.3363 %", 3.033541, 4.033895),
    "livecodebench": Dataset(16, 175.055, 177.259, "32.9424 %", 2.305965, 3.305909),
    "structured": Dataset(4, 214.813, 217.170, "42.0974 %", 2.824121, 3.824121, 6.7085),
}


def totals(dataset):
    """(rounds, accepted, tokens): the smallest counts that give the published ratios to their digits."""
    for rounds in range(200 * dataset.cases, 200_000):
        accepted, tokens = round(dataset.accepted * rounds), round(dataset.emitted * rounds)
        if abs(accepted / rounds - dataset.accepted) < 4e-7 and abs(tokens / rounds - dataset.emitted) < 4e-7:
            return rounds, accepted, tokens
    raise AssertionError(dataset)


def trajectories(dataset):
    def split(total):
        return [total * (i + 1) // dataset.cases - total * i // dataset.cases for i in range(dataset.cases)]

    rounds, accepted, tokens = totals(dataset)
    drafted = split(round(dataset.drafted_per_round * rounds))
    return [Trajectory(*each) for each in zip(split(tokens), split(rounds), split(accepted), drafted, strict=True)]


@pytest.fixture(scope="module")
def corpus(module_ram):
    answers = {f"{name}/{i}": t for name, d in DATASETS.items() for i, t in enumerate(trajectories(d))}
    plan = CampaignPlan(
        name="corpus148",
        control=Arm("bv8"),
        candidate=Arm("bv2"),
        fixtures=tuple(Fixture(case, "{}", (0,), dataset=case.split("/")[0]) for case in answers),
        server=ServerPlan("null"),
        corpus="6756091e",
        startups=1,
        pairs=1,
        warmups=1,
    )
    total = {name: trajectories(d) for name, d in DATASETS.items()}

    def round_ms(name, tokens_per_s):
        decoded = sum(t.tokens - 1 for t in total[name])
        return 1e3 * decoded / tokens_per_s / sum(t.rounds for t in total[name])

    def script(step, attempt):
        name = step.key.fixture.split("/")[0]
        tps = DATASETS[name].control_tps if step.role is Role.CONTROL else DATASETS[name].candidate_tps
        capped = step.key.fixture == "humaneval/10" or step.key.fixture in {f"livecodebench/{i}" for i in range(5)}
        reason = "length" if capped else "stop"
        return Script(answers[step.key.fixture], round_ms(name, tps), client_delay_ns=0, finish_reason=reason)

    path = module_ram / "store.sqlite"
    with Store.open(path) as store:
        campaign_id = Driver(store, plan, script).run()
        store.scores(score for role in Role for score in outcomes(campaign_id, role))
    return path


SCORES = {  # scorer: (dataset, passed, capped, ineligible, cases)
    "gsm8k": ("gsm8k", 30, 0, 0, 32),
    "math500": ("math500", 31, 0, 0, 32),
    "humaneval": ("humaneval", 31, 1, 0, 32),
    "humaneval-plus": ("humaneval", 30, 1, 0, 32),
    "mbpp": ("mbpp", 32, 0, 0, 32),
    "mbpp-plus": ("mbpp", 29, 0, 1, 32),
    "livecodebench": ("livecodebench", 11, 5, 0, 16),
    "structured": ("structured", 4, 0, 0, 4),
}


def outcomes(campaign_id, role):
    for scorer, (dataset, passed, capped, ineligible, cases) in SCORES.items():
        words = ["passed"] * passed + ["capped"] * capped + ["ineligible"] * ineligible
        words += ["failed"] * (cases - len(words))
        for i, outcome in enumerate(words):
            key = PairKey(0, f"{dataset}/{i}", 0, 0)
            yield Score(campaign_id, key, role, "2026-01-02T00:00:00+00:00", scorer, "1", "{}", outcome, "[]")


def test_dataset_table(corpus):
    markdown = report(corpus).split("## Corpus")[1].split("##")[0]
    for name, dataset in DATASETS.items():
        cases, exact, tps, share, per_round, proposed, _ = row(markdown, name)
        assert cases == str(dataset.cases) and exact.startswith(
            f"{dataset.cases}/{dataset.cases} ({dataset.cases} prompts: mismatch rate"
        )
        assert tps == f"{dataset.control_tps:.3f} / {dataset.candidate_tps:.3f}"
        assert share == dataset.accepted_share
        assert per_round == f"{dataset.accepted:.6f} / {dataset.emitted:.6f}"
        assert proposed == f"{dataset.drafted_per_round:.4f}"  # 6.7085 where a grammar allowed fewer than seven


def test_accepted_is_not_emitted_minus_one(corpus):
    by_name = {group.id: group.candidate for group in summary(corpus).groups}
    assert by_name["gsm8k"].emitted_tokens_per_round - by_name["gsm8k"].accepted_drafts_per_round > 1.0008
    assert by_name["humaneval"].emitted_tokens_per_round - by_name["humaneval"].accepted_drafts_per_round < 0.9999


def test_score_table_and_capped_answers(corpus):
    markdown = report(corpus).split("## Scores")[1].split("##")[0]
    expected = {
        "gsm8k": "30/32",
        "math500": "31/32",
        "humaneval ": "31/32 (1 capped)",
        "humaneval-plus": "30/32 (1 capped)",
        "mbpp ": "32/32",
        "mbpp-plus": "29/31 (1 ineligible)",
        "livecodebench": "11/16 (5 capped)",
        "structured": "4/4",
    }
    assert {name: row(markdown, name) for name in expected} == {
        name: [text, text, "0 / 0", "1.0000"] for name, text in expected.items()
    }
    assert sum(group.candidate.n_capped for group in summary(corpus).groups) == 6


def test_json_carries_the_same_figures(corpus):
    found = json.loads(report(corpus, "json"))
    assert found["schema_version"] == 1 and found["n_pairs"] == 148 == found["n_exact_pairs"]
    assert found["mismatch_bound"] == pytest.approx(0.020, abs=5e-4)
    gsm8k = next(f for f in found["fixtures"] if f["fixture_id"] == "gsm8k")
    assert gsm8k["candidate"]["decode_tokens_per_s_engine"] == pytest.approx(316.749, abs=5e-4)
    first = {name: found["scores"][0][name] for name in ("scorer", "control", "candidate", "McNemar p")}
    assert first == {"scorer": "gsm8k", "control": "30/32", "candidate": "30/32", "McNemar p": "1.0000"}
