"""The fixtures of speed campaigns that depend on a tokenizer: the context curve and the boundary.

A curve prompt is a list of token ids of an exact length: a prefix, filler repeated as often as needed, a task. Nothing
is ever truncated: filler is cut to fit, prefix and task stay whole. Knows no tokenizer; the caller hands one in.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from campaigns.errors import UsageError
from campaigns.plan import Fixture

Encode = Callable[[str], Sequence[int]]

PUBLIC_CAPACITY = 262_144
PUBLIC_LENGTHS = (1_024, 32_768, 65_536, 131_072, 261_888)
OUTPUT_TOKENS = 256
BOUNDARY_OUTPUT_TOKENS = 8  # fewer than a block: the last steps are narrow

PREFIX = "Below are notes of a small workshop, then one programming task. Read the notes and solve the task.\n\n"
FILLER = (
    "On Monday the workshop repaired three chairs and a lamp. The oak boards came at noon and were stored by length. "
    "A customer asked for a shelf with five levels, each forty centimeters deep. The glue needs six hours to dry. "
    "In the evening the saw was cleaned and the shavings were packed into sacks for the stable next door.\n"
)
TASK = (
    "\nTask: write a Python function `longest_run(values)` that returns the length of the longest run of equal "
    "neighbours in a list, and explain in one sentence why it is linear.\n"
)


@dataclass(frozen=True)
class Curve:
    """Which lengths, in prompt tokens. `scaled` shrinks the public ones to the model's capacity.

    `caps` are the output tokens of each of the `lengths`, `output_tokens` where there are none. `ignore_eos` asks a
    server that knows the field (vLLM, SGLang, ours) for all of them: where an answer ends is chance, and a level of one
    round is none.
    """

    lengths: tuple[int, ...] = ()
    scaled: bool = False
    boundary: bool = False
    output_tokens: int = OUTPUT_TOKENS
    seeds: tuple[int, ...] = (0,)
    caps: tuple[int, ...] = ()
    ignore_eos: bool = False

    @property
    def wanted(self) -> bool:
        return bool(self.lengths) or self.scaled or self.boundary


def curve_fixtures(curve: Curve, capacity: int, encode: Encode) -> tuple[Fixture, ...]:
    """Fixtures `context-N` in rising length, then `boundary`. `capacity`: tokens of prompt and answer together."""
    scaled = scaled_lengths(capacity, curve.output_tokens, shortest(encode)) if curve.scaled else ()
    caps = dict(zip(curve.lengths, curve.caps, strict=True)) if curve.caps else {}
    lengths = sorted({*curve.lengths, *scaled})
    made = [_fixture(f"context-{n}", n, caps.get(n, curve.output_tokens), curve, capacity, encode) for n in lengths]
    if curve.boundary:
        room = capacity - BOUNDARY_OUTPUT_TOKENS
        made.append(_fixture("boundary", room, BOUNDARY_OUTPUT_TOKENS, curve, capacity, encode))
    return tuple(made)


def scaled_lengths(capacity: int, output_tokens: int = OUTPUT_TOKENS, least: int = 1) -> tuple[int, ...]:
    """The public lengths in proportion, none below `least`; the longest leaves exactly the output's room."""
    longest = capacity - output_tokens
    if longest < least:
        raise UsageError(
            f"fixtures.curve: a capacity of {capacity} tokens has no room for a prompt of {least} and {output_tokens} "
            "output tokens; lower output_tokens or serve with a larger --max-model-len"
        )
    shorter = {max(least, length * capacity // PUBLIC_CAPACITY) for length in PUBLIC_LENGTHS[:-1]}
    return tuple(sorted({n for n in shorter if n < longest} | {longest}))


def shortest(encode: Encode) -> int:
    """Tokens of prefix and task, which are never cut."""
    return len(encode(PREFIX)) + len(encode(TASK))


def prompt_ids(length: int, encode: Encode) -> list[int]:
    """Exactly `length` ids: whole prefix, filler cut to fit, whole task."""
    prefix, filler, task = (list(encode(text)) for text in (PREFIX, FILLER, TASK))
    room = length - len(prefix) - len(task)
    if room < 0 or not filler:
        raise UsageError(
            f"fixtures.curve: {length} tokens are too few: prefix and task alone are {len(prefix) + len(task)} with "
            "this tokenizer; drop this length"
        )
    return [*prefix, *itertools.islice(itertools.cycle(filler), room), *task]


def _fixture(name: str, length: int, output_tokens: int, curve: Curve, capacity: int, encode: Encode) -> Fixture:
    if length + output_tokens > capacity:
        raise UsageError(
            f"fixtures.curve: {length} prompt tokens and {output_tokens} output tokens exceed the capacity of "
            f"{capacity}; drop this length, or use scaled=true"
        )
    body = {"prompt": prompt_ids(length, encode)} | ({"ignore_eos": True} if curve.ignore_eos else {})
    return Fixture(name, json.dumps(body, separators=(",", ":")), curve.seeds, max_tokens=output_tokens, chat=False)
