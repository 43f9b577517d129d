"""`campaign score`: judges the recorded answers of a corpus campaign and adds the verdicts as facts.

A stage of its own, on CPU, never beside timing: it reads answers from the store and can run again at any later time.
Equal answers to the same case are judged once and recorded for every request that gave them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from campaigns.corpora import choice
from campaigns.corpora.manifest import Corpus
from campaigns.errors import IdentityMismatch, NothingAdmissible, UsageError, WorldError
from campaigns.plan import Phase
from campaigns.records import Campaign, CampaignStatus, Request
from campaigns.remarks import Score
from campaigns.scorers import scoring
from campaigns.scorers.verdict import Answer, Verdict
from orchestrator.scoring.sandbox import Sandbox, Tried
from orchestrator.scoring.scorer import TIMEOUT_S, ScorerProcess
from results.store.locks import CampaignLock
from results.store.reader import Reader
from results.store.writer import Store


@dataclass(frozen=True)
class Settings:
    sandbox: Sandbox = field(default_factory=Sandbox)
    text_timeout_s: float = TIMEOUT_S  # of one mathematical or structured answer
    jobs: int = 1  # sets of tests at once: more than the idle cores turns right answers into timeouts
    corpus_path: str = ""  # where the frozen corpus lies now; empty: where the campaign's configuration says


def score_campaign(store_path: Path, name: str, settings: Settings) -> list[Score]:
    """Judge every measured answer, add one row per request and scorer, and return them."""
    with Reader.open(store_path) as reader:
        campaign = reader.campaign(reader.resolve(name))
        corpus = corpus_of(campaign, settings.corpus_path)
        requests = list(_answered(reader, campaign.campaign_id))
    if not requests:
        raise NothingAdmissible(f"campaign {campaign.campaign_id} holds no complete answer: there is nothing to score")
    lock = CampaignLock(store_path, campaign.campaign_id)
    try:
        scores = _score_all(store_path, campaign.campaign_id, corpus, requests, settings)
        with Store.open(store_path) as store:
            store.scores(scores)
    finally:
        lock.release()
    return scores


def _nobody_measures(store_path: Path, scored: str) -> None:
    """Asked before every answer, since a campaign may begin after scoring did; the scored one is locked already."""
    with Reader.open(store_path) as reader:
        for other in (campaign.campaign_id for campaign in reader.campaigns()):
            status = None
            with reader.damaged.sparing(other):
                status = reader.status(other)
            if other != scored and status is CampaignStatus.RUNNING:
                raise WorldError(
                    f"campaign {other} is measuring, and scoring beside it would show in its times: "
                    f"score {scored} again when it is over"
                )


def corpus_of(campaign: Campaign, path: str = "") -> Corpus:
    """The frozen corpus that a campaign ran on, verified by hash."""
    wanted = json.loads(campaign.plan_json)["corpus"]
    told = json.loads(campaign.config_json).get("corpus", {})
    if not wanted:
        raise UsageError(f"campaign {campaign.campaign_id} ran no corpus: only corpus campaigns have scores")
    corpus = choice.load("file" if path else told.get("source", ""), path or told.get("path", ""))
    if corpus.sha256 != wanted:
        raise IdentityMismatch(
            f"campaign {campaign.campaign_id} ran corpus {wanted}, the file has {corpus.sha256}: "
            "name the right one with --corpus PATH"
        )
    return corpus


def _answered(reader: Reader, campaign_id: str) -> Iterator[Request]:
    for stored in reader.requests(campaign_id, with_rounds=False):
        request = stored.request
        if request.phase is Phase.MEASURE and not stored.superseded and request.finish_reason is not None:
            yield request


Judging = tuple[str, str, str, str | None]  # case, text, tool calls, finish reason


def _score_all(
    store_path: Path, campaign_id: str, corpus: Corpus, requests: Sequence[Request], settings: Settings
) -> list[Score]:
    cases = {case.id: case for case in corpus.cases}
    speed = host_speed()
    answers: dict[Judging, Answer] = {
        _judging(r): Answer(r.text, r.tool_calls_json, r.finish_reason) for r in requests if r.key.fixture in cases
    }
    with ScorerProcess(settings.text_timeout_s) as text, ThreadPoolExecutor(settings.jobs) as pool:
        run = Tried(settings.sandbox)

        def judge(judging: Judging) -> list[Verdict]:
            _nobody_measures(store_path, campaign_id)
            return scoring.score(cases[judging[0]], answers[judging], text, run)

        verdicts = dict(zip(answers, pool.map(judge, answers), strict=True))
    arguments = json.dumps(
        {
            "corpus_sha256": corpus.sha256,
            "sandbox": str(settings.sandbox.mode),
            "text_timeout_s": settings.text_timeout_s,
            "jobs": settings.jobs,
            "host_loops_per_s": speed,
        }
    )
    utc = datetime.now(UTC).isoformat(timespec="seconds")
    return [
        _row(campaign_id, request, verdict, utc, arguments)
        for request in requests
        for verdict in verdicts.get(_judging(request), ())
    ]


def _judging(request: Request) -> Judging:
    return request.key.fixture, request.text, request.tool_calls_json, request.finish_reason


def _row(campaign_id: str, request: Request, verdict: Verdict, utc: str, arguments: str) -> Score:
    return Score(
        campaign_id=campaign_id,
        key=request.key,
        role=request.role,
        utc=utc,
        scorer=verdict.scorer,
        version=scoring.VERSION,
        arguments_json=arguments,
        outcome=str(verdict.outcome),
        details_json=json.dumps(verdict.details),  # ASCII: an answer can spell half a surrogate pair
    )


def host_speed() -> float:
    """Loops of plain Python per second: tells a slow host from a slow answer when timeouts are compared."""
    loops, started = 300_000, time.perf_counter()
    total = 0
    for number in range(loops):
        total += number
    return round(loops / (time.perf_counter() - started))


def tally(scores: Sequence[Score]) -> dict[tuple[str, str], Mapping[str, int]]:
    """(scorer, role) -> how often each outcome occurred."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for score in scores:
        outcomes = counts.setdefault((score.scorer, str(score.role)), {})
        outcomes[score.outcome] = outcomes.get(score.outcome, 0) + 1
    return dict[tuple[str, str], Mapping[str, int]](counts)
