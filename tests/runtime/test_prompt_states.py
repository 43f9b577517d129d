"""A prompt whose state is copied back gives the same tokens and acceptance, and only where that was asked for."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runtime.engine import prompts
from runtime.engine.engine import Engine
from runtime.engine.sequence import GenerateRequest
from runtime.speculation.modes import MODES
from runtime.speculation.sampling import SamplingParams

CPU = torch.device("cpu")
LONG, SHORT = 90, 5  # more and fewer than the drafter's window of 32, a page of 16


def told(answer: SimpleNamespace) -> Any:
    """What two requests may differ in, times apart."""
    return answer.tokens, [(r.kind, r.rows, r.drafted, r.accepted, r.token_ids) for r in answer.rounds], answer.finish


@pytest.fixture(scope="module", params=["float32", "fp8_e4m3"])
def engines(request: Any, make: Any) -> tuple[Engine, Engine]:
    """One that computes every prompt, one that keeps states; pages lie in no order."""
    built = tuple(
        make.engine(make.target_json(), make.draft_json(), kv_cache_dtype=request.param, prompt_state=state)
        for state in (prompts.COMPUTED, prompts.SNAPSHOT)
    )
    for engine in built:
        engine.decoder.memory.cache.remap(list(reversed(range(32))))
    return built


@pytest.mark.parametrize("speculation", MODES)
@pytest.mark.parametrize("length", [LONG, pytest.param(SHORT, marks=pytest.mark.acceptance)])
def test_a_restored_prompt_is_answered_as_a_computed_one(
    make: Any, engines: tuple[Engine, Engine], length: int, speculation: str
) -> None:
    computing, keeping = engines
    mine, other = make.prompt_of(length, MODES.index(speculation)), make.prompt_of(LONG + 7, 9)
    asked = {"max_tokens": 12, "speculation": speculation}
    for seed, restored in ((3, 0), (3, length), (4, length)):  # another seed draws from the same prompt
        sampling = SamplingParams(temperature=1.0, top_k=20, seed=seed)
        fresh, again = (make.answer(engine, mine, sampling=sampling, **asked) for engine in (computing, keeping))
        assert (fresh.prefill.cached_tokens, again.prefill.cached_tokens) == (0, restored)
        assert told(fresh) == told(again)
        make.answer(keeping, other, **asked)  # overwrites pages, states and window


def test_memory_is_the_same_bit_for_bit(make: Any) -> None:
    engine = make.engine(make.target_json(), make.draft_json(), prompt_state="snapshot")
    prompt, seen = make.prompt_of(LONG), []
    for _ in range(2):
        events = engine.generate(GenerateRequest(prompt, max_tokens=4, eos_ids=()))
        prefill = next(events)
        memory, state = engine.decoder.memory, SimpleNamespace(slots=(0,), line=0)
        state.slots = (memory.pool._tables[0][0].item(),)
        parts = [*memory.cache.saved(LONG, CPU), *memory.pool.saved(state, CPU), *engine.decoder.draft_cache.saved(CPU)]
        seen.append((prefill.cached_tokens, engine.decoder.draft_cache.length, parts))
        events.close()
        make.answer(engine, make.prompt_of(LONG + 20, 9), max_tokens=9)
    (first, length, computed), (second, length_again, restored) = seen
    assert (first, second) == (0, LONG) and length == length_again == LONG
    both = zip(computed, restored, strict=True)
    assert all(torch.equal(one.view(torch.uint8), other.view(torch.uint8)) for one, other in both)


def test_another_arm_or_way_of_drafting_computes_its_own(make: Any, column_tiles: None) -> None:
    engine, prompt = make.engine(make.target_json(), make.draft_json(), prompt_state="snapshot"), make.prompt_of(12)
    cached = []
    for arm, speculation in (({}, "dflash"), ({"projection": "columns-32"}, "dflash"), ({}, "none"), ({}, "dflash")):
        engine.routes.enable(arm)
        cached.append(make.answer(engine, prompt, max_tokens=3, speculation=speculation).prefill.cached_tokens)
    assert cached == [0, 0, 0, 12]


def test_a_shared_prompt_is_computed_once_and_both_arms_answer_as_behind_their_own(
    make: Any, column_tiles: None
) -> None:
    computing, sharing = (
        make.engine(make.target_json(), make.draft_json(), prompt_state=state)
        for state in (prompts.COMPUTED, prompts.SHARED)
    )
    prompt, asked = make.prompt_of(LONG), {"sampling": SamplingParams(temperature=1.0, top_k=20, seed=3)}
    fresh = make.answer(computing, prompt, max_tokens=12, **asked)
    arm = {"projection": "columns-32"}
    sharing.routes.enable(arm)
    first = make.answer(sharing, prompt, max_tokens=1, **asked)
    assert first.prefill.cached_tokens == 0 and sharing.routes.enabled == arm
    assert not any(count["schedule"] == "columns-32" for count in sharing.counters())
    for schedules in (arm, {}):
        sharing.routes.enable(schedules)
        answer = make.answer(sharing, prompt, max_tokens=12, **asked)
        assert answer.prefill.cached_tokens == LONG and told(answer) == told(fresh)
    assert any(count["schedule"] == "columns-32" for count in sharing.counters())
    without = make.answer(sharing, prompt, max_tokens=3, speculation="none")
    assert without.prefill.cached_tokens == 0  # its state has no window of the drafter


def test_the_least_recently_used_is_dropped(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MOST", 2)
    engine = make.engine(make.target_json(), make.draft_json(), prompt_state="snapshot")
    cached = [make.answer(engine, make.prompt_of(9, i), max_tokens=2).prefill.cached_tokens for i in (1, 2, 1, 3, 1, 2)]
    assert cached == [0, 0, 9, 0, 9, 0]


def test_nothing_is_kept_unless_the_engine_was_told(make: Any) -> None:
    engine = make.engine(make.target_json(), make.draft_json())
    answers = [make.answer(engine, make.prompt_of(9), max_tokens=4) for _ in range(2)]
    assert [answer.prefill.cached_tokens for answer in answers] == [0, 0] and not engine.decoder.prompts._kept
    assert all(told(one) == told(other) for one, other in pairwise(answers))
