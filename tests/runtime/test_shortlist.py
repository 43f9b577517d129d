"""Heads that give the largest logits alone: the same answers, and every logit for a request that needs more."""

from typing import Any

import pytest
import torch

from runtime.engine.sequence import GenerateRequest, Generation
from runtime.models.layers import Rotary, Tables
from runtime.speculation.logprobs import LogprobsOrder
from runtime.speculation.penalties import Penalties
from runtime.speculation.sampling import SamplingParams

SAMPLED = SamplingParams(temperature=0.9, top_k=5, top_p=0.9, seed=3)


def engine_with(make: Any, schedule: str) -> Any:
    if make.device.type == "cuda":
        pytest.skip("the schedule for these sizes is the CPU's")
    target, draft = make.target_json(hidden_size=128), make.draft_json(hidden_size=128)
    return make.engine(target, draft, routes={"shortlist": schedule})


def runs(answer: Any, schedule: str) -> list[int]:
    """How many heads went through the schedule in each round."""
    return [sum(n for op, name, n in r.routes if (op, name) == ("shortlist", schedule)) for r in answer.rounds]


@pytest.mark.parametrize(
    ("sampling", "heads"),
    [(SAMPLED, 2), (SamplingParams(temperature=0), 2), (SamplingParams(temperature=0.8, seed=4), 1)],
    ids=["top-k", "greedy", "whole vocabulary"],
)
def test_answers_are_those_of_all_logits(make: Any, sampling: SamplingParams, heads: int) -> None:
    answers = {}
    for schedule in ("whole", "bound"):
        engine = engine_with(make, schedule)
        answers[schedule] = make.answer(engine, make.prompt_of(40), sampling=sampling, max_tokens=40)
    assert answers["bound"].tokens == answers["whole"].tokens
    assert [r.accepted for r in answers["bound"].rounds] == [r.accepted for r in answers["whole"].rounds]
    assert set(runs(answers["bound"], "bound")[:-1]) == {heads}  # the drafter's, and the target's where they suffice


@pytest.mark.parametrize(
    "asked",
    [{"penalties": Penalties(repetition=1.3)}, {"logprobs": LogprobsOrder(top=2, of_sampled_law=False)}],
    ids=["penalties", "logprobs"],
)
def test_what_changes_or_shows_logits_gets_all_of_them(make: Any, asked: dict[str, Any]) -> None:
    answers = [
        make.answer(engine_with(make, schedule), make.prompt_of(40), sampling=SAMPLED, max_tokens=20, **asked)
        for schedule in ("whole", "bound")
    ]
    assert answers[0].tokens == answers[1].tokens
    assert [r.logprobs for r in answers[0].rounds] == [r.logprobs for r in answers[1].rounds]
    assert set(runs(answers[1], "bound")[:-1]) == {1}


def test_a_grammar_gets_all_logits(make: Any) -> None:
    engine = engine_with(make, "bound")

    class Gate:
        def allowed(self, drafts: Any) -> torch.Tensor:
            return torch.ones(len(drafts) + 1, 131, dtype=torch.bool)

        def advance(self, tokens: Any) -> None:
            pass

    free = make.answer(engine, make.prompt_of(40), sampling=SAMPLED, max_tokens=20)
    answer = make.answer(engine, make.prompt_of(40), sampling=SAMPLED, max_tokens=20, gate=Gate())
    assert answer.tokens == free.tokens
    assert set(runs(answer, "bound")[:-1]) == {1}


def test_scores_that_are_scaled_or_capped_are_made_of_all_logits(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding behind the head could make a logit that is left out equal one that is not."""
    engine = engine_with(make, "bound")
    drafter = engine.decoder.drafter
    hidden = torch.randn(3, 128, generator=torch.Generator().manual_seed(1))
    assert drafter.best(hidden, 3).isinf().any()
    object.__setattr__(drafter.config, "final_logit_softcapping", 30.0)
    assert drafter.best(hidden, 3).equal(drafter.unary(hidden))


def test_a_verification_asks_for_what_its_sampling_may_need(make: Any) -> None:
    decoder = engine_with(make, "bound").decoder

    def wanted(**asked: Any) -> int | None:
        return decoder.logits_wanted(Generation(GenerateRequest([3, 4], **asked), (), 131, 64))

    assert wanted(sampling=SAMPLED) == 6
    assert wanted(sampling=SamplingParams(temperature=0)) == 2
    assert wanted(sampling=SamplingParams(temperature=1.0)) is None
    assert wanted(sampling=SamplingParams(temperature=1.0, top_k=131)) is None


def test_tables_made_together_are_those_of_each(device: torch.device) -> None:
    each = (Rotary(1e7, 64, device), Rotary(1e6, 128, device))
    for start in (0, 1000, 261_000):
        first = torch.tensor([start], device=device)
        for one, (cos, sin) in zip(each, Tables(each).of(first, 8), strict=True):
            want = one.table(first + torch.arange(8, device=device))
            assert cos.equal(want[0])
            assert sin.equal(want[1])
            assert cos.is_contiguous()
