"""Whole corpus campaigns on the embedded model: every pair exact, scores per dataset, scored twice alike. Long."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from campaigns.corpora.embedded import embedded
from campaigns.corpora.freezing import freeze
from campaigns.corpora.manifest import Corpus, write
from campaigns.plan import Phase
from campaigns.scorers.verdict import Judged
from orchestrator.scoring.proving import SolutionRuns
from orchestrator.scoring.sandbox import ROOT, Sandbox
from results.reading.summary import summarise
from results.store.reader import Reader
from tests.orchestrator.scoring.test_real_corpora import beside, recipe

pytestmark = [pytest.mark.acceptance, pytest.mark.ray, pytest.mark.timeout(3500)]


def campaign(*words: str) -> str:
    command = [sys.executable, "-m", "orchestrator.cli", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def run_and_score(corpus: Corpus, folder: Path, *words: str) -> None:
    """Runs the campaign and scores it twice, with the checks that hold for every corpus."""
    store = folder / "store.sqlite"
    campaign(
        "run", "campaign=corpus148", f"store.path={store}", "startup.calibrate_s=1", f"lease.lock_dir={folder}", *words
    )
    with Reader.open(store) as reader:
        summary = summarise(reader, reader.resolve("last"))
    assert (summary.n_pairs, summary.n_exact_pairs) == (148, 148)
    assert {g.fixture: g.n_pairs for g in summary.groups} == corpus.counts()
    for group in summary.groups:
        print(
            group.id, group.candidate.accepted_drafts_per_round, group.candidate.drafted_per_round, group.n_exact_pairs
        )
    printed = [campaign("score", "last", "--store", str(store)) for _ in range(2)]
    print(printed[0])
    assert sorted(printed[0].splitlines()) == sorted(printed[1].splitlines())
    with Reader.open(store) as reader:
        name = reader.resolve("last")
        scores = reader.scores(name)
        requests = [stored.request for stored in reader.requests(name, with_rounds=False)]
    capped = {(r.key, r.role) for r in requests if r.phase is Phase.MEASURE and r.finish_reason == "length"}
    print(f"{len(capped)} of {2 * summary.n_pairs} answers capped")
    rows = Counter((score.scorer, score.key, score.role) for score in scores)
    assert set(rows.values()) == {2}
    assert {score.key.fixture for score in scores} == {case.id for case in corpus.cases}
    for score in scores:
        is_capped = (score.key, score.role) in capped
        assert (score.outcome == Judged.CAPPED) is (is_capped and score.outcome != Judged.INELIGIBLE), score


@pytest.fixture(autouse=True)
def _sandbox(box: Sandbox) -> None:
    """Programs can be run."""


def test_the_embedded_corpus(tmp_path: Path) -> None:
    run_and_score(embedded(), tmp_path)


@beside
def test_the_public_corpus_capped_at_256_tokens(tmp_path: Path) -> None:
    corpus = freeze(recipe(), embedded(), SolutionRuns(Sandbox()))
    told = write(corpus, "public", tmp_path)[1]
    run_and_score(corpus, tmp_path, "corpus=file", f"corpus.path={told}", "campaign.max_tokens=256")
