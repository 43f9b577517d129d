"""Rounds of sixteen rows: the drafter's block and a second one of the request's own history."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine
from runtime.engine.sequence import GenerateRequest
from runtime.engine.shape import EngineOptions, EngineShape
from runtime.errors import ModelError
from runtime.speculation import lookup
from runtime.speculation.logprobs import LogprobsOrder
from runtime.speculation.penalties import Penalties
from runtime.speculation.sampling import SamplingParams
from runtime.speculation.second_block import SecondBlock

GREEDY = SamplingParams(temperature=0)
NANO = Path(__file__).parents[2] / "runtime/checkpoints/nano"
WIDE = {"speculation": "lookup", "num_speculative_tokens": 15}
PROMPT = 20


@pytest.fixture(scope="module")
def wide(make: Any) -> Engine:
    if make.device.type == "cuda":
        pytest.skip("refused on CUDA")
    return make.engine(lookup_rows=16, max_model_len=96)


def remember(monkeypatch: pytest.MonkeyPatch, answer: Sequence[int], wrong: int | None = None) -> None:
    """The history says `answer`, strongly, but for its token `wrong`, and goes on behind its end."""
    said = [(token + 1) % 131 if i == wrong else token for i, token in enumerate(answer)] + [9] * 16

    def continuation(tokens: Sequence[int], count: int) -> tuple[int, list[int]]:
        return lookup.STRONG, said[len(tokens) - PROMPT :][:count]

    monkeypatch.setattr(lookup, "continuation", continuation)


def both(make: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch, wrong: int | None = None, **asked: Any) -> Any:
    """The answer token by token, and in rounds of sixteen rows whose history says that answer."""
    asked = {"sampling": GREEDY, "max_tokens": 42, **asked}
    alone = make.answer(engine, make.prompt_of(PROMPT), speculation="none", **asked)
    with monkeypatch.context() as patch:
        remember(patch, alone.tokens, wrong)
        return alone, make.answer(engine, make.prompt_of(PROMPT), **WIDE, **asked)


def rounds(answer: SimpleNamespace) -> list[tuple[int, int, int]]:
    return [(record.rows, record.drafted, record.accepted) for record in answer.rounds]


def test_the_second_strong_match_opens_it(make: Any, wide: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, mine = both(make, wide, monkeypatch)
    assert mine.tokens == alone.tokens
    assert rounds(mine)[:3] == [(8, 7, 7), (16, 15, 15), (16, 15, 15)]
    narrow = make.answer(wide, make.prompt_of(PROMPT), sampling=GREEDY, max_tokens=20, speculation="lookup")
    assert {record.rows for record in narrow.rounds} == {8}, "nobody asked for more"


@pytest.mark.parametrize("wrong", (9, 10, 16, 17, 23, 24))
def test_a_rejected_draft_leaves_the_state_of_its_row(
    make: Any, wide: Engine, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    """Every selector of the second block is where the next round begins."""
    alone, mine = both(make, wide, monkeypatch, wrong)
    assert mine.tokens == alone.tokens
    assert rounds(mine)[1] == (16, 15, min(wrong - 9, 15))


@pytest.mark.parametrize("limit", (10, 17, 24, 25, 26))
def test_an_answer_ends_inside_it(make: Any, wide: Engine, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    alone, mine = both(make, wide, monkeypatch, max_tokens=limit)
    assert mine.tokens == alone.tokens and mine.finish == "length" and len(mine.tokens) == limit


@pytest.mark.parametrize("place", (12, 17, 20, 23))
def test_an_end_of_sequence_in_it_ends_the_answer(
    make: Any, wide: Engine, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """By the pieces of a greedy answer that the history knows beyond its end."""
    alone = make.answer(wide, make.prompt_of(PROMPT), sampling=GREEDY, max_tokens=42, speculation="none").tokens
    ending = next(i for i in range(place, 42) if alone[i] not in alone[:i])
    remember(monkeypatch, alone)
    mine = make.answer(wide, make.prompt_of(PROMPT), sampling=GREEDY, eos_ids=(alone[ending],), **WIDE)
    assert (mine.tokens, mine.finish) == (alone[: ending + 1], "stop")


@pytest.mark.parametrize("wrong", (None, 12))
@pytest.mark.parametrize("room", (9, 10, 17, 25, 26))
def test_capacity_narrows_it(
    make: Any, wide: Engine, monkeypatch: pytest.MonkeyPatch, room: int, wrong: int | None
) -> None:
    """No row beyond the window: the answer is as long as there is room, whatever is drafted."""
    engine = make.engine(lookup_rows=16, max_model_len=PROMPT + room)
    alone, mine = both(make, engine, monkeypatch, wrong, max_tokens=None)
    assert len(mine.tokens) == room and (mine.tokens, mine.finish) == (alone.tokens, alone.finish)
    left = room - 1  # tokens behind the one that the prefill gave
    for record in mine.rounds:
        assert record.rows <= left
        left -= len(record.token_ids)


class Gate:
    """Allows only tokens whose parity alternates."""

    def __init__(self) -> None:
        self.seen = 0

    def allowed(self, drafts: Sequence[int]) -> torch.Tensor:
        return torch.arange(131) % 2 == ((self.seen + torch.arange(len(drafts) + 1)) % 2)[:, None]

    def advance(self, tokens: Sequence[int]) -> None:
        self.seen += len(tokens)


ASKED: dict[str, Any] = {
    "penalties": lambda: {"penalties": Penalties(presence=0.5, frequency=0.7, repetition=1.3, bias=((9, 2.0),))},
    "grammar": lambda: {"gate": Gate()},
    "logprobs": lambda: {"logprobs": LogprobsOrder(3)},
    "sampled-law": lambda: {
        "logprobs": LogprobsOrder(3, of_sampled_law=True),
        "penalties": Penalties(frequency=0.7),
    },
}


@pytest.mark.parametrize("case", ASKED)
def test_its_rows_keep_what_a_request_asks(make: Any, wide: Engine, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    prompt, options = make.prompt_of(PROMPT), {"sampling": GREEDY, "max_tokens": 42}
    alone = make.answer(wide, prompt, speculation="none", **options, **ASKED[case]())
    remember(monkeypatch, alone.tokens)
    mine = make.answer(wide, prompt, **options, **WIDE, **ASKED[case]())
    assert mine.tokens == alone.tokens and (16, 15, 15) in rounds(mine)
    said, known = ([one for record in answer.rounds for one in record.logprobs] for answer in (mine, alone))
    assert len(said) == len(known)
    for one, other in zip(said, known, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]


def test_a_forbidden_draft_cuts_it(make: Any, wide: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, options = make.prompt_of(PROMPT), {"sampling": GREEDY, "max_tokens": 42}
    alone = make.answer(wide, prompt, speculation="none", gate=Gate(), **options)
    remember(monkeypatch, alone.tokens, wrong=20)  # of the other parity
    mine = make.answer(wide, prompt, **options, **WIDE, gate=Gate())
    assert mine.tokens == alone.tokens and rounds(mine)[1] == (13, 12, 11)


@pytest.mark.parametrize(
    ("said", "opened"),
    [
        ("s", "."),
        ("ssss", ".###"),
        ("s-s-s-s", "......."),
        ("ss-s", ".#.#"),
        ("ss--s", ".#..#"),
        ("ss---s", ".#...."),
        ("ss---ss", ".#....#"),
    ],
)
def test_two_strong_matches_open_it_and_three_rounds_keep_it_near(said: str, opened: str) -> None:
    block = SecondBlock()
    assert "".join("#" if block.opens(letter == "s") else "." for letter in said) == opened


def test_without_the_option_nothing_is_wider(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make.engine(max_model_len=96)
    assert engine.decoder.memory.pool.rows == 8 and engine.most_rows == 8
    alone, mine = both(make, engine, monkeypatch)
    assert mine.tokens == alone.tokens and {record.rows for record in mine.rounds} == {8}


def test_states_and_pages_of_sixteen_rows(make: Any) -> None:
    target, draft = TargetConfig.from_hf(make.target_json()), DraftConfig.from_hf(make.draft_json())
    eight, sixteen = (EngineShape.of(target, draft, EngineOptions(lookup_rows=rows)) for rows in (8, 16))
    states, more = (shape.required_bytes()["states"] for shape in (eight, sixteen))
    assert more > 1.9 * states and sixteen.page_size >= eight.page_size


BLOCK_OF_FOUR = {"block_size": 4, "mask_token_id": 3, "target_layer_ids": [0], "conv_group_size": 8}
REFUSED = {
    "odd": ({"lookup_rows": 12}, {}, "lookup_rows is 12; it is 8 or 16"),
    "no-drafter": ({}, None, "needs a drafter"),
    "window": ({}, {"sliding_window": 4, "dflash_config": BLOCK_OF_FOUR}, "which remembers 8 tokens"),
    "cuda": ({"device": "cuda"}, {}, "has not been run on CUDA"),
    "ranks": ({"world_size": 2, "rendezvous": "x"}, {}, "several ranks"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_sixteen_rows_refuse(make: Any, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    options, draft, words = REFUSED[case]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    target = TargetConfig.from_hf(make.target_json())
    drafter = None if draft is None else DraftConfig.from_hf(make.draft_json(**draft))
    with pytest.raises(ModelError, match=words):
        EngineShape.of(target, drafter, EngineOptions(**{"lookup_rows": 16, **options}))


def test_the_embedded_model_says_the_same_in_eight_rows_and_sixteen() -> None:
    """A prompt that it copies into its thoughts and again behind them, to its own end; nothing is scripted."""
    from runtime.text.tokenizer import ChatTemplate, TextTokenizer

    template, tokenizer = ChatTemplate.of_folder(NANO), TextTokenizer(NANO)
    asked = "Say this again: " + ", ".join(str(7 * i) for i in range(1, 21))
    prompt = tokenizer.encode(template.render([{"role": "user", "content": asked}]), False)
    engine, answers = Engine.load(NANO, EngineOptions(max_model_len=256, lookup_rows=16)), []
    for drafts in (7, 15):
        request = GenerateRequest(prompt, GREEDY, speculation="lookup", num_speculative_tokens=drafts)
        answers.append(list(engine.generate(request)))
    eight, sixteen = ([token for event in answer[:-1] for token in event.token_ids] for answer in answers)
    assert eight == sixteen and answers[0][-1].reason == answers[1][-1].reason == "stop"
    widths = [[record.rows for record in answer[1:-1]] for answer in answers]
    assert max(widths[0]) == 8 and max(widths[1]) == 16 and len(widths[1]) < len(widths[0])
