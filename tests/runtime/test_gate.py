"""Grammars along drafts: what they allow, that looking ahead leaves no trace, and where they begin and end."""

import json
import random
from pathlib import Path

import pytest

from runtime.errors import RequestError
from runtime.text.tokenizer import TextTokenizer
from runtime.workers.gate import GrammarGate, GrammarTokenizer

CHECKPOINT = Path(__file__).resolve().parents[2] / "runtime/checkpoints/nano"
TEXT = TextTokenizer(CHECKPOINT)
EOS, PAD, THINK_END = TEXT.id_of("<|im_end|>"), TEXT.id_of("<|endoftext|>"), TEXT.id_of("</think>")
SCHEMA = {
    "type": "object",
    "properties": {"item": {"enum": ["lamp", "chair"]}, "count": {"type": "integer"}},
    "required": ["item", "count"],
    "additionalProperties": False,
}
GRAMMAR = f"%llguidance {{}}\nstart: %json {json.dumps(SCHEMA)}\n"
ANSWER = TEXT.encode('{"item": "lamp", "count": 31}')


def gate(opens_after: int | None = None) -> GrammarGate:
    return GrammarGate(GrammarTokenizer(CHECKPOINT, TEXT.num_ids, (EOS, PAD)), GRAMMAR, opens_after)


def test_a_valid_answer_is_allowed_token_by_token_and_then_only_its_end() -> None:
    walked = gate()
    for token in ANSWER:
        assert walked.allowed([])[0, token]
        walked.advance([token])
    assert walked.allowed([])[0].nonzero().flatten().tolist() == sorted((EOS, PAD))


def test_rows_along_drafts_are_those_met_one_by_one() -> None:
    ahead = gate().allowed(ANSWER)
    walked = gate()
    for row, token in zip(ahead, ANSWER, strict=False):
        assert row.equal(walked.allowed([])[0])
        walked.advance([token])
    assert ahead[len(ANSWER)].equal(walked.allowed([])[0])


def test_looking_ahead_leaves_no_trace() -> None:
    looked, rng = gate(), random.Random(0)
    for token in ANSWER:
        before = looked.allowed([])
        for _ in range(3):
            looked.allowed([*ANSWER[:2], *rng.choices(range(TEXT.num_ids), k=5)])
            looked.allowed(rng.choices([*ANSWER, EOS], k=7))
        assert looked.allowed([]).equal(before)
        looked.advance([token])


def test_a_forbidden_draft_is_marked_and_the_rows_behind_it_are_free() -> None:
    wrong = TEXT.encode("words")[0]
    rows = gate().allowed([ANSWER[0], wrong, ANSWER[1]])
    assert rows[0, ANSWER[0]] and not rows[1, wrong] and rows[2].all()


def test_the_grammar_begins_behind_the_reasoning_which_may_not_end_the_answer() -> None:
    thinking = gate(opens_after=THINK_END)
    rows = thinking.allowed([TEXT.encode("words")[0], THINK_END, ANSWER[0]])
    assert not rows[0, EOS] and rows[0, THINK_END] and rows[1].sum() == TEXT.num_ids - 2
    assert rows[2].equal(gate().allowed([])[0]) and rows[3].equal(gate().allowed([ANSWER[0]])[1])
    thinking.advance([TEXT.encode("words")[0], THINK_END])
    assert thinking.allowed([])[0].equal(gate().allowed([])[0])


def test_drafts_behind_the_end_are_not_walked() -> None:
    finished = gate()
    finished.advance(ANSWER)
    assert finished.allowed([EOS, EOS, PAD])[0, EOS]
    finished.advance([EOS])


def test_a_broken_promise_is_an_error() -> None:
    with pytest.raises(RequestError, match="cannot be followed"):
        gate().advance([EOS])
