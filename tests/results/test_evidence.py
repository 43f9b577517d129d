"""What the store tells a ledger of campaigns: whether they are complete, and how a corpus was answered."""

from dataclasses import replace

import pytest

from campaigns.judging.gates import Gate, GateStatus, ledger
from campaigns.plan import Fixture
from campaigns.records import CampaignStatus
from results.history.evidence import evidence
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.synthetic import Driver
from tests.results.test_report import PLAN, script

CASES = tuple(Fixture(f"case-{i}", "{}", (0,), dataset="own") for i in range(3))
CORPUS = replace(PLAN, corpus="frozen", fixtures=CASES, startups=1, pairs=1)


@pytest.fixture
def store(ram):
    with Store.open(ram / "store.sqlite") as store:
        yield store


def entry(store, ram, gate):
    with Reader.open(ram / "store.sqlite") as reader:
        [found] = ledger([gate], evidence(reader, "projection/columns-32"))
    return found


def test_a_failed_campaign_with_exact_pairs_passes_nothing(store, ram):
    name = Driver(store, PLAN, script).run()
    gate = Gate("same-startup-ab", "same-startup A/B", "pairs")
    assert entry(store, ram, gate).status is GateStatus.PASSED
    store.status(name, CampaignStatus.FAILED, "the identity changed")
    found = entry(store, ram, gate)
    assert found.status is GateStatus.OPEN and f"{name}: failed with 30 of 30 pairs, not complete" in found.missing


def test_capped_answers_of_a_corpus_are_counted(store, ram):
    def scripts(step, attempt):
        capped = step.key.fixture == "case-1"
        return replace(script(step, attempt), finish_reason="length" if capped else "stop")

    name = Driver(store, CORPUS, scripts).run()
    gate = Gate("corpus", "natural-output corpus", "corpus", min_cases=3, max_capped=0.5)
    assert entry(store, ram, gate).evidence == (f"{name} (3 cases, 2 of 6 answers capped)",)
    assert entry(store, ram, gate).status is GateStatus.PASSED
    assert "2 of 6 answers ended at their cap" in entry(store, ram, replace(gate, max_capped=0.3)).missing
    assert f"{name}: 3 of 148 cases" in entry(store, ram, replace(gate, min_cases=148)).missing
