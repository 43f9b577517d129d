"""A declared model whose drafter is right at a chosen rate: real rounds, exact verification, natural ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.engine.engine import Engine
from runtime.engine.shape import EngineOptions
from runtime.errors import ModelError
from runtime.models.random_model import Declaration, write
from runtime.speculation.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def agreeing(make: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Engine]:
    def load(accepted: int, form: str = "nvfp4", **drafter: Any) -> Engine:
        config = make.draft_json()
        config["dflash_config"] |= {"selector_rank": 32} | drafter
        folder = tmp_path_factory.mktemp("agreeing")
        shape = {"target": make.target_json(linear_value_head_dim=16), "drafter": config}
        write(folder, shape, Declaration(1, form, accepted), tokenizer=folder)
        return Engine.load(folder, EngineOptions(max_model_len=512, device=make.device.type))

    return load


@pytest.mark.parametrize("accepted", [3, 6])
def test_a_greedy_round_accepts_what_was_chosen_and_says_what_no_drafter_would_change(
    make: Any, agreeing: Callable[..., Engine], accepted: int
) -> None:
    engine, prompt = agreeing(accepted), make.prompt_of(30)
    drafted, plain = (
        make.answer(engine, prompt, max_tokens=60, sampling=GREEDY, speculation=mode) for mode in ("dflash", "none")
    )
    assert drafted.tokens == plain.tokens and len(set(drafted.tokens)) > accepted
    assert {r.accepted for r in drafted.rounds[1:-1]} == {accepted}
    assert engine.made_weights is not None and engine.made_weights["accepted"] == accepted


def test_sampled_rounds_vary_about_it_and_answers_end_by_themselves(make: Any, agreeing: Callable[..., Engine]) -> None:
    engine = agreeing(5)
    counts, ends = [], set()
    for seed in range(6):
        sampling = SamplingParams(temperature=1.0, top_k=20, seed=seed)
        answer = make.answer(engine, make.prompt_of(20, seed), max_tokens=200, sampling=sampling, eos_ids=None)
        counts += [r.accepted for r in answer.rounds]
        ends.add(answer.finish)
    assert "stop" in ends
    assert 2.5 < sum(counts) / len(counts) < 6 and {0, 7} & set(counts) and len(set(counts)) > 4


def test_without_the_construction_next_to_nothing_is_accepted(make: Any, tmp_path: Path) -> None:
    shape = {"target": make.target_json(linear_value_head_dim=16), "drafter": make.draft_json()}
    write(tmp_path, shape, Declaration(1, "nvfp4"), tokenizer=tmp_path)
    engine = Engine.load(tmp_path, EngineOptions(max_model_len=128, device=make.device.type))
    answer = make.answer(engine, make.prompt_of(30), max_tokens=20, sampling=GREEDY)
    assert sum(r.accepted for r in answer.rounds) < len(answer.rounds)


def test_a_drafter_too_small_for_it_is_refused(agreeing: Callable[..., Engine]) -> None:
    with pytest.raises(ModelError, match="a selector of rank and top-k 13; the drafter's has 12 and 16"):
        agreeing(3, selector_rank=12)
