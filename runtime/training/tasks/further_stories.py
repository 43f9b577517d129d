# ruff: noqa: E501 -- wordings stay on one line
"""Word problems of the second edition: one saying is put together with many doers, places and times.

Two amounts compared, places that people enter and leave, a rate kept up and changed, shares, and what is left of three
parts. Those of the first edition were each written once, so that a model learnt the story and not its words.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Numbers = Callable[[random.Random], tuple[int, int, int]]


@dataclass(frozen=True)
class Story:
    """`text` asks; `steps` are (sentence, expression) pairs over a, b, c and earlier results x, y."""

    name: str
    numbers: Numbers
    text: str
    steps: tuple[tuple[str, str], ...]


# says, of what, to do
_DOINGS = (
    ("collects", "{thing}", "collect"), ("sells", "{thing}", "sell"), ("reads", "pages", "read"), ("earns", "dollars", "earn"),
    ("picks", "{thing}", "pick"), ("walks", "kilometers", "walk"), ("bakes", "rolls", "bake"), ("paints", "{thing}", "paint"),
)  # fmt: skip
_TIMES = (
    ("on Monday", "on Tuesday"), ("in spring", "in summer"), ("in the first week", "in the second week"), ("last year", "this year"),
    ("in the morning", "in the evening"), ("in March", "in April"), ("on Friday", "on Sunday"),
)  # fmt: skip
_COMPARED = (
    ("times", "{b} times as many", "b * a"),
    ("more", "{b} more", "a + b"),
    ("fewer", "{b} fewer", "a - b"),
)
_COMPARISONS = (
    "{name} {does} {a} {unit} {first} and {compared} {second}.",
    "{First} {name} {does} {a} {unit}. {Second} it is {compared}.",
    "{name} {does} {a} {unit} {first}. {Second} {name} {does} {compared}.",
)
_TOTALS = (
    "How many {unit} does {name} {do} in all?",
    "How many {unit} is that together?",
    "How many {unit} does {name} {do} {first} and {second} together?",
    "What is the total number of {unit}?",
)
# What it is, who is there, where they are, how they come and go
_PLACES = (
    ("bus", "people", "on the bus", "get on", "get off"), ("ferry", "passengers", "on the ferry", "come aboard", "leave"),
    ("museum", "visitors", "in the museum", "come in", "go out"), ("hall", "guests", "in the hall", "arrive", "go home"),
    ("lift", "people", "in the lift", "step in", "step out"), ("cafe", "guests", "in the cafe", "come", "go"),
    ("tram", "riders", "on the tram", "board", "get off"), ("park", "children", "in the park", "join", "leave"),
)  # fmt: skip
_CHANGES = (
    "A {place} has {a} {who}. First {b} {one}, then {c} {two}. How many {who} are {where} now?",
    "There are {a} {who} {where}. {b} {one} and {c} {two}. How many {who} are there then?",
    "{a} {who} are {where}. After a while {b} {one}, and later {c} {two}. How many {who} are {where} in the end?",
    "A {place} holds {a} {who}. At noon {b} {one}. In the afternoon {c} {two}. How many {who} does it hold in the evening?",
)
_RATES = (
    ("{name} {does} {b} {unit} a day for {a} days.", "In {a} days {name} {does}"),
    ("Every hour {name} {does} {b} {unit}, for {a} hours.", "In {a} hours {name} {does}"),
    ("For {a} weeks {name} {does} {b} {unit} each week.", "In {a} weeks {name} {does}"),
    ("{name} {does} {b} {unit} on each of {a} days.", "On these days {name} {does}"),
)
_AFTERWARDS = (
    ("Then {name} {does} {c} more.", "+", "How many {unit} is that in all?", "In all that makes"),
    ("{other} {does} {c} {unit}.", "+", "How many {unit} is that for both?", "For both that makes"),
    ("On the last day {name} {does} {c} {unit}.", "+", "How many {unit} does {name} {do} in all?", "In all that makes"),
    ("{c} of the {unit} do not count.", "-", "How many {unit} count?", "What counts is"),
    ("{name} wants {c} fewer than that.", "-", "How many {unit} does {name} want?", "{name} wants"),
)
_HOLDERS = (
    ("{name} puts {b} {thing} into each of {a} {holder}.", "In the {holder} there are"),
    ("In each of {a} {holder} there are {b} {thing}.", "In the {holder} there are"),
    ("{name} buys {a} {holder}, each with {b} {thing}.", "{name} buys"),
    ("{a} {holder} hold {b} {thing} each.", "The {holder} hold"),
)
_CONTENTS = (
    ("{c} of the {thing} are bad.", "-", "How many {thing} are good?", "Good are"),
    ("{name} needs {c} of them.", "-", "How many {thing} are not needed?", "Not needed are"),
    ("{c} {thing} fall out.", "-", "How many {thing} are still inside?", "Still inside are"),
    ("Of these, {c} belong to {other}.", "-", "How many {thing} do not belong to {other}?", "Not of {other} are"),
    ("There are {c} {thing} more on the table.", "+", "How many {thing} are there together?", "Together there are"),
    ("{other} brings {c} {thing}.", "+", "How many {thing} do they have then?", "Then they have"),
)
_SHARES = (
    ("{b} children share {a} {thing} equally.", "Each child gets"),
    ("{a} {thing} are divided evenly among {b} children.", "Each child gets"),
    ("{name} gives {a} {thing} to {b} children, and each gets the same number.", "Each child gets"),
)
_OF_SHARES = (
    ("Every child then finds {c} more.", "+", "How many {thing} has each child then?", "Then each child has"),
    ("Each child loses {c} of them.", "-", "How many {thing} has each child left?", "Each child has left"),
    ("One child gives {c} {thing} to {other}.", "-", "How many {thing} does this child keep?", "This child keeps"),
    (
        "Each of the {thing} costs {c} dollars.",
        "*",
        "How many dollars are the {thing} of one child worth?",
        "They are worth",
    ),
)
_PARTS = (
    ("Of {a} {thing}, {b} are red and {c} are blue. The rest are green. How many {thing} are green?", "Without the red ones there are", "Green are"),
    ("{name} has {a} {thing}. {b} go to {other} and {c} get lost. How many {thing} does {name} keep?", "Without those of {other} there are", "{name} keeps"),
    ("{a} children play. {b} of them are in the garden, {c} are in the street, and the others are at home. How many children are at home?", "Not in the garden are", "At home are"),
    ("A book has {a} pages. {name} reads {b} pages today and {c} pages tomorrow. How many pages are left to read?", "After today there are", "After tomorrow there are"),
    ("{name} wants to save {a} dollars and has {b}. {other} gives {name} {c} dollars. How many dollars are missing?", "Without the present there are missing", "Then there are missing"),
    ("A rope is {a} meters long. {name} cuts off {b} meters and later {c} meters. How many meters long is the rope then?", "After the first cut there are", "After the second cut there are"),
    ("A can holds {a} liters. {b} liters are used at home and {c} liters in the garden. How many liters remain?", "After the use at home there are", "Remaining are"),
    ("{name} pays for a coat of {b} dollars and a hat of {c} dollars with {a} dollars. How many dollars does {name} get back?", "After the coat there are", "{name} gets back"),
)  # fmt: skip
_COSTS = (
    ("{a} {thing} cost {b} dollars each, and a bag costs {c} dollars. How many dollars is that in all?", "The {thing} cost", "In all that makes"),
    ("{name} pays {b} dollars for every one of {a} {thing} and {c} dollars for sending them. How many dollars does {name} pay?", "The {thing} cost", "With the sending that makes"),
    ("For {a} hours of work {name} gets {b} dollars an hour, and {c} dollars on top. How many dollars does {name} get?", "The hours bring", "In all {name} gets"),
    ("A room costs {b} dollars a night. {name} stays {a} nights and pays {c} dollars for breakfast. How many dollars is that?", "The nights cost", "In all that makes"),
)  # fmt: skip


def stories() -> Iterator[Story]:
    yield from _compared()
    yield from _changing()
    yield from _going_on("rate", _RATES, _AFTERWARDS, _DOINGS)
    yield from _going_on("holder", _HOLDERS, _CONTENTS, (("", "{thing}", ""),))
    yield from _going_on("share", _SHARES, _OF_SHARES, (("", "{thing}", ""),))
    for number, (text, first, second) in enumerate(_PARTS):
        yield Story(f"parts-{number}", _drawing("-", "-"), text, ((first, "a - b"), (second, "x - c")))
    for number, (text, first, second) in enumerate(_COSTS):
        yield Story(f"costs-{number}", _drawing("*", "+"), text, ((first, "a * b"), (second, "x + c")))


def _compared() -> Iterator[Story]:
    for d, (does, unit, do) in enumerate(_DOINGS):
        for k, (kind, compared, expression) in enumerate(_COMPARED):
            for w, wording in enumerate(_COMPARISONS):
                first, second = _TIMES[(d + 2 * k + 3 * w) % len(_TIMES)]
                parts = {"does": does, "unit": unit, "do": do, "first": first, "second": second, "compared": compared}
                text = f"{wording} {_TOTALS[(d + k + w) % len(_TOTALS)]}"
                steps = ((f"{_capital(second)} {{name}} {does}", expression), ("In all that makes", "a + x"))
                yield Story(f"compared-{kind}-{do}-{w}", _drawing(expression[2], "+"), _part(text, parts), steps)


def _changing() -> Iterator[Story]:
    for place, who, where, come, go in _PLACES:
        for first, second in ("+-", "-+", "++", "--"):
            for w, wording in enumerate(_CHANGES):
                one, two = (come if sign == "+" else go for sign in (first, second))
                text = _part(wording, {"place": place, "who": who, "where": where, "one": one, "two": two})
                steps = (
                    (f"After {{b}} {one} there are", f"a {first} b"),
                    (f"After {{c}} {two} there are", f"x {second} c"),
                )
                yield Story(
                    f"{place}-{''.join(_NAMES[sign] for sign in (first, second))}-{w}",
                    _drawing(first, second),
                    text,
                    steps,
                )


def _going_on(
    name: str,
    beginnings: tuple[tuple[str, str], ...],
    endings: tuple[tuple[str, str, str, str], ...],
    doings: tuple[tuple[str, str, str], ...],
) -> Iterator[Story]:
    """Every doing begun and ended in every way: a product or a quotient, then one more step."""
    first = "/" if name == "share" else "*"
    for does, unit, do in doings:
        for b, (beginning, said) in enumerate(beginnings):
            for e, (ending, sign, question, last) in enumerate(endings):
                parts = {"does": does, "unit": unit, "do": do}
                text, *saying = (_part(part, parts) for part in (f"{beginning} {ending} {question}", said, last))
                steps = ((saying[0], f"a {first} b"), (saying[1], f"x {sign} c"))
                yield Story(f"{name}-{do or 'it'}-{b}-{e}", _drawing(first, sign), text, steps)


def _part(text: str, parts: dict[str, str]) -> str:
    """`text` with some of its fields filled in; those of numbers and names stay."""
    for name, value in parts.items():
        text = text.replace(f"{{{name}}}", value).replace(f"{{{name.capitalize()}}}", _capital(value))
    return text


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _drawing(first: str, second: str) -> Numbers:
    """Numbers a, b, c so that `a first b` and what follows are whole and above zero."""

    def numbers(rng: random.Random) -> tuple[int, int, int]:
        a, b, result = _PAIRS[first](rng)  # a result is at least 2
        most = {"+": 40, "-": result - 1, "*": 9}[second]
        return a, b, rng.randint(1, most)

    return numbers


def _plus(rng: random.Random) -> tuple[int, int, int]:
    a, b = rng.randint(4, 60), rng.randint(2, 40)
    return a, b, a + b


def _minus(rng: random.Random) -> tuple[int, int, int]:
    a = rng.randint(6, 90)
    b = rng.randint(2, a - 2)
    return a, b, a - b


def _times(rng: random.Random) -> tuple[int, int, int]:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    return a, b, a * b


def _over(rng: random.Random) -> tuple[int, int, int]:
    a, b, product = _times(rng)
    return product, a, b


_NAMES = {"+": "in", "-": "out"}
_PAIRS = {"+": _plus, "-": _minus, "*": _times, "/": _over}
