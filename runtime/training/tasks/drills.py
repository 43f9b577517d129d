# ruff: noqa: E501 -- wordings stay on one line
"""Short drills of two skills that every other kind leans on: copying from the prompt, and single sums.

They are taught and never measured. Copying is of words, numbers and pairs that cannot be guessed; sums have the ranges
that the worked exercises need.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from runtime.training.tasks import words
from runtime.training.tasks.exercise import Exercise, Template
from runtime.training.tasks.further_routines import name_of_pieces
from runtime.training.tasks.routines import camel

COPYING, SUMS = "copying", "sums"
_AGAIN = (
    "Say this again: {items}",
    "Repeat, word for word: {items}",
    "Copy this line.\n{items}",
    "Write once more: {items}",
)
_ASK = ("What is {key}?", "Which value has {key}?", "Look up {key}.", "Give the value of {key}.")
_WORK = ("Work out: {sums}", "Compute {sums}.", "Find each result: {sums}", "Give the results of {sums}.")


def templates() -> list[Template]:
    copying = [("again", _again, _AGAIN), ("lookup", _lookup, _ASK), ("object", _object, _AGAIN)]
    return [
        *(_template(COPYING, f"names-{i}/0", _names, w, 2) for i, w in enumerate(_AGAIN)),
        *(_template(COPYING, f"{name}-{i}/0", pose, w) for name, pose, ws in copying for i, w in enumerate(ws)),
        *(_template(SUMS, f"{sign}-{i}/0", _sums(signs), w) for sign, signs in _SIGNS.items() for i, w in enumerate(_WORK)),
    ]  # fmt: skip


def _template(
    kind: str, name: str, pose: Callable[[random.Random, str], Exercise], wording: str, edition: int = 1
) -> Template:
    return Template(kind, name, lambda rng: pose(rng, wording), _same, edition=edition)


def _same(answer: str, exercise: Exercise) -> bool:
    return answer == exercise.expected


def _item(rng: random.Random) -> str:
    """Something to copy: a word of any kind, a number, a date."""
    draw = rng.randrange(6)
    if draw == 0:
        return str(rng.randrange(10 ** rng.randint(1, 4)))
    if draw == 1:
        return f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    return (words.name, words.city, words.invented, lambda r: r.choice(words.THINGS))[draw - 2](rng)


def _again(rng: random.Random, wording: str) -> Exercise:
    items = ", ".join(_item(rng) for _ in range(rng.randint(2, 9)))
    return Exercise(wording.format(items=items), f"I copy: {items}", items, items)


def _names(rng: random.Random, wording: str) -> Exercise:
    """Of functions, as Python and as methods spell them."""
    names = [name_of_pieces(rng) for _ in range(rng.randint(2, 5))]
    items = ", ".join(camel(name) if rng.random() < 0.5 else name for name in names)
    return Exercise(wording.format(items=items), f"I copy: {items}", items, items)


def _lookup(rng: random.Random, wording: str) -> Exercise:
    """Several keys of one list; each has its own value."""
    keys = list(dict.fromkeys(_item(rng) for _ in range(rng.randint(3, 7))))
    values = {key: _item(rng) for key in keys}
    asked = rng.sample(keys, min(len(keys), rng.randint(1, 3)))
    text = rng.choice(("; ", "\n", ", ")).join(f"{key}: {value}" for key, value in values.items())
    question = f"{text}\n" + " ".join(wording.format(key=key) for key in asked)
    answer = "\n".join(values[key] for key in asked)
    return Exercise(question, " ".join(f"The value of {key} is {values[key]}." for key in asked), answer, answer)


def _object(rng: random.Random, wording: str) -> Exercise:
    values = {words.invented(rng): _item(rng) for _ in range(rng.randint(2, 5))}
    items, answer = ", ".join(f"{key} {value}" for key, value in values.items()), json.dumps(values)
    thinking = " ".join(f"The {key} is {json.dumps(value)}." for key, value in values.items())
    return Exercise(wording.format(items=items) + "\nUse JSON.", thinking, answer, answer)


def _plus(rng: random.Random) -> tuple[int, int, int]:
    top = 99 if rng.random() < 0.8 else 250
    a, b = rng.randint(1, top), rng.randint(1, 99)
    return a, b, a + b


def _minus(rng: random.Random) -> tuple[int, int, int]:
    a, b, total = _plus(rng)
    return total, b, a


def _times(rng: random.Random) -> tuple[int, int, int]:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    draw = rng.random()
    if draw < 0.3:
        a, b = rng.randint(2, 6), rng.randint(11, 45)
    elif draw < 0.4:
        a = rng.randint(5, 60)
        b = a + 1
    return a, b, a * b


def _over(rng: random.Random) -> tuple[int, int, int]:
    a, b, product = _times(rng)
    return product, a, b


_SIGNS: dict[str, tuple[tuple[str, Callable[[random.Random], tuple[int, int, int]]], ...]] = {
    "plus": (("+", _plus),),
    "minus": (("-", _minus),),
    "times": (("*", _times), ("\\cdot", _times)),
    "over": (("/", _over),),
    "mixed": (("+", _plus), ("-", _minus), ("*", _times), ("/", _over)),
}


def _sums(signs: tuple[tuple[str, Callable[[random.Random], tuple[int, int, int]]], ...]) -> Callable[..., Exercise]:
    def pose(rng: random.Random, wording: str) -> Exercise:
        drawn = [(rng.choice(signs)) for _ in range(rng.randint(4, 10))]
        worked = [(sign, *work(rng)) for sign, work in drawn]
        asked = "; ".join(f"{a} {sign} {b}" for sign, a, b, _ in worked)
        way = "\n".join(f"{a} {sign} {b} = {result}" for sign, a, b, result in worked)
        answer = ", ".join(str(result) for *_, result in worked)
        return Exercise(wording.format(sums=asked), way, answer, answer)

    return pose
