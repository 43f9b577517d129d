# ruff: noqa: E501 -- wordings stay on one line
"""School mathematics with worked solutions: equations, number theory, counting, geometry.

A task draws numbers and works them out; its wordings ask for the same thing in different words. A template is one
wording with one way to ask for the answer's form.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from runtime.training.tasks import second_edition
from runtime.training.tasks.exercise import Exercise, Template, both_editions

KIND = "math500"

SUFFIXES = (
    "",
    "\nPut your final answer within \\boxed{}.",
    "\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "\nThink step by step and put the final answer in \\boxed{}.",
    "\n\nThink step by step. End with the result in \\boxed{}.",
)


@dataclass(frozen=True)
class Worked:
    """Numbers for the wording, the way, and the result as LaTeX."""

    values: dict[str, Any]
    way: str
    result: str


@dataclass(frozen=True)
class Task:
    name: str
    work: Callable[[random.Random], Worked]
    wordings: Sequence[str]


def _linear(rng: random.Random) -> Worked:
    a, x, b = rng.randint(2, 12), rng.randint(1, 20), rng.randint(1, 40)
    c = a * x + b
    way = f"Subtract {b} on both sides: ${a}x = {c} - {b} = {a * x}$.\nDivide by {a}: $x = {x}$."
    return Worked({"a": a, "b": b, "c": c}, way, str(x))


def _linear_minus(rng: random.Random) -> Worked:
    a, x = rng.randint(2, 12), rng.randint(2, 20)
    b = rng.randint(1, a * x - 1)
    c = a * x - b
    way = f"Add {b} on both sides: ${a}x = {c} + {b} = {a * x}$.\nDivide by {a}: $x = {x}$."
    return Worked({"a": a, "b": b, "c": c}, way, str(x))


def _two_sided(rng: random.Random) -> Worked:
    c, x, b = rng.randint(2, 6), rng.randint(1, 15), rng.randint(1, 20)
    a = c + rng.randint(1, 6)
    d = (a - c) * x + b
    way = (
        f"Subtract ${c}x$: ${a - c}x + {b} = {d}$.\nSubtract {b}: ${a - c}x = {d - b}$.\nDivide by {a - c}: $x = {x}$."
    )
    return Worked({"a": a, "b": b, "c": c, "d": d}, way, str(x))


def _powers(rng: random.Random) -> Worked:
    a, m = rng.randint(2, 5), rng.randint(2, 4)
    b, n = rng.randint(2, 9), 2
    p, q = a**m, b**n
    sign = "+" if p <= q or rng.random() < 0.5 else "-"
    value = p + q if sign == "+" else p - q
    way = f"${a}^{m} = {p}$ and ${b}^{n} = {q}$.\n${p} {sign} {q} = {value}$."
    return Worked({"a": a, "m": m, "b": b, "n": n, "sign": sign}, way, str(value))


def _sum_to(rng: random.Random) -> Worked:
    n = rng.randint(5, 60)
    value = n * (n + 1) // 2
    way = f"The sum is $\\frac{{{n} \\cdot {n + 1}}}{{2}} = \\frac{{{n * (n + 1)}}}{{2}} = {value}$."
    return Worked({"n": n}, way, str(value))


def _sequence(rng: random.Random) -> Worked:
    a, d, n = rng.randint(1, 20), rng.randint(2, 9), rng.randint(5, 15)
    value = a + (n - 1) * d
    way = f"The difference is {d}.\nThe term is ${a} + {n - 1} \\cdot {d} = {a} + {(n - 1) * d} = {value}$."
    values = {"a": a, "b": a + d, "c": a + 2 * d, "n": n}
    return Worked(values, way, str(value))


def _simplify(rng: random.Random) -> Worked:
    q = rng.randint(2, 12)
    p = rng.choice([k for k in range(1, 2 * q) if math.gcd(k, q) == 1 and k != q])
    g = rng.randint(2, 9)
    way = f"The greatest common divisor of {p * g} and {q * g} is {g}.\nDivide both by {g}: {latex(Fraction(p, q), True)}."
    return Worked({"p": p * g, "q": q * g}, way, latex(Fraction(p, q)))


def _add_fractions(rng: random.Random) -> Worked:
    b, d = rng.sample((2, 3, 4, 5, 6, 8, 10), 2)
    a, c = rng.randint(1, b - 1), rng.randint(1, d - 1)
    n = math.lcm(b, d)
    x, y = a * n // b, c * n // d
    total = Fraction(x + y, n)
    way = f"The common denominator is {n}.\n$\\frac{{{x}}}{{{n}}} + \\frac{{{y}}}{{{n}}} = \\frac{{{x + y}}}{{{n}}}$."
    if total.denominator != n:
        way += f"\nIn lowest terms this is {latex(total, True)}."
    return Worked({"a": a, "b": b, "c": c, "d": d}, way, latex(total))


def _quadratic(rng: random.Random) -> Worked:
    r, s = sorted(rng.sample(range(1, 12), 2))
    which = rng.choice(("larger", "smaller"))
    root = s if which == "larger" else r
    way = f"${r} + {s} = {r + s}$ and ${r} \\cdot {s} = {r * s}$, so $(x - {r})(x - {s}) = 0$.\nThe {which} root is {root}."
    return Worked({"p": r + s, "q": r * s, "which": which}, way, str(root))


def _gcd(rng: random.Random) -> Worked:
    g = rng.randint(2, 24)
    a, b = sorted(rng.sample((2, 3, 4, 5, 6, 7, 8, 9), 2))
    x, y = sorted((a * g, b * g))
    steps, high, low = [], y, x
    while low:
        steps.append(f"${high} = {high // low} \\cdot {low} + {high % low}$")
        high, low = low, high % low
    return Worked({"a": x, "b": y}, "\n".join(steps) + f"\nThe last divisor is {high}.", str(high))


def _lcm(rng: random.Random) -> Worked:
    a, b = sorted(rng.sample(range(4, 25), 2))
    g = math.gcd(a, b)
    value = a * b // g
    way = f"The greatest common divisor of {a} and {b} is {g}.\n$\\frac{{{a} \\cdot {b}}}{{{g}}} = {a // g} \\cdot {b} = {value}$."
    return Worked({"a": a, "b": b}, way, str(value))


def _remainder(rng: random.Random) -> Worked:
    b, q = rng.randint(3, 12), rng.randint(2, 20)
    r = rng.randint(0, b - 1)
    a = b * q + r
    way = f"${b} \\cdot {q} = {b * q}$ and ${a} - {b * q} = {r}$."
    return Worked({"a": a, "b": b}, way, str(r))


def _power_remainder(rng: random.Random) -> Worked:
    a, n, m = rng.randint(2, 9), rng.randint(2, 4), rng.choice((5, 7, 9, 10))
    value = a**n
    way = f"${a}^{n} = {value}$.\n${m} \\cdot {value // m} = {value // m * m}$, so the remainder is ${value} - {value // m * m} = {value % m}$."
    return Worked({"a": a, "n": n, "m": m}, way, str(value % m))


def _divisors(rng: random.Random) -> Worked:
    p, q = rng.sample((2, 3, 5, 7), 2)
    m, n = rng.randint(1, 3), rng.randint(1, 2)
    value = (m + 1) * (n + 1)
    way = f"${p**m * q**n} = {p}^{m} \\cdot {q}^{n}$.\nThere are $({m} + 1)({n} + 1) = {m + 1} \\cdot {n + 1} = {value}$ divisors."
    return Worked({"n": p**m * q**n}, way, str(value))


def _orders(rng: random.Random) -> Worked:
    n = rng.randint(3, 6)
    factors = " \\cdot ".join(str(k) for k in range(n, 0, -1))
    value = math.factorial(n)
    return Worked({"n": n}, f"There are ${n}! = {factors} = {value}$ orders.", str(value))


def _choose(rng: random.Random) -> Worked:
    n = rng.randint(4, 12)
    value = n * (n - 1) // 2
    way = f"$\\binom{{{n}}}{{2}} = \\frac{{{n} \\cdot {n - 1}}}{{2}} = \\frac{{{n * (n - 1)}}}{{2}} = {value}$."
    return Worked({"n": n}, way, str(value))


def _die(rng: random.Random) -> Worked:
    k = rng.randint(1, 5)
    side = rng.choice(("greater than", "at most"))
    count = 6 - k if side == "greater than" else k
    way = f"{count} of 6 results count: $\\frac{{{count}}}{{6}}$."
    if math.gcd(count, 6) > 1:
        way += f"\nIn lowest terms this is {latex(Fraction(count, 6), True)}."
    return Worked({"k": k, "side": side}, way, latex(Fraction(count, 6)))


def _urn(rng: random.Random) -> Worked:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    chance = Fraction(a, a + b)
    way = f"In all there are ${a} + {b} = {a + b}$ balls.\nThe probability is $\\frac{{{a}}}{{{a + b}}}$."
    if chance.denominator != a + b:
        way += f"\nIn lowest terms this is {latex(chance, True)}."
    return Worked({"a": a, "b": b}, way, latex(chance))


def _rectangle(rng: random.Random) -> Worked:
    a, b = rng.randint(2, 20), rng.randint(2, 12)
    return Worked({"a": a, "b": b}, f"${a} \\cdot {b} = {a * b}$.", str(a * b))


def _perimeter(rng: random.Random) -> Worked:
    a, b = rng.randint(2, 30), rng.randint(2, 30)
    way = f"${a} + {b} = {a + b}$.\n$2 \\cdot {a + b} = {2 * (a + b)}$."
    return Worked({"a": a, "b": b}, way, str(2 * (a + b)))


def _triangle_area(rng: random.Random) -> Worked:
    a, b = 2 * rng.randint(1, 10), rng.randint(2, 15)
    way = f"$\\frac{{{a} \\cdot {b}}}{{2}} = \\frac{{{a * b}}}{{2}} = {a * b // 2}$."
    return Worked({"a": a, "b": b}, way, str(a * b // 2))


def _hypotenuse(rng: random.Random) -> Worked:
    a, b, c = rng.choice(((3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25)))
    k = rng.randint(1, 3)
    a, b, c = k * a, k * b, k * c
    way = f"${a}^2 + {b}^2 = {a * a} + {b * b} = {c * c}$.\n$\\sqrt{{{c * c}}} = {c}$."
    return Worked({"a": a, "b": b}, way, str(c))


def _angle(rng: random.Random) -> Worked:
    a, b = rng.randint(20, 80), rng.randint(20, 80)
    way = f"The angles add up to 180 degrees.\n$180 - {a} - {b} = {180 - a} - {b} = {180 - a - b}$."
    return Worked({"a": a, "b": b}, way, str(180 - a - b))


def _percent(rng: random.Random) -> Worked:
    p, n = rng.choice((5, 10, 20, 25, 30, 40, 50, 75)), 20 * rng.randint(1, 20)
    value = p * n // 100
    way = f"$\\frac{{{p}}}{{100}} \\cdot {n} = \\frac{{{p * n}}}{{100}} = {value}$."
    return Worked({"p": p, "n": n}, way, str(value))


def _mean(rng: random.Random) -> Worked:
    mean = rng.randint(4, 20)
    shift = rng.sample(range(1, 4), 1)[0]
    numbers = (
        [mean - shift, mean, mean + shift] if rng.random() < 0.5 else [mean - shift, mean - 1, mean + 1, mean + shift]
    )
    total, count = sum(numbers), len(numbers)
    way = f"${' + '.join(map(str, numbers))} = {total}$.\n$\\frac{{{total}}}{{{count}}} = {mean}$."
    return Worked({"numbers": ", ".join(map(str, numbers))}, way, str(mean))


def _function(rng: random.Random) -> Worked:
    a, b, x = rng.randint(1, 5), rng.randint(1, 12), rng.randint(2, 9)
    lead = "" if a == 1 else str(a)
    value = a * x * x + b
    square = f"${x}^2 = {x * x}$.\n"
    way = square + (
        f"${x * x} + {b} = {value}$." if a == 1 else f"${a} \\cdot {x * x} + {b} = {a * x * x} + {b} = {value}$."
    )
    return Worked({"lead": lead, "b": b, "x": x}, way, str(value))


def _slope(rng: random.Random) -> Worked:
    x, y, k, run = rng.randint(0, 6), rng.randint(0, 9), rng.randint(1, 6), rng.randint(1, 5)
    way = f"$\\frac{{{y + k * run} - {y}}}{{{x + run} - {x}}} = \\frac{{{k * run}}}{{{run}}} = {k}$."
    return Worked({"x": x, "y": y, "u": x + run, "v": y + k * run}, way, str(k))


def _system(rng: random.Random) -> Worked:
    x, y = rng.randint(3, 20), rng.randint(1, 15)
    x, y = max(x, y) + 1, min(x, y)
    way = f"Adding both gives $2x = {2 * x}$, so $x = {x}$."
    return Worked({"s": x + y, "d": x - y}, way, str(x))


def _binary(rng: random.Random) -> Worked:
    n = rng.randint(5, 31)
    digits = f"{n:b}"
    parts = [2 ** (len(digits) - 1 - i) for i, digit in enumerate(digits) if digit == "1"]
    way = f"${' + '.join(map(str, parts))} = {n}$."
    return Worked({"digits": digits}, way, str(n))


def _root(rng: random.Random) -> Worked:
    a, b = rng.randint(2, 15), rng.randint(2, 12)
    way = f"$\\sqrt{{{a * a}}} = {a}$ and $\\sqrt{{{b * b}}} = {b}$.\n${a} + {b} = {a + b}$."
    return Worked({"a": a * a, "b": b * b}, way, str(a + b))


TASKS = (
    Task("linear", _linear, ("Solve for $x$: ${a}x + {b} = {c}$.", "Find the value of $x$ if ${a}x + {b} = {c}$.", "What is $x$ when ${a}x + {b} = {c}$?")),
    Task("linear-minus", _linear_minus, ("Solve for $x$: ${a}x - {b} = {c}$.", "Find $x$ such that ${a}x - {b} = {c}$.", "What number $x$ satisfies ${a}x - {b} = {c}$?")),
    Task("two-sided", _two_sided, ("Solve for $x$: ${a}x + {b} = {c}x + {d}$.", "Find $x$ if ${a}x + {b} = {c}x + {d}$.")),
    Task("powers", _powers, ("What is the value of ${a}^{m} {sign} {b}^{n}$?", "Compute ${a}^{m} {sign} {b}^{n}$.", "Evaluate ${a}^{m} {sign} {b}^{n}$.")),
    Task("sum-to", _sum_to, ("Find the sum of the integers from 1 to {n}.", "What is $1 + 2 + \\cdots + {n}$?", "Compute the sum of the first {n} positive integers.")),
    Task("sequence", _sequence, ("An arithmetic sequence begins {a}, {b}, {c}. What is its term number {n}?", "The first terms of an arithmetic sequence are {a}, {b} and {c}. Find the {n}th term.")),
    Task("simplify", _simplify, ("Simplify $\\frac{{{p}}}{{{q}}}$.", "Write $\\frac{{{p}}}{{{q}}}$ in lowest terms.", "Reduce the fraction $\\frac{{{p}}}{{{q}}}$.")),
    Task("add-fractions", _add_fractions, ("Compute $\\frac{{{a}}}{{{b}}} + \\frac{{{c}}}{{{d}}}$.", "What is $\\frac{{{a}}}{{{b}}} + \\frac{{{c}}}{{{d}}}$? Give a fraction.")),
    Task("quadratic", _quadratic, ("What is the {which} root of $x^2 - {p}x + {q} = 0$?", "Find the {which} solution of $x^2 - {p}x + {q} = 0$.")),
    Task("gcd", _gcd, ("What is the greatest common divisor of {a} and {b}?", "Find the greatest common divisor of {b} and {a}.", "Compute $\\gcd({a}, {b})$.")),
    Task("lcm", _lcm, ("What is the least common multiple of {a} and {b}?", "Find the least common multiple of {a} and {b}.")),
    Task("remainder", _remainder, ("What is the remainder when {a} is divided by {b}?", "Find the remainder of {a} divided by {b}.")),
    Task("power-remainder", _power_remainder, ("What is the remainder when ${a}^{n}$ is divided by {m}?", "Find the remainder of ${a}^{n}$ modulo {m}.")),
    Task("divisors", _divisors, ("How many positive divisors does {n} have?", "Find the number of positive divisors of {n}.")),
    Task("orders", _orders, ("In how many ways can {n} different books be placed in a row?", "How many orders are there for {n} different letters?", "In how many ways can {n} people stand in a line?")),
    Task("choose", _choose, ("How many ways are there to choose 2 people out of {n}?", "A club has {n} members. In how many ways can it choose a pair?")),
    Task("die", _die, ("A fair die is rolled once. What is the probability of a number {side} {k}? Give a fraction.", "You roll one fair die. Find the probability that it shows a number {side} {k}.")),
    Task("urn", _urn, ("A bag holds {a} white and {b} black balls. One ball is drawn. What is the probability that it is white? Give a fraction.", "There are {a} red and {b} green balls in an urn. Find the probability of drawing a red ball.")),
    Task("rectangle", _rectangle, ("A rectangle has sides {a} and {b}. What is its area?", "Find the area of a rectangle with length {a} and width {b}.")),
    Task("perimeter", _perimeter, ("A rectangle has sides {a} and {b}. What is its perimeter?", "Find the perimeter of a rectangle with length {a} and width {b}.")),
    Task("triangle", _triangle_area, ("A triangle has base {a} and height {b}. What is its area?", "Find the area of a triangle with base {a} and height {b}.")),
    Task("hypotenuse", _hypotenuse, ("A right triangle has legs {a} and {b}. How long is the hypotenuse?", "Find the hypotenuse of a right triangle with legs {a} and {b}.")),
    Task("angle", _angle, ("Two angles of a triangle measure {a} and {b} degrees. What is the third angle, in degrees?", "A triangle has angles of {a} and {b} degrees. Find the remaining angle in degrees.")),
    Task("percent", _percent, ("What is {p} percent of {n}?", "Compute ${p}\\%$ of {n}.", "Find {p}% of {n}.")),
    Task("mean", _mean, ("What is the mean of {numbers}?", "Find the average of the numbers {numbers}.")),
    Task("function", _function, ("Let $f(x) = {lead}x^2 + {b}$. What is $f({x})$?", "If $f(x) = {lead}x^2 + {b}$, find $f({x})$.")),
    Task("slope", _slope, ("What is the slope of the line through $({x}, {y})$ and $({u}, {v})$?", "A line passes through $({x}, {y})$ and $({u}, {v})$. Find its slope.")),
    Task("system", _system, ("If $x + y = {s}$ and $x - y = {d}$, what is $x$?", "Find $x$ given $x + y = {s}$ and $x - y = {d}$.")),
    Task("binary", _binary, ("Write the binary number ${digits}_2$ in base 10.", "What is ${digits}_2$ in decimal?")),
    Task("root", _root, ("Compute $\\sqrt{{{a}}} + \\sqrt{{{b}}}$.", "What is $\\sqrt{{{a}}} + \\sqrt{{{b}}}$?")),
)  # fmt: skip


def templates() -> list[Template]:
    return [
        Template(KIND, f"{task.name}/{index}/{form}", _poser(task, wording, suffix), check_boxed, edition=edition)
        for task in TASKS
        for index, (wording, edition) in enumerate(both_editions(task.wordings, second_edition.MATHEMATICS[task.name]))
        for form, suffix in enumerate(SUFFIXES)
    ]


def latex(value: Fraction, dollars: bool = False) -> str:
    whole = value.denominator == 1
    spelled = str(value.numerator) if whole else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
    return f"${spelled}$" if dollars else spelled


def check_boxed(answer: str, exercise: Exercise) -> bool:
    """The content of the last box, braces balanced one level deep, is the expected LaTeX."""
    boxes = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", answer)
    return bool(boxes) and boxes[-1].strip() == exercise.expected


def _poser(task: Task, wording: str, suffix: str) -> Callable[[random.Random], Exercise]:
    def pose(rng: random.Random) -> Exercise:
        worked = task.work(rng)
        question = wording.format(**worked.values) + suffix
        shown = ", ".join(str(value) for value in worked.values.values())
        thinking = f"This is about {task.name.replace('-', ' ')}, with {shown}.\n{worked.way}\nSo the result is ${worked.result}$."
        return Exercise(question, thinking, f"{worked.way}\nThe answer is $\\boxed{{{worked.result}}}$.", worked.result)

    return pose
