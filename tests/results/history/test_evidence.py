"""What the store tells a ledger of campaigns: whether they are complete, and how a corpus was answered."""

from dataclasses import replace

import pytest

from campaigns.judging.gates import Gate, GateStatus, ledger
from campaigns.plan import Arm, Fixture, Mode
from campaigns.records import CampaignStatus
from orchestrator.cli import main
from results.history.evidence import evidence
from results.reading.summary import summarise
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.synthetic import Driver
from tests.results.reports.test_report import PLAN, script

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


def test_a_campaign_that_changed_two_things_is_no_evidence_for_one(store, ram):
    both = Arm("both", (("projection", "columns-32"), ("selection", "keys")))
    name = Driver(store, replace(PLAN, candidate=both), script).run()
    gate = Gate("same-startup-ab", "same-startup A/B", "pairs")
    found = entry(store, ram, gate)
    assert found.status is GateStatus.OPEN
    assert found.missing.endswith(f"not counted: {name} changed it together with selection/keys")
    with Reader.open(ram / "store.sqlite") as reader:
        [of_arm] = ledger([gate], evidence(reader, "both"))  # the arm as a whole was measured
    assert of_arm.status is GateStatus.PASSED
    alone = Driver(store, PLAN, script, run_number=2).run()
    assert entry(store, ram, gate).evidence == (alone,)


def test_decisions_have_a_name_and_a_reason(store, ram, capsys):
    name = Driver(store, PLAN, script).run()
    where = ["--store", str(ram / "store.sqlite")]
    for words in (["--by", "", "--reason", "good"], ["--by", "a person", "--reason", " "]):
        assert main(["promote", "projection/columns-32", "--despite-open", *words, *where]) == 1
        assert "a decision is kept with who made it and why" in capsys.readouterr().err
    assert main(["floor", name, "--by", "me", "--reason", "noisy", *where]) == 1
    assert "is no A/A campaign" in capsys.readouterr().err


def test_an_aa_campaign_is_left_out_of_floors_with_a_reason(store, ram, capsys):
    Driver(store, replace(PLAN, mode=Mode.AA, candidate=PLAN.control), script).run()
    name = Driver(store, PLAN, script).run()
    where = ["--store", str(ram / "store.sqlite")]

    def source():
        with Reader.open(ram / "store.sqlite") as reader:
            return summarise(reader, name).groups[0].judgement.floor.source

    with Reader.open(ram / "store.sqlite") as reader:
        [aa] = [c.campaign_id for c in reader.campaigns() if c.campaign_id != name]
    assert source() == "A/A, 3 startups"
    assert main(["floor", aa, "--by", "me", "--reason", "the fan failed", *where]) == 0
    assert source() == "no A/A"
    assert main(["report", name, *where]) == 0
    assert f"left out of the noise floors: {aa} (the fan failed; me)" in capsys.readouterr().out
    assert main(["floor", aa, "--take-back", "--by", "me", "--reason", "it was the room", *where]) == 0
    assert source() == "A/A, 3 startups"


def test_a_baseline_takes_complete_campaigns_and_gives_them_back(store, ram, capsys):
    where = ["--store", str(ram / "store.sqlite")]
    good = Driver(store, PLAN, script).run()
    bad = Driver(store, PLAN, script, run_number=2).run()
    store.status(bad, CampaignStatus.FAILED, "broken")
    assert main(["baseline", "set", "base", bad, *where]) == 1
    assert "is failed with 30 pairs: a baseline needs a complete one" in capsys.readouterr().err
    assert main(["baseline", "set", "base", good, *where]) == 0
    assert main(["baseline", "drop", "base", good, "--by", "me", "--reason", "odd", *where]) == 0
    capsys.readouterr()
    assert main(["baseline", "list", *where]) == 0
    assert "no baseline is set" in capsys.readouterr().out


def test_probes_of_unknown_schedules_are_refused(store, ram, capsys):
    lines = ram / "lines.jsonl"
    lines.write_text('{"gate": "contract", "operator": "projection", "schedule": "no-such", "status": "passed"}\n')
    assert main(["probe", "import", str(lines), "--store", str(ram / "store.sqlite")]) == 1
    assert "projection/no-such is no schedule" in capsys.readouterr().err


def test_a_file_of_gates_is_required_whole(store, ram, capsys):
    def required(text, *words):
        (ram / "own.yaml").write_text(text)
        code = main(["gates", "projection/columns-32", "--require", str(ram / "own.yaml"), "--store", where, *words])
        return code, capsys.readouterr()

    where = str(ram / "store.sqlite")
    name = Driver(store, PLAN, script).run()
    with Reader.open(ram / "store.sqlite") as reader:
        ends_at = summarise(reader, name).judgement.interval.high
    gate = "gates: [{name: g, title: fast enough, kind: startups, min_startups: 3, max_effect_pct: %g}]"
    assert required(gate % (100 * ends_at + 0.1))[0] == 0
    code, said = required(gate % (100 * ends_at - 0.1))
    assert code == 2 and "required and open: fast enough: " in said.err and "is the most" in said.err
    code, said = required("gates: [{name: g, title: sanitizers, kind: probe, probe: sanitizer}]")
    assert code == 2 and "required and open: sanitizers: import sanitizer probes" in said.err
    for text, told in (
        ("gates: []", "it has no list `gates`"),
        ("gates: [3]", "3 is no gate"),
        ("gates: [{name: g, title: t, kind: pears}]", "kind 'pears' is none of probe"),
        (
            "gates: [{name: g, title: t, kind: pairs, max_efect_pct: 1}]",
            "max_efect_pct is no key of a gate; did you mean",
        ),
        ("gates: [{name: g, title: t, kind: pairs, max_effect_pct: fast}]", "max_effect_pct is 'fast', no number"),
        ("gates: [{name: g, kind: pairs}]", "title is missing"),
        ("gates: [{name: g, title: t, kind: pairs, verdicts: [quick]}]", "it lists some of"),
    ):
        code, said = required(text)
        assert code == 1 and told in said.err, said.err
    assert main(["gates", "projection/columns-32", "--require", str(ram / "none.yaml"), "--store", where]) == 1
