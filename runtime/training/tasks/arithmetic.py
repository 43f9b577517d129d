# ruff: noqa: E501 -- wordings stay on one line
"""Word problems in a few steps, worked aloud: grade-school arithmetic.

A template joins a *story* (one wording of one chain of steps) with a way to ask for the answer's form. Some stories are
written out here, others put together by `runtime.training.tasks.stories`. The steps are computed, so that text and numbers
cannot disagree.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial

from runtime.training.tasks import words
from runtime.training.tasks.exercise import Exercise, Template
from runtime.training.tasks.further_stories import Story, stories
from runtime.training.tasks.stories import Step, Told, plots, told

KIND = "gsm8k"

SUFFIXES = (
    "",
    "\nPut your final answer within \\boxed{}.",
    "\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "\nGive the final answer in \\boxed{}.",
    "\nThink step by step and put the final number in \\boxed{}.",
    "\n\nThink step by step. End with the number in \\boxed{}.",
)


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
    Story("tray-sale", _product_minus, "A bakery bakes {a} {holder} of {b} rolls. By noon {c} rolls are sold. How many rolls are not sold?",
          (("The bakery bakes", "a * b"), ("Not sold are", "x - c"))),
    Story("twice-read", _rise, "{name} collects {a} {thing} in May and {b} times that number in June. How many {thing} does {name} collect in both months?",
          (("In June {name} collects", "b * a"), ("In both months that makes", "a + x"))),
    Story("distance", _product_plus, "{name} walks {b} kilometers on each of {a} days and {c} kilometers on the last day. How many kilometers does {name} walk in all?",
          (("On the equal days {name} walks", "b * a"), ("In all that makes", "x + c"))),
    Story("tank", _product_minus, "A tank gets {b} liters of water per minute for {a} minutes. Then {c} liters are taken out. How many liters are in the tank?",
          (("The tank gets", "b * a"), ("In the tank are", "x - c"))),
    Story("class", _minus_minus, "Of {a} children in a school, {b} walk and {c} come by bike. The others come by bus. How many children come by bus?",
          (("Without the walkers there are", "a - b"), ("By bus come", "x - c"))),
    Story("library", _minus_plus, "A library has {a} books. {b} books are lent out and {c} new books arrive. How many books are in the library?",
          (("After lending there are", "a - b"), ("With the new ones there are", "x + c"))),
    Story("parts", _quotient, "{name} cuts a rope of {a} meters into {b} equal parts and then cuts {c} meters off one part. How long is that part?",
          (("Each part has", "a / b"), ("The short part has", "x - c"))),
    Story("eggs", _quotient, "A farmer puts {a} eggs into boxes of {b}. Each box costs {c} dollars. How many dollars are all boxes worth?",
          (("The number of boxes is", "a / b"), ("All boxes cost", "x * c"))),
    Story("two-prices", _product_plus, "A ticket costs {b} dollars. {name} buys {a} tickets and pays a fee of {c} dollars. What is the total in dollars?",
          (("The tickets cost", "a * b"), ("The total is", "x + c"))),
    Story("train", _sum_minus, "A train has {a} passengers. {b} get on, then {c} get off. How many passengers are on the train?",
          (("After boarding there are", "a + b"), ("Then there are", "x - c"))),
    Story("temperature", _minus_plus, "In the morning a pool holds {a} visitors. {b} leave at noon and {c} come in the afternoon. How many visitors are there then?",
          (("At noon there are", "a - b"), ("In the afternoon there are", "x + c"))),
    Story("bracelets", _product_minus, "{name} makes {a} bracelets and needs {b} beads for each. {other} gives {name} {c} of the beads. How many beads must {name} buy?",
          (("The bracelets need", "a * b"), ("To buy are", "x - c"))),
    Story("garden", _product_minus, "A garden has {a} rows of {b} tulips. {c} tulips are cut. How many tulips stay in the garden?",
          (("The garden has", "a * b"), ("Staying are", "x - c"))),
    Story("savings", _sum_minus, "{name} has {a} dollars and gets {b} dollars for a birthday. A book costs {c} dollars. How many dollars remain after buying it?",
          (("With the birthday money there are", "a + b"), ("After the book there are", "x - c"))),
    Story("less-than", _fewer, "{other} has {b} fewer {thing} than {name}, who has {a}. How many {thing} do both have together?",
          (("{other} has", "a - b"), ("Together they have", "a + x"))),
    Story("pages-left", _product_minus, "{name} reads {b} pages a day for {a} days. Of these, {c} pages were read twice. How many different pages did {name} read?",
          (("{name} reads", "b * a"), ("Different pages are", "x - c"))),
    Story("younger-times", _fewer, "{name} is {a} years old. {other} is {b} years younger. A tree in their garden is {c} times as old as {other}. How old is the tree?",
          (("{other} is", "a - b"), ("The tree is", "c * x"))),
)  # fmt: skip


def templates() -> list[Template]:
    """A story written out weighs as much as eight that are put together: there are far fewer of them."""
    written = [(story.name, partial(_drawn, story), 8.0, 1) for story in STORIES]
    together = [(plot.name, partial(told, plot), 1.0, 1) for plot in plots()]
    further = [(story.name, partial(_drawn, story), 1.0, 2) for story in stories()]
    return [
        Template(KIND, f"{name}/{index}", partial(_pose, tell, suffix), check_number, weight, edition)
        for name, tell, weight, edition in (*written, *together, *further)
        for index, suffix in enumerate(SUFFIXES)
    ]


def check_number(answer: str, exercise: Exercise) -> bool:
    """The last boxed number, else the last number, must be the expected one."""
    numbers = re.findall(r"\\boxed\{(-?[\d.]+)\}", answer) or re.findall(r"-?\d+(?:\.\d+)?", answer)
    return bool(numbers) and numbers[-1].rstrip(".") == str(exercise.expected)


def _pose(tell: Callable[[random.Random], Told], suffix: str, rng: random.Random) -> Exercise:
    story = tell(rng)
    way = "\n".join(f"{said} {a} {sign} {b} = {result}." for said, a, sign, b, result in story.steps)
    checks = ", ".join(_undone(*step[1:]) for step in story.steps)
    value = story.steps[-1][-1]
    numbers = ", ".join(re.findall(r"\d+", story.text))
    thinking = f"The numbers are {numbers}. There are {len(story.steps)} steps.\n{way}\nCheck: {checks}."
    return Exercise(story.text + suffix, thinking, f"{way}\nThe answer is \\boxed{{{value}}}.", value)


def _drawn(story: Story, rng: random.Random) -> Told:
    name, other = words.name(rng), words.name(rng)
    fill = {"name": name, "other": other, "thing": rng.choice(words.THINGS), "holder": rng.choice(words.HOLDERS)}
    values = dict(zip("abc", story.numbers(rng), strict=True))
    fill_all = {**fill, **values}
    steps: list[Step] = []
    for result, (sentence, expression) in zip("xyz", story.steps, strict=False):
        left, sign, right = expression.split()
        values[result] = evaluated(values[left], sign, values[right])
        steps.append((sentence.format(**fill_all), values[left], sign, values[right], values[result]))
    return Told(story.text.format(**fill_all), tuple(steps))


def _undone(a: int, sign: str, b: int, value: int) -> str:
    """The step read backwards, as a check."""
    back = {"+": "-", "-": "+", "*": "/", "/": "*"}[sign]
    return f"{value} {back} {b} = {a}"


def evaluated(a: int, sign: str, b: int) -> int:
    """A division must come out even."""
    assert sign != "/" or a % b == 0, f"{a} / {b} does not come out even"
    return {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[sign]
