# ruff: noqa: E501 -- wordings stay on one line
"""Word problems in a few steps, worked aloud: grade-school arithmetic.

A template joins a *story* (one wording of one chain of steps) with a way to ask for the answer's form. The steps are
computed here, so that text and numbers cannot disagree.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from runtime.training.exercise import Exercise, Template

KIND = "gsm8k"

NAMES = ("Ada", "Bruno", "Clara", "David", "Elsa", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Karla", "Leo", "Marta",
         "Nils", "Ottilie", "Peter", "Rosa", "Simon", "Tilda", "Viktor")  # fmt: skip
THINGS = ("apples", "pears", "cards", "shells", "stamps", "coins", "beads", "buttons", "candles", "cookies", "flowers",
          "pencils", "ribbons", "stones", "tickets", "toys", "plums", "marbles", "stickers", "books")  # fmt: skip
HOLDERS = ("bags", "boxes", "baskets", "crates", "jars", "packs", "shelves", "trays", "rows", "drawers")

SUFFIXES = (
    "",
    "\nPut your final answer within \\boxed{}.",
    "\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "\nGive the final answer in \\boxed{}.",
    "\n\nThink step by step. End with the number in \\boxed{}.",
)


@dataclass(frozen=True)
class Draw:
    """The words and numbers of one exercise."""

    name: str
    other: str
    thing: str
    holder: str
    a: int
    b: int
    c: int


@dataclass(frozen=True)
class Story:
    """`text` asks; `steps` are (sentence, expression) pairs over a, b, c and earlier results x, y."""

    name: str
    numbers: Callable[[random.Random], tuple[int, int, int]]
    text: str
    steps: tuple[tuple[str, str], ...]


def _sum_minus(rng: random.Random) -> tuple[int, int, int]:
    a, b = rng.randint(5, 60), rng.randint(3, 40)
    return a, b, rng.randint(2, a + b - 1)


def _product_plus(rng: random.Random) -> tuple[int, int, int]:
    return rng.randint(2, 12), rng.randint(2, 12), rng.randint(1, 40)


def _product_minus(rng: random.Random) -> tuple[int, int, int]:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    return a, b, rng.randint(1, a * b - 1)


def _quotient(rng: random.Random) -> tuple[int, int, int]:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    return a * b, a, rng.randint(1, max(1, b - 1))


def _minus_minus(rng: random.Random) -> tuple[int, int, int]:
    b, c = rng.randint(2, 30), rng.randint(2, 30)
    return b + c + rng.randint(1, 40), b, c


def _minus_plus(rng: random.Random) -> tuple[int, int, int]:
    a = rng.randint(10, 90)
    return a, rng.randint(2, a - 2), rng.randint(2, 40)


def _rise(rng: random.Random) -> tuple[int, int, int]:
    a = rng.randint(4, 40)
    return a, rng.randint(2, 5), rng.randint(2, 20)


def _fewer(rng: random.Random) -> tuple[int, int, int]:
    a = rng.randint(6, 60)
    return a, rng.randint(2, a - 2), rng.randint(1, 9)


STORIES = (
    Story("gift", _sum_minus, "{name} has {a} {thing} and finds {b} more. Then {name} gives {c} {thing} to {other}. How many {thing} does {name} have left?",
          (("With the new ones {name} has", "a + b"), ("After the gift {name} has", "x - c"))),
    Story("two-piles", _sum_minus, "{name} collects {a} {thing} in the morning and {b} {thing} in the afternoon. {c} of the {thing} are broken. How many {thing} are whole?",
          (("Together {name} collects", "a + b"), ("Whole are", "x - c"))),
    Story("bought-used", _sum_minus, "{name} buys {a} {thing} on Monday and {b} {thing} on Tuesday, and uses {c} of them on Wednesday. How many {thing} remain?",
          (("{name} buys", "a + b"), ("Remaining are", "x - c"))),
    Story("boxes-plus", _product_plus, "{name} has {a} {holder} with {b} {thing} in each, and {c} single {thing}. How many {thing} does {name} have in all?",
          (("In the {holder} there are", "a * b"), ("In all there are", "x + c"))),
    Story("price", _product_plus, "{name} buys {a} {thing} for {b} dollars each and a drink for {c} dollars. How many dollars does {name} spend?",
          (("The {thing} cost", "a * b"), ("Together that makes", "x + c"))),
    Story("weekly-plus", _product_plus, "Each week {name} saves {b} dollars. After {a} weeks {other} adds {c} dollars. How many dollars does {name} have then?",
          (("{name} saves", "a * b"), ("With the present there are", "x + c"))),
    Story("boxes-minus", _product_minus, "{name} fills {a} {holder} with {b} {thing} each. {other} takes {c} {thing} away. How many {thing} are left?",
          (("There are", "a * b"), ("Left are", "x - c"))),
    Story("rows-minus", _product_minus, "There are {a} {holder} with {b} {thing} in each of them. {c} of the {thing} are blue and the rest are red. How many {thing} are red?",
          (("In all there are", "a * b"), ("Red are", "x - c"))),
    Story("earn-spend", _product_minus, "{name} earns {b} dollars an hour and works {a} hours. Then {name} spends {c} dollars. How many dollars are left?",
          (("{name} earns", "b * a"), ("Left are", "x - c"))),
    Story("share", _quotient, "{b} friends share {a} {thing} equally. {name} is one of them and gives {c} {thing} to {other}. How many {thing} does {name} keep?",
          (("Each friend gets", "a / b"), ("{name} keeps", "x - c"))),
    Story("pack-sell", _quotient, "{name} packs {a} {thing} into {holder} of {b} and sells every full one for {c} dollars. How many dollars does {name} get?",
          (("{name} fills", "a / b"), ("The sale brings", "x * c"))),
    Story("share-plus", _quotient, "{name} divides {a} {thing} evenly among {b} children. {other} gives every child {c} more. How many {thing} does each child have?",
          (("Each child gets", "a / b"), ("Then each child has", "x + c"))),
    Story("twice-taken", _minus_minus, "A shop has {a} {thing}. It sells {b} on Friday and {c} on Saturday. How many {thing} are left in the shop?",
          (("After Friday there are", "a - b"), ("After Saturday there are", "x - c"))),
    Story("spend-twice", _minus_minus, "{name} has {a} dollars. {name} pays {b} dollars for {thing} and {c} dollars for the bus. How many dollars does {name} still have?",
          (("After the first payment {name} has", "a - b"), ("After the second one {name} has", "x - c"))),
    Story("bus", _minus_plus, "A bus carries {a} people. At a stop {b} people get off and {c} people get on. How many people are on the bus now?",
          (("After {b} people got off there are", "a - b"), ("Then there are", "x + c"))),
    Story("lend-return", _minus_plus, "{name} has {a} {thing}, lends {b} of them to {other}, and later buys {c} more. How many {thing} does {name} have with them now?",
          (("After lending {name} has", "a - b"), ("After buying {name} has", "x + c"))),
    Story("times-total", _rise, "{name} has {a} {thing}. {other} has {b} times as many. How many {thing} do they have together?",
          (("{other} has", "b * a"), ("Together they have", "a + x"))),
    Story("times-more", _rise, "{name} reads {a} pages on Monday and {b} times as many pages on Tuesday, then {c} pages on Wednesday. How many pages does {name} read on the three days?",
          (("On Tuesday {name} reads", "b * a"), ("On Monday and Tuesday that makes", "a + x"), ("On all three days that makes", "y + c"))),
    Story("fewer-total", _fewer, "{name} sells {a} {thing} on Friday and {b} fewer on Saturday. How many {thing} does {name} sell on both days?",
          (("On Saturday {name} sells", "a - b"), ("On both days that makes", "a + x"))),
    Story("younger-times", _fewer, "{name} is {a} years old. {other} is {b} years younger. A tree in their garden is {c} times as old as {other}. How old is the tree?",
          (("{other} is", "a - b"), ("The tree is", "c * x"))),
)  # fmt: skip


def templates() -> list[Template]:
    return [
        Template(KIND, f"{story.name}/{index}", _poser(story, suffix), check_number)
        for story in STORIES
        for index, suffix in enumerate(SUFFIXES)
    ]


def check_number(answer: str, exercise: Exercise) -> bool:
    """The last boxed number, else the last number, must be the expected one."""
    numbers = re.findall(r"\\boxed\{(-?[\d.]+)\}", answer) or re.findall(r"-?\d+(?:\.\d+)?", answer)
    return bool(numbers) and numbers[-1].rstrip(".") == str(exercise.expected)


def _poser(story: Story, suffix: str) -> Callable[[random.Random], Exercise]:
    def pose(rng: random.Random) -> Exercise:
        name, other = rng.sample(NAMES, 2)
        words = Draw(name, other, rng.choice(THINGS), rng.choice(HOLDERS), *story.numbers(rng))
        return _worked(story, words, suffix)

    return pose


def _worked(story: Story, words: Draw, suffix: str) -> Exercise:
    values = {"a": words.a, "b": words.b, "c": words.c}
    lines = []
    for result, (sentence, expression) in zip("xyz", story.steps, strict=False):
        spelled, value = evaluate(expression, values)
        values[result] = value
        lines.append(f"{sentence.format(**vars(words))} {spelled} = {value}.")
    answer = f"The answer is \\boxed{{{value}}}."
    return Exercise(story.text.format(**vars(words)) + suffix, "\n".join(lines), answer, value)


def evaluate(expression: str, values: dict[str, int]) -> tuple[str, int]:
    """`a * b` with numbers put in, and its value; a division must come out even."""
    left, sign, right = expression.split()
    a, b = values[left], values[right]
    assert sign != "/" or a % b == 0, f"{a} / {b} does not come out even"
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[sign]
    return f"{a} {sign} {b}", value
