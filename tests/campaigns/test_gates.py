"""The ledger of a candidate: what counts as evidence, and what never does."""

import json
from pathlib import Path

import pytest

from campaigns.judging.gates import KINDS, Evidence, Gate, GateStatus, Result, ledger
from campaigns.judging.verdicts import Verdict
from campaigns.records import CampaignStatus
from campaigns.remarks import Decision, Probe

NEW, OLD = {"runtime_sha256": "new"}, {"runtime_sha256": "old"}


def probe(status, *, gate="contract", library="lib", utc="2026-01-01", **line):
    return Probe(utc, gate, "op/schedule", status, library, json.dumps(line))


def result(campaign_id="c1", *, startups=3, pairs=15, exact=15, verdict=Verdict.FASTER, family=NEW, **more):
    given = {"n_cases": 0, "n_answers": 2 * pairs, "n_capped": 0, "control_is_plain": False, "curve": ()} | more
    status, planned = given.pop("status", CampaignStatus.COMPLETE), given.pop("planned", pairs)
    return Result(campaign_id, status, startups, planned, pairs, exact, verdict, family=family, **given)


def one(gate, *, library="lib", probes=(), results=(), decisions=()):
    [entry] = ledger([gate], Evidence("op/schedule", library, tuple(probes), tuple(results), tuple(decisions)))
    return entry


BYTES = Gate("operator-bytes", "operator bytes", "probe", probe="contract")
PAIRS = Gate("same-startup-ab", "same-startup A/B", "pairs")
MANUAL = Path(__file__).resolve().parents[2] / "docs/history.md"
STARTUPS = Gate("three-startups", "three startups", "startups", min_startups=3, verdicts=("faster",))


@pytest.mark.parametrize(
    ("probes", "status"),
    [
        ([], GateStatus.OPEN),
        ([probe("passed", gate="sanitizer")], GateStatus.OPEN),
        ([probe("passed", library="other build")], GateStatus.OPEN),
        ([probe("passed"), probe("passed", check="b")], GateStatus.PASSED),
        ([probe("passed"), probe("failed", check="b")], GateStatus.FAILED),
        ([probe("passed"), probe("held", check="b")], GateStatus.HELD),
        ([probe("failed", utc="1", check="a"), probe("passed", utc="2", check="a")], GateStatus.PASSED),
        ([probe("passed", utc="1", check="a"), probe("failed", utc="2", check="a")], GateStatus.FAILED),
        # another check that passes later does not make up for the one that failed
        ([probe("failed", utc="1", check="a"), probe("passed", utc="2", check="b")], GateStatus.FAILED),
    ],
)  # fmt: skip
def test_probes_count_for_their_library(probes, status):
    assert one(BYTES, probes=probes).status is status


@pytest.mark.parametrize(
    ("results", "status", "said"),
    [
        ([], GateStatus.OPEN, "run a campaign of 3 startups"),
        ([result(startups=2, verdict=Verdict.SCREEN)], GateStatus.OPEN, "2 of 3 startups"),
        ([result(startups=3, verdict=Verdict.INCONCLUSIVE)], GateStatus.OPEN, "but inconclusive; faster is asked for"),
        ([result()], GateStatus.PASSED, ""),
        ([result(verdict=Verdict.SLOWER)], GateStatus.FAILED, "slower"),
        ([result(exact=14)], GateStatus.FAILED, "1 of 15 pairs not exact"),
        ([result(exact=14, startups=1, verdict=Verdict.SCREEN)], GateStatus.FAILED, "not exact"),
        ([result("old", family=OLD), result("new", startups=1, verdict=Verdict.SCREEN)], GateStatus.OPEN, "1 of 3"),
        ([result("bad", verdict=Verdict.SLOWER), result("good")], GateStatus.FAILED, "slower"),
        ([result("bad", verdict=Verdict.SLOWER, family=OLD), result("good")], GateStatus.PASSED, ""),
        ([result(verdict=Verdict.INADMISSIBLE)], GateStatus.OPEN, "no admissible pair, campaign report c1 says why"),
    ],
)  # fmt: skip
def test_a_screen_never_passes_three_startups(results, status, said):
    entry = one(STARTUPS, results=results)
    assert entry.status is status and said in entry.missing


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_is_recorded_a_gate_is_open_and_says_what_it_asks_for(kind):
    entry = one(Gate("new", "new", kind, probe="new"))
    assert entry.status is GateStatus.OPEN and entry.missing and not entry.evidence
    assert f"`{kind}`" in MANUAL.read_text()


def test_a_campaign_without_pairs_is_no_evidence_and_makes_no_build_the_newest():
    nothing = result("dead", startups=0, pairs=0, exact=0, verdict=Verdict.NOTHING_MEASURED, family=OLD)
    assert one(STARTUPS, results=[nothing]) == one(STARTUPS)
    assert one(STARTUPS, results=[result("good"), nothing]).evidence == ("good",)


def test_what_is_missing_is_what_helps():
    failed = one(STARTUPS, results=[result(exact=14)])
    assert "never outvoted" in failed.missing and "run a campaign" not in failed.missing
    undecided = one(STARTUPS, results=[result(verdict=Verdict.INCONCLUSIVE)])
    assert "run a campaign" not in undecided.missing  # it had its startups
    short = one(STARTUPS, results=[result(startups=1, verdict=Verdict.SCREEN)])
    assert short.missing == "c1: 1 of 3 startups; run a campaign of 3 startups"


def test_the_campaign_that_got_furthest_says_what_is_missing():
    undecided, screen = result("c1", verdict=Verdict.INCONCLUSIVE), result("c2", startups=1, verdict=Verdict.SCREEN)
    entry = one(STARTUPS, results=[undecided, screen])
    assert (
        entry.evidence == ("c1",)
        and entry.missing.startswith("c1: 3 startups and 15 exact pairs, but inconclusive")
        and "run a" not in entry.missing
    )


@pytest.mark.parametrize("status", [CampaignStatus.FAILED, CampaignStatus.INTERRUPTED, CampaignStatus.RUNNING])
def test_only_a_complete_campaign_passes(status):
    part = result(startups=1, pairs=2, exact=2, planned=4, verdict=Verdict.SCREEN, status=status)
    entry = one(PAIRS, results=[part])
    assert entry.status is GateStatus.OPEN
    assert entry.missing.startswith(f"c1: {status} with 2 of 4 pairs, not complete; run an A/B")
    assert one(PAIRS, results=[result(exact=14, status=status)]).status is GateStatus.FAILED  # a difference is one


def test_a_small_or_capped_corpus_is_no_natural_output():
    gate = Gate("corpus", "corpus", "corpus", min_cases=148, max_capped=0.05)
    toy = result(pairs=10, exact=10, n_cases=10, n_capped=20)
    capped = result(pairs=148, exact=148, n_cases=148, n_capped=15)
    natural = result("c2", pairs=148, exact=148, n_cases=148, n_capped=14)
    assert one(gate, results=[toy]).missing == "c1: 10 of 148 cases; run a corpus campaign of 148 cases"
    assert "15 of 296 answers ended at their cap, at most 5 % may" in one(gate, results=[capped]).missing
    entry = one(gate, results=[toy, capped, natural])
    assert entry.status is GateStatus.PASSED and entry.evidence == ("c2 (148 cases, 14 of 296 answers capped)",)


def test_one_startup_is_enough_for_the_first_ab():
    entry = one(PAIRS, results=[result(startups=1, verdict=Verdict.SCREEN)])
    assert entry.status is GateStatus.PASSED and entry.evidence == ("c1",)


def test_evidence_of_another_build_is_named_and_not_counted():
    corpus = Gate("corpus", "corpus", "corpus")
    entry = one(corpus, results=[result("old", n_cases=148, family=OLD), result("new")])
    assert entry.status is GateStatus.OPEN and "not counted: 1 of another build or host" in entry.missing


def test_corpus_and_all_off_look_at_the_right_campaigns():
    results = [result("plain", control_is_plain=True), result("corpus", n_cases=148)]
    assert one(Gate("c", "c", "corpus"), results=results).evidence == ("corpus (148 cases, 0 of 30 answers capped)",)
    assert one(Gate("o", "o", "all-off"), results=results).evidence == ("plain",)


def test_only_a_person_promotes():
    gate = Gate("user-decision", "user decision", "decision")
    assert one(gate, results=[result()]).status is GateStatus.OPEN
    decided = [
        Decision("2026-01-01", "op/schedule", "promote", "a", "good", "[]"),
        Decision("2026-01-02", "op/schedule", "hold", "b", "wait for FP8", "[]"),
    ]
    assert one(gate, decisions=decided[:1]).status is GateStatus.PASSED
    held = one(gate, decisions=decided)
    assert held.status is GateStatus.HELD and held.missing == "wait for FP8"
