"""Scoring a recorded campaign: rows per answer and scorer, again at any time, never beside timing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from campaigns.corpora.embedded import FOLDER, embedded
from campaigns.corpora.freezing import Recipe, freeze
from campaigns.corpora.manifest import Corpus, differences, read, write
from campaigns.corpora.selection import Selecting, Selection
from campaigns.errors import Exit, IdentityMismatch, NothingAdmissible, StoreUnwritable, UsageError, WorldError
from campaigns.plan import Arm, CampaignPlan, Role, ServerPlan, Step
from campaigns.records import Campaign, CampaignStatus, Request
from campaigns.remarks import Score
from campaigns.scorers.execution import Outcome
from campaigns.scorers.verdict import Answer, Judged
from orchestrator import cli
from orchestrator.scoring.sandbox import Sandbox, SandboxRefused
from orchestrator.scoring.scorer import ScorerProcess
from orchestrator.scoring.scoring import Settings, score_campaign
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

IDS = ("gsm8k/0", "humaneval/0", "mbpp/41", "livecodebench/own_01", "structured/own/json-object")
RIGHT = {
    "gsm8k/0": "12 + 9 - 6 = \\boxed{15}",
    "humaneval/0": "```python\ndef add_all(numbers):\n    return sum(numbers)\n```",
    "mbpp/41": "```python\ndef repeat_with_comma(text, n):\n    return ','.join([text] * n)\n```",
    "livecodebench/own_01": "```python\nprint(sum(map(int, input().split())))\n```",
    "structured/own/json-object": '{"age": 34, "name": "Maria"}',
}
Answers = Callable[[Step], str]


@dataclass
class Answering(Driver):
    """A driver whose server says what the test wants."""

    answers: Answers = lambda step: ""
    config: str = "{}"

    def campaign(self) -> Campaign:
        return replace(super().campaign(), config_json=self.config)

    def request(self, campaign_id: str, step: Step, startup_attempt: int, block_attempt: int) -> Request:
        request = super().request(campaign_id, step, startup_attempt, block_attempt)
        return replace(request, text=self.answers(step))


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Path]:
    names = ("gsm8k", "humaneval", "humanevalplus", "mbpp", "mbppplus", "livecodebench", "structured")
    paths = {name: [FOLDER / f"{name}.jsonl"] for name in names}
    corpus = freeze(Recipe(paths, selection=Selection(Selecting.IDS, IDS)))
    return corpus, write(corpus, "five", tmp_path_factory.mktemp("corpus"))[1]


@pytest.fixture(scope="module", autouse=True)
def one_scorer(frozen: tuple[Corpus, Path]) -> Iterator[None]:
    """One real process for all tests here: sympy and jsonschema take it more than a second."""
    with ScorerProcess() as shared, pytest.MonkeyPatch.context() as patch:
        assert shared(frozen[0].cases[0], Answer("", "", "stop")).outcome is Judged.FAILED  # started by this thread
        patch.setattr("orchestrator.scoring.scoring.ScorerProcess", lambda timeout_s: nullcontext(shared))
        yield


def record(store: Path, frozen: tuple[Corpus, Path], answers: Answers, **script: str) -> str:
    corpus, path = frozen
    plan = CampaignPlan(
        "five", Arm("a"), Arm("b"), corpus.fixtures((0,)), ServerPlan("null"), corpus=corpus.sha256, startups=1
    )
    config = json.dumps({"corpus": {"source": "file", "path": str(path)}})
    scripts = lambda step, attempt: Script(Trajectory(10, 3, 6), 10.0, **script)  # noqa: E731
    with Store.open(store) as opened:
        return Answering(opened, replace(plan, pairs=1, warmups=0), scripts, answers=answers, config=config).run()


def outcomes(scores: list[Score], role: Role) -> dict[str, str]:
    return {score.scorer: score.outcome for score in scores if score.role is role}


def test_right_and_wrong_answers_twice(tmp_path: Path, frozen: tuple[Corpus, Path], box: Sandbox) -> None:
    store = tmp_path / "s.sqlite"
    record(store, frozen, lambda step: RIGHT[step.key.fixture] if step.role is Role.CONTROL else "I do not know.")
    first = score_campaign(store, "last", Settings(box))
    assert outcomes(first, Role.CONTROL) == {
        "gsm8k": "passed",
        "humaneval/original": "passed",
        "humaneval/evalplus": "passed",
        "mbpp/original": "passed",
        "mbpp/evalplus": "ineligible",
        "livecodebench/own": "passed",
        "structured": "passed",
    }
    wrong = outcomes(first, Role.CANDIDATE)
    assert wrong.pop("mbpp/evalplus") == "ineligible" and set(wrong.values()) == {"failed"} and len(wrong) == 6
    arguments = json.loads(first[0].arguments_json)
    assert arguments["corpus_sha256"] == frozen[0].sha256 and arguments["sandbox"] == "namespaces"
    assert arguments["host_loops_per_s"] > 0
    details = {s.scorer: json.loads(s.details_json) for s in first if s.role is Role.CONTROL}
    assert details["mbpp/original"]["results"] == [1, 1, 1] and details["mbpp/original"]["limits"]["cpu_s"] == 60

    second = score_campaign(store, "last", Settings(box, jobs=2))
    assert [(s.key, s.role, s.scorer, s.outcome) for s in second] == [
        (s.key, s.role, s.scorer, s.outcome) for s in first
    ]
    with Reader.open(store) as reader:
        kept = reader.scores(first[0].campaign_id)
    assert len(kept) == 2 * len(first)
    assert set(Counter((s.key, s.role, s.scorer) for s in kept).values()) == {2}


def test_capped_answers_fail_at_their_cap_whatever_they_hold(tmp_path: Path, frozen: tuple[Corpus, Path]) -> None:
    store = tmp_path / "s.sqlite"
    record(store, frozen, lambda step: RIGHT[step.key.fixture], finish_reason="length")
    found = outcomes(score_campaign(store, "last", Settings(_never)), Role.CONTROL)
    assert found.pop("mbpp/evalplus") == "ineligible" and set(found.values()) == {"capped"}


class _Never(Sandbox):
    def __call__(self, job: object) -> object:  # type: ignore[override]
        raise AssertionError("no code was to be run")


_never = _Never()


def test_a_refusing_sandbox_leaves_no_scores(tmp_path: Path, frozen: tuple[Corpus, Path]) -> None:
    class Refusing(Sandbox):
        def __call__(self, job: object) -> object:  # type: ignore[override]
            raise SandboxRefused("no namespaces")

    store = tmp_path / "s.sqlite"
    campaign = record(store, frozen, lambda step: RIGHT[step.key.fixture])
    with pytest.raises(SandboxRefused):
        score_campaign(store, "last", Settings(Refusing()))
    with Reader.open(store) as reader:
        assert reader.scores(campaign) == []


def test_never_beside_a_running_campaign(tmp_path: Path, frozen: tuple[Corpus, Path]) -> None:
    store = tmp_path / "s.sqlite"
    campaign = record(store, frozen, lambda step: "")
    with Store.open(store) as busy:
        busy.status(campaign, CampaignStatus.RUNNING)
        with pytest.raises(StoreUnwritable, match="being written"):
            score_campaign(store, campaign, Settings(_never))


def test_a_campaign_that_begins_meanwhile_ends_the_scoring(tmp_path: Path, frozen: tuple[Corpus, Path]) -> None:
    store = tmp_path / "s.sqlite"
    scored, other = record(store, frozen, lambda step: RIGHT[step.key.fixture]), speed_campaign(store, frozen)

    class Beginning(Sandbox):
        def refusal(self) -> str:
            return ""

        def __call__(self, job: object) -> Outcome:
            busy.status(other, CampaignStatus.RUNNING)
            return Outcome(())

    with Store.open(store) as busy, pytest.raises(WorldError, match=f"campaign {other} is measuring"):
        score_campaign(store, scored, Settings(Beginning()))
    with Reader.open(store) as reader:
        assert reader.scores(scored) == []


def speed_campaign(store: Path, frozen: tuple[Corpus, Path]) -> str:
    """One without a corpus."""
    plan = CampaignPlan("speed", Arm("a"), Arm("b"), frozen[0].fixtures((0,)), ServerPlan("null"), startups=1, pairs=2)
    with Store.open(store) as opened:
        return Driver(opened, plan, lambda step, attempt: Script(Trajectory(10, 3, 6), 10.0)).run()


def test_what_cannot_be_scored_is_said(tmp_path: Path, frozen: tuple[Corpus, Path]) -> None:
    store = tmp_path / "s.sqlite"
    record(store, frozen, lambda step: "")
    other = write(embedded(), "other", tmp_path)[1]
    with pytest.raises(IdentityMismatch, match="name the right one with --corpus"):
        score_campaign(store, "last", Settings(_never, corpus_path=str(other)))
    speed_campaign(store, frozen)
    with pytest.raises(UsageError, match="ran no corpus"):
        score_campaign(store, "last", Settings(_never))


def test_answers_that_broke_off_are_not_scored(tmp_path: Path, frozen: tuple[Corpus, Path]) -> None:
    store = tmp_path / "s.sqlite"
    record(store, frozen, lambda step: "", finish_reason=None)  # type: ignore[arg-type]
    with pytest.raises(NothingAdmissible, match="no complete answer"):
        score_campaign(store, "last", Settings(_never))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["score", "last", "sandbox.mode=none"], "sandbox.mode=none: choose namespaces or weak"),
        (["score", "last", "sandbox.uid=0"], "sandbox.uid=0: the number of a user other than root"),
        (["score", "last", "sandbox.size=1"], "sandbox.size: unknown setting"),
        (["score", "last", "--jobs", "1", "sandbox.mode=none"], "sandbox.mode=none: choose namespaces or weak"),
        (["score", "last", "--jobs", "0"], "argument --jobs: 0: must be a whole number above 0"),
        (["corpus", "show", "/nowhere"], "/nowhere: cannot be read"),
        (["corpus", "show", "embedded", "--case", "x"], "--case x: the corpus has no such case"),
        (["corpus", "freeze", "n", "--output", "o"], "no source for 32 cases of gsm8k: give --gsm8k PATH"),
        (["corpus", "freeze", "n", "--output", "o", "--order", "ids"], "--order ids and --ids"),
        (
            ["corpus", "freeze", "n", "--output", "o", "sandbox.mode=none"],
            "sandbox.mode=none: choose namespaces or weak",
        ),
        (["corpus", "freeze", "n", "--output", "o", "--count", "x=1"], "--count x=1: write DATASET=N"),
    ],
)
def test_bad_input_gets_one_sentence(words: list[str], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == Exit.USAGE
    errors = capfd.readouterr().err
    assert sentence in errors and errors.count("\n") == 1


def test_the_last_line_of_freezing_is_the_hash(
    tmp_path: Path, box: Sandbox, frozen: tuple[Corpus, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    sources = [
        f"--{name}={FOLDER / name}.jsonl" for name in ("gsm8k", "humaneval", "humanevalplus", "mbpp", "mbppplus")
    ]
    sources += [f"--{name}={FOLDER / name}.jsonl" for name in ("livecodebench", "structured")]
    ids = ["--order", "ids", "--ids", ",".join(IDS)]
    assert cli.main(["corpus", "freeze", "again", "--output", str(tmp_path), *sources, *ids]) == Exit.COMPLETE
    said = capfd.readouterr().out.splitlines()
    assert said[1] == "3 code cases proven by a published solution; none is published for 0"
    assert said[2].startswith("ineligible 1: evalplus: EvalPlus has no contract for this task: mbpp/")
    again = str(tmp_path / "again.manifest.json")
    assert cli.main(["corpus", "verify", again]) == Exit.COMPLETE
    assert capfd.readouterr().out.splitlines()[1:] == [said[1], said[2], said[-1]]
    assert cli.main(["corpus", "verify", str(frozen[1])]) == Exit.COMPLETE
    assert "not proven (frozen-corpus/1)" in capfd.readouterr().out
    assert list(differences(read(Path(again)), frozen[0])) == [
        'header format: "frozen-corpus/2" != "frozen-corpus/1"',
        "header left_out: {} != null",
        'header proof: {"passed":3,"unpublished":0} != null',
    ]
    assert cli.main(["corpus", "diff", "embedded", str(frozen[1])]) == Exit.SLOWER
