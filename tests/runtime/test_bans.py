"""Texts, tokens and early ends that may not come, against a search of the whole text after every token."""

import random

import pytest
import torch

from runtime.workers.bans import AllowedTokens, BadWords, MinTokens, Texts, Together

TOKENS = [b"", b"a", b"b", b"ab", b"ba", b"aab", b" a", "ü".encode(), "ü".encode()[:1], "ü".encode()[1:], b"abab"]
WORDS = (["ab"], ["aba", "b "], ["ü"], ["a"], ["abaüab", "bb"])


@pytest.mark.parametrize("words", WORDS)
def test_a_token_is_barred_exactly_where_it_would_complete_a_word(words: list[str]) -> None:
    rng = random.Random(str(words))
    for _ in range(60):
        gate, text = BadWords(words, Texts(TOKENS)), b""
        for _ in range(8):
            drafts = rng.choices(range(len(TOKENS)), k=4)
            rows = gate.allowed(drafts)
            ahead = text
            for row, draft in zip(rows, [*drafts, 0], strict=True):
                expected = [not any(word.encode() in ahead + token for word in words) for token in TOKENS]
                assert row.tolist() == expected, (ahead, words)
                if not expected[draft]:
                    break  # rows behind a draft that is barred may hold anything
                ahead += TOKENS[draft]
            possible = gate.allowed([])[0].nonzero().flatten().tolist()
            token = rng.choice(possible)
            gate.advance([token])
            text += TOKENS[token]


def test_an_allow_list_and_a_late_end_together() -> None:
    gate = Together([AllowedTokens([1, 2, 5], 8), MinTokens(3, [5, 7], 8)])
    early, late = [False, True, True, False, False, False, False, False], [False, True, True, False, False, True, False]
    assert gate.allowed([1, 2, 1]).tolist() == [early, early, early, [*late, False]]
    gate.advance([1, 2])
    assert gate.allowed([1]).tolist() == [early, [*late, False]]
    gate.advance([1, 5])
    assert torch.equal(gate.allowed([])[0], torch.tensor([*late, False]))
