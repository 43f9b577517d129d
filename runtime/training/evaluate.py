"""Measures a checkpoint on exercises: natural ends, right answers and accepted drafts, kind by kind.

Runs the engine in this process on one request at a time, as the server does, with the sampling that campaigns use.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.engine.engine import Engine
from runtime.engine.sequence import Finish, GenerateRequest, Prefill
from runtime.engine.shape import EngineOptions
from runtime.speculation.sampling import SamplingParams
from runtime.text.generation import Step
from runtime.text.tokenizer import ChatTemplate, TextTokenizer
from runtime.text.tools import Delta, joined
from runtime.text.transcript import NO_STOPS, Markers, Transcript
from runtime.training.tasks.catalogue import all_templates
from runtime.training.tasks.exercise import Exercise, Pool, Template, split
from runtime.training.text import prompt_text


@dataclass(frozen=True)
class Outcome:
    """One answer. `accepted` and `rounds` count speculative rounds alone."""

    kind: str
    ended: bool
    solved: bool
    num_tokens: int
    rounds: int
    accepted: int


@dataclass(frozen=True)
class Row:
    """Figures of one kind over `count` answers; shares lie between 0 and 1."""

    kind: str
    count: int
    ended: float
    solved: float
    tokens: float
    accepted_per_round: float


class Examiner:
    """A loaded checkpoint that answers exercises."""

    def __init__(self, model_dir: Path, threads: int = 1) -> None:
        import torch

        torch.set_num_threads(threads)
        self._engine = Engine.load(model_dir, EngineOptions())
        self._tokenizer = TextTokenizer(model_dir)
        template = ChatTemplate.of_folder(model_dir)
        assert template is not None, f"{model_dir} has no chat template"
        self._template = template

    def run(self, template: Template, exercise: Exercise, seed: int) -> Outcome:
        prompt_ids = self._tokenizer.encode(prompt_text(self._template, exercise, thinking=True), False)
        sampling = SamplingParams(temperature=1.0, top_k=20, top_p=0.95, seed=seed)
        transcript = Transcript(self._tokenizer, NO_STOPS, Markers.of(self._tokenizer), thinking=True)
        content, calls, rounds, accepted, reason = "", list[Delta](), 0, 0, ""
        for event in self._engine.generate(GenerateRequest(prompt_ids, sampling)):
            if isinstance(event, Finish):
                reason = event.reason
                continue
            piece = transcript.push(Step("", tuple(event.token_ids)))
            content += piece.content
            calls += piece.calls
            if not isinstance(event, Prefill) and event.kind == "spec":
                rounds, accepted = rounds + 1, accepted + event.accepted
        solved = _same_calls(calls, exercise) if exercise.calls else template.check(content, exercise)
        return Outcome(template.kind, reason == "stop", solved, transcript.num_tokens, rounds, accepted)


def _same_calls(deltas: list[Delta], exercise: Exercise) -> bool:
    try:
        made = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in joined(deltas)]
    except ValueError:
        return False
    return made == [(name, dict(values)) for name, values in exercise.calls]


def held_out_outcomes(
    model_dir: Path, kinds: tuple[str, ...], per_kind: int, seed: int, edition: int = 1
) -> Iterator[Outcome]:
    """`per_kind` exercises of held-out templates of every kind."""
    _, held_out = split(all_templates(kinds, edition))
    pool, rng, examiner = Pool(held_out), random.Random(seed), Examiner(model_dir)
    for kind in pool.kinds:
        for index in range(per_kind):
            template, exercise = pool.draw(rng, kind)
            yield examiner.run(template, exercise, seed + index)


def table(outcomes: Sequence[Outcome]) -> list[Row]:
    """A row per kind and one for all."""
    kinds = sorted({outcome.kind for outcome in outcomes})
    groups = [(kind, [o for o in outcomes if o.kind == kind]) for kind in kinds] + [("all", list(outcomes))]
    return [_row(kind, group) for kind, group in groups]


def _row(kind: str, group: Sequence[Outcome]) -> Row:
    count, rounds = len(group), sum(o.rounds for o in group)
    return Row(
        kind=kind,
        count=count,
        ended=sum(o.ended for o in group) / count,
        solved=sum(o.solved for o in group) / count,
        tokens=sum(o.num_tokens for o in group) / count,
        accepted_per_round=sum(o.accepted for o in group) / max(1, rounds),
    )


def print_table(rows: Sequence[Row]) -> None:
    print("| kind | answers | natural end | solved | tokens | accepted per round |\n|---|---:|---:|---:|---:|---:|")
    for row in rows:
        shares = f"{100 * row.ended:.0f} % | {100 * row.solved:.0f} %"
        print(f"| {row.kind} | {row.count} | {shares} | {row.tokens:.0f} | {row.accepted_per_round:.2f} |")
