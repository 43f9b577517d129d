"""The context curve: exact lengths by token ids, scaled to the capacity, refused beyond it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.errors import UsageError
from campaigns.fixtures import (
    FILLER,
    PREFIX,
    PUBLIC_LENGTHS,
    TASK,
    Curve,
    curve_fixtures,
    prompt_ids,
    scaled_lengths,
    shortest,
)


def encode(text: str) -> list[int]:
    return [len(word) for word in text.split()]


SHORTEST = shortest(encode)


@given(st.integers(SHORTEST, 5000))
def test_prompts_have_exactly_the_wanted_length(length: int) -> None:
    ids = prompt_ids(length, encode)
    assert len(ids) == length
    assert ids[: len(encode(PREFIX))] == encode(PREFIX) and ids[-len(encode(TASK)) :] == encode(TASK)
    middle = ids[len(encode(PREFIX)) : length - len(encode(TASK))]
    assert middle == (encode(FILLER) * 200)[: len(middle)]


def test_the_public_curve_and_boundary_at_full_capacity() -> None:
    assert scaled_lengths(262_144) == PUBLIC_LENGTHS
    fixtures = curve_fixtures(Curve(PUBLIC_LENGTHS, boundary=True, seeds=(0, 2)), 262_144, encode)
    assert [f.id for f in fixtures] == [f"context-{n}" for n in PUBLIC_LENGTHS] + ["boundary"]
    lengths = [len(json.loads(f.body)["prompt"]) for f in fixtures]
    assert lengths == [*PUBLIC_LENGTHS, 262_136]
    assert [f.max_tokens for f in fixtures] == [256] * 5 + [8]
    assert not any(f.chat for f in fixtures) and all(f.seeds == (0, 2) for f in fixtures)


def test_answers_of_a_curve_are_as_long_as_their_cap_where_that_is_asked_for() -> None:
    plain, whole = (curve_fixtures(Curve((400,), ignore_eos=asked), 4096, encode)[0] for asked in (False, True))
    assert "ignore_eos" not in json.loads(plain.body)
    assert json.loads(whole.body) == json.loads(plain.body) | {"ignore_eos": True}


@pytest.mark.parametrize("capacity", [8192, 4096, 1024, 310])
def test_scaled_lengths_fill_the_capacity(capacity: int) -> None:
    lengths = scaled_lengths(capacity)
    assert list(lengths) == sorted(set(lengths)) and lengths[-1] + 256 == capacity
    made = curve_fixtures(Curve(scaled=True), capacity, encode)
    assert all(len(json.loads(f.body)["prompt"]) == int(f.id.partition("-")[2]) >= SHORTEST for f in made)


@pytest.mark.parametrize(
    ("curve", "capacity", "sentence"),
    [
        (Curve((4096,)), 4096, "4096 prompt tokens and 256 output tokens exceed the capacity of 4096"),
        (Curve(scaled=True), 256, "capacity of 256 tokens has no room for a prompt of"),
        (Curve((10,)), 4096, "10 tokens are too few: prefix and task alone are"),
        (Curve(boundary=True), 20, "too few"),
    ],
)
def test_what_does_not_fit_is_refused(curve: Curve, capacity: int, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        curve_fixtures(curve, capacity, encode)
