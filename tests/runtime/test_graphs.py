"""Graphs without a GPU: pieces may depend on their inputs and on memory at fixed addresses, and on nothing else."""

import gc
from collections.abc import Hashable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels import capture
from runtime.engine.graphs import Captured, Graphs, Piece
from runtime.engine.round import Decoder
from runtime.models.steps import VerifyStep
from runtime.speculation.sampling import SamplingParams


@dataclass
class Replayed(Graphs):
    """Graphs of any device: a replay runs the captured piece once more, on the buffers of its capture."""

    def _capture(self, piece: Piece, inputs: tuple[torch.Tensor, ...]) -> Captured:
        static = tuple(value.clone() for value in inputs)
        with self.operators.recording() as runs:
            outputs = piece(*static)
        captured = Captured(None, static, outputs, runs)
        captured.graph = SimpleNamespace(replay=lambda: self._again(piece, captured), release=lambda: None)
        return captured

    def _again(self, piece: Piece, captured: Captured) -> None:
        if captured.replays:
            routes, counted = self.operators.routes, dict(self.operators.routes._hits)
            captured.outputs = piece(*captured.inputs)
            routes._hits.clear()
            routes._hits.update(counted)


class Straight(Graphs):
    """Every piece as it is, with the shapes that graphs need."""

    def run(self, key: Hashable, piece: Piece, *inputs: torch.Tensor) -> Any:
        return piece(*inputs)


def engine_with(make: Any, graphs: type[Graphs], **options: Any) -> Any:
    engine = make.engine(cuda_graphs=False, **options)
    engine.decoder.graphs = graphs(engine.decoder.operators, enabled=True)
    return engine


@pytest.mark.parametrize("speculation", ("dflash", pytest.param("lookup", marks=pytest.mark.acceptance), "none"))
def test_pieces_depend_on_their_inputs_alone(make: Any, speculation: str) -> None:
    """What a graph would have captured of the first requests answers the later ones: other seeds, lengths, settings."""
    runs = []
    for graphs in (Straight, Replayed):
        engine, tokens = engine_with(make, graphs, max_model_len=110), []
        for seed, length in enumerate((30, 9, 101, 64, 1, 100)):
            sampling = SamplingParams(temperature=seed % 3 * 0.5, seed=seed, top_k=5 if seed % 2 else 0, top_p=0.9)
            prompt, limit = make.prompt_of(length, seed), min(20, 110 - length)
            answer = make.answer(engine, prompt, sampling=sampling, max_tokens=limit, speculation=speculation)
            tokens.append(answer.tokens)
        runs.append((tokens, engine.routes.counters()))
    keys = {key[0][0] for key in engine.decoder.graphs._captured}
    assert keys == {"verify", "sample", "commit"} | ({"draft"} if speculation != "none" else set())
    assert runs[0] == runs[1]


@pytest.mark.parametrize("schedules", ({}, {"walk": "cpu-path", "accept": "cpu-verdict", "commit": "cpu-rows"}))
def test_drafts_launched_before_the_verdict_is_read_are_those_of_the_round(
    make: Any, monkeypatch: pytest.MonkeyPatch, schedules: dict[str, str]
) -> None:
    """Capacity, a limit, an end of sequence and cut ties in between: tokens and counters of every round stay."""
    answers, launched = [], []
    once = Decoder._launch_ahead
    monkeypatch.setattr(Decoder, "_launch_ahead", lambda *a: launched.append(once(*a)) or launched[-1])
    for pipeline in (False, True):
        engine = engine_with(make, Straight, max_model_len=110, context_pipeline=pipeline)
        engine.routes.enable(schedules)
        found = []
        for seed, length in enumerate((30, 9, 95, 64)):
            sampling = SamplingParams(temperature=0.5 + seed / 4, seed=seed, top_k=5)
            asked = {
                "sampling": sampling,
                "max_tokens": min(40, 110 - length),
                "eos_ids": [seed + 3] if seed % 2 else (),
            }
            before = len(launched)
            answer = make.answer(engine, make.prompt_of(length, seed), **asked)
            found.append((answer.tokens, [(r.rows, r.accepted, r.routes) for r in answer.rounds]))
            ahead = sum(made is not None for made in launched[before:])
            assert asked["eos_ids"] or ahead < len(answer.rounds), "drafts that no round could use"
            ends = [r.ended_ns for r in answer.rounds]
            assert all(
                r.total_ns <= end - before for r, end, before in zip(answer.rounds[1:], ends[1:], ends, strict=False)
            )
        answers.append(found)
        assert any(launched) == pipeline and None in launched
    assert answers[0] == answers[1]


def test_attention_that_asks_is_shown_the_first_page_while_all_rows_lie_in_it(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of another length are other graphs; the answers are the same, before, on and behind the page's end."""
    shown = []
    made = VerifyStep.__init__

    def noted(step: Any, *operands: Any) -> None:
        made(step, *operands)
        shown.append((int(step.row_lengths[-1]), len(step.pages)))

    monkeypatch.setattr(VerifyStep, "__init__", noted)
    tokens = {}
    for name in ("gathered", "other"):
        monkeypatch.setattr("kernels.attention.BY_TABLE", frozenset({name}))
        engine = engine_with(make, Replayed, max_model_len=256, page_size=64)
        engine.routes.enable({"attention": "gathered"})
        answer = make.answer(engine, make.prompt_of(40), sampling=SamplingParams(temperature=0), max_tokens=60)
        tokens[name], found = answer.tokens, set(shown)
        shown.clear()
        assert {pages for _, pages in found} == ({1, 4} if name == "gathered" else {4})
        assert all((end <= 64) == (pages == 1) for end, pages in found if name == "gathered")
    assert tokens["gathered"] == tokens["other"]


def test_no_more_graphs_are_kept_than_their_number_allows(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.engine.graphs.MOST", 3)
    engine, plain = engine_with(make, Replayed), engine_with(make, Straight)
    for seed in range(4):
        asked = {"sampling": SamplingParams(temperature=1 + seed / 8, seed=seed), "max_tokens": 12}
        prompt = make.prompt_of(9, seed)
        assert make.answer(engine, prompt, **asked).tokens == make.answer(plain, prompt, **asked).tokens
    assert len(engine.decoder.graphs._captured) == 3


def test_what_a_broken_request_left_in_the_draft_window_is_not_seen(make: Any) -> None:
    fresh, used = (engine_with(make, Straight) for _ in range(2))
    for slots in (*used.decoder.draft_cache.k, *used.decoder.draft_cache.v):
        slots.fill_(float("nan"))
    records = [make.answer(engine, make.prompt_of(9), max_tokens=20) for engine in (fresh, used)]
    assert records[0].tokens == records[1].tokens
    assert [r.accepted for r in records[0].rounds] == [r.accepted for r in records[1].rounds]


@pytest.mark.gpu
@pytest.mark.parametrize("speculation", ("dflash", pytest.param("lookup", marks=pytest.mark.acceptance), "none"))
def test_captures_compute_what_their_pieces_compute(make: Any, speculation: str) -> None:
    """Real captures against the same pieces, which see the same shapes: here only a capture can make a difference.

    Against an engine without graphs, which shows its drafter a shorter window: `test_engine.py`.
    """
    if make.device.type == "cpu":
        pytest.skip("graphs are CUDA's")
    answers = {}
    for graphs in (Straight, Graphs):
        engine = engine_with(make, graphs)
        for seed, length in enumerate((30, 9, 100, 64, 1)):
            sampling = SamplingParams(temperature=seed % 3 * 0.5, seed=seed, top_k=5)
            asked = {"sampling": sampling, "max_tokens": 40, "speculation": speculation}
            answer = make.answer(engine, make.prompt_of(length, seed), **asked)
            answers[graphs, seed] = answer.tokens, [record.accepted for record in answer.rounds]
    for seed in range(5):
        assert answers[Graphs, seed] == answers[Straight, seed], seed


@pytest.mark.gpu
def test_engines_are_collected_during_a_hundred_captures(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine is part of a cycle, as a replaced method makes one, and is dropped inside a capture of the next."""
    if make.device.type == "cpu":
        pytest.skip("graphs are CUDA's")
    captures, dropped, thresholds = 0, [], gc.get_threshold()

    def capturing(work: Any) -> Any:
        nonlocal captures
        captures += 1

        def dropping() -> Any:
            dropped.clear()
            gc.collect()
            return work()

        return capture.capture(dropping)

    monkeypatch.setattr("runtime.engine.graphs.capture", capturing)
    prompt, answers = make.prompt_of(30), set()
    gc.set_threshold(1, 1, 1)
    try:
        while captures < 100:
            engine = make.engine(max_model_len=64)
            for _ in range(2):
                answers.add(tuple(make.answer(engine, prompt, max_tokens=24).tokens))
            engine.decoder.owner = engine
            dropped.append(engine)
            del engine
    finally:
        gc.set_threshold(*thresholds)
    assert len(answers) == 1
    assert torch.cuda.memory_allocated() < 2**30


def test_released_graphs_are_captured_anew(make: Any) -> None:
    engine = engine_with(make, Replayed)
    tokens = []
    for _ in range(2):
        with engine:
            tokens.append(make.answer(engine, make.prompt_of(9), max_tokens=20).tokens)
            assert engine.decoder.graphs._captured
        assert not engine.decoder.graphs._captured
    assert tokens[0] == tokens[1]
