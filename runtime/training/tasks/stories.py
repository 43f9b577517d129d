"""Word problems put together from a beginning, one or two events, and a question.

Every combination is a problem of its own, so that held-out ones ask in known words for an unknown order of steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from runtime.training.tasks import words

Step = tuple[str, int, str, int, int]
"""What a line says first, then left, sign, right and result."""


@dataclass(frozen=True)
class Beginning:
    """`text` states a and b; `sign` joins them, or there is no b and no step."""

    name: str
    text: str
    sign: str
    said: str


@dataclass(frozen=True)
class Event:
    """`text` states n, which `sign` adds to or takes from what there is."""

    name: str
    text: str
    sign: str
    said: str


@dataclass(frozen=True)
class Plot:
    name: str
    beginning: Beginning
    events: tuple[Event, ...]
    question: str


@dataclass(frozen=True)
class Told:
    """One drawing of a plot."""

    text: str
    steps: tuple[Step, ...]


BEGINNINGS = (
    Beginning("owns", "{name} has {a} {thing}.", "", ""),
    Beginning("starts", "At first {name} has {a} {thing}.", "", ""),
    Beginning("two-days", "{name} collects {a} {thing} on Monday and {b} {thing} on Tuesday.", "+", "{name} collects"),
    Beginning("two-places", "{name} finds {a} {thing} at home and {b} {thing} in the garden.", "+", "{name} finds"),
    Beginning(
        "with-friend", "{name} has {a} {thing} and {other} has {b}. They put them together.", "+", "Together they have"
    ),
    Beginning("holders", "{name} has {a} {holder} with {b} {thing} in each.", "*", "In the {holder} there are"),
    Beginning("fills", "{name} fills {a} {holder} with {b} {thing} each.", "*", "{name} fills in"),
    Beginning("buys-packs", "{name} buys {a} {holder} of {b} {thing}.", "*", "{name} buys"),
)
EVENTS = (
    Event("finds", "{name} finds {n} more.", "+", "After the find there are"),
    Event("buys", "{name} buys {n} more {thing}.", "+", "After buying there are"),
    Event("gets", "{other} gives {name} {n} more.", "+", "With the gift there are"),
    Event("mail", "Then {n} more come in the mail.", "+", "With the mail there are"),
    Event("gives", "{name} gives {n} of them to {other}.", "-", "After giving there are"),
    Event("loses", "{name} loses {n} {thing}.", "-", "After the loss there are"),
    Event("sells", "{name} sells {n} of the {thing}.", "-", "After the sale there are"),
    Event("break", "{n} of them break.", "-", "Whole are"),
    Event("takes", "{other} takes {n} away.", "-", "Left are"),
)
QUESTIONS = ("How many {thing} are there now?", "How many {thing} are there in the end?")  # fmt: skip


def plots() -> Iterator[Plot]:
    """Two or three steps each."""
    for beginning in BEGINNINGS:
        chains = [(event,) for event in EVENTS] if beginning.sign else []
        chains += [pair for pair in product(EVENTS, EVENTS) if pair[0] != pair[1]]
        for i, events in enumerate(chains):
            name = "-".join((beginning.name, *(event.name for event in events)))
            yield Plot(name, beginning, events, QUESTIONS[i % len(QUESTIONS)])


def told(plot: Plot, rng: random.Random) -> Told:
    fill = {
        "name": words.name(rng),
        "other": words.name(rng),
        "thing": rng.choice(words.THINGS),
        "holder": rng.choice(words.HOLDERS),
    }
    a, b = _BOUNDS[plot.beginning.sign](rng)
    total = {"+": a + b, "*": a * b, "": a}[plot.beginning.sign]
    sentences, steps = [plot.beginning.text.format(a=a, b=b, **fill)], []
    if plot.beginning.sign:
        steps.append((plot.beginning.said.format(**fill), a, plot.beginning.sign, b, total))
    for event in plot.events:
        n = rng.randint(1, 40) if event.sign == "+" else rng.randint(1, max(1, total - 1))
        after = total + n if event.sign == "+" else total - n
        sentences.append(event.text.format(n=n, **fill))
        steps.append((event.said, total, event.sign, n, after))
        total = after
    return Told(" ".join((*sentences, plot.question.format(**fill))), tuple(steps))


_BOUNDS: dict[str, Callable[[random.Random], tuple[int, int]]] = {
    "": lambda rng: (rng.randint(5, 90), 0),
    "+": lambda rng: (rng.randint(3, 60), rng.randint(3, 40)),
    "*": lambda rng: (rng.randint(2, 12), rng.randint(2, 12)),
}
