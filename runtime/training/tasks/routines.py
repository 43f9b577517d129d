# ruff: noqa: E501 -- one routine, one line
"""Small Python routines with a description each: the material of the code exercises.

Most are composed: keep some numbers, change each, and gather them. Others are classics, written out. Examples are made
by running the routine itself on drawn arguments, so that text and code cannot disagree. Only this module's own code
runs here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

WORDS = (
    "lamp",
    "river",
    "stone",
    "green",
    "apple",
    "level",
    "noon",
    "window",
    "cloud",
    "maple",
    "tea",
    "bee",
    "kayak",
    "otter",
)


@dataclass(frozen=True)
class Routine:
    """`parameters` are (name, type); `body` is indented by four; `text` finishes "Write a function to …"."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    returns: str
    text: str
    body: str
    plan: str

    @property
    def signature(self) -> str:
        return ", ".join(f"{name}: {kind}" for name, kind in self.parameters)

    @property
    def bare_signature(self) -> str:
        return ", ".join(name for name, _ in self.parameters)

    def code(self, typed: bool) -> str:
        head = (
            f"def {self.name}({self.signature}) -> {self.returns}:"
            if typed
            else f"def {self.name}({self.bare_signature}):"
        )
        return f"{head}\n{self.body}"

    def function(self) -> Callable[..., Any]:
        return _compiled(self.bare_signature, self.body)

    def arguments(self, rng: random.Random) -> tuple[Any, ...]:
        return tuple(_DRAWS[kind](rng) for _, kind in self.parameters)


@cache
def _compiled(signature: str, body: str) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(f"def routine({signature}):\n{body}", space)
    function: Callable[..., Any] = space["routine"]
    return function


_DRAWS: Mapping[str, Callable[[random.Random], Any]] = {
    "list[int]": lambda rng: [rng.randint(-9, 12) for _ in range(rng.randint(1, 4))],
    "int": lambda rng: rng.randint(1, 12),
    "str": lambda rng: rng.choice(WORDS),
    "sentence": lambda rng: " ".join(rng.choices(WORDS, k=2)),
    "list[str]": lambda rng: rng.choices(WORDS, k=rng.randint(1, 3)),
    "bool": lambda rng: rng.random() < 0.5,
}

# (name part, words, condition)
_KEEP = (
    ("", "numbers", ""),
    ("even", "even numbers", "n % 2 == 0"),
    ("odd", "odd numbers", "n % 2 != 0"),
    ("positive", "positive numbers", "n > 0"),
    ("negative", "negative numbers", "n < 0"),
    ("nonzero", "numbers that are not zero", "n != 0"),
    ("above_{k}", "numbers greater than {k}", "n > {k}"),
    ("below_{k}", "numbers less than {k}", "n < {k}"),
    ("multiples_of_{k}", "numbers divisible by {k}", "n % {k} == 0"),
)
# (name part, words, expression)
_CHANGE = (
    ("", "", "n"),
    ("squares", "squares of the ", "n * n"),
    ("doubles", "doubles of the ", "2 * n"),
    ("cubes", "cubes of the ", "n * n * n"),
    ("absolute", "absolute values of the ", "abs(n)"),
    ("times_{k}", "{k} times the ", "{k} * n"),
    ("opposites", "opposites of the ", "-n"),
)
# (name part, words, code with {items}, return type)
_GATHER = (
    ("list", "Return the list of the ", "[{items}]", "list[int]"),
    ("sum", "Return the sum of the ", "sum({items})", "int"),
    ("sorted", "Return in rising order the ", "sorted({items})", "list[int]"),
    ("count", "Count the ", "len([{items}])", "int"),
    ("largest", "Return the largest, or 0 if there is none, of the ", "max(({items}), default=0)", "int"),
    ("smallest", "Return the smallest, or 0 if there is none, of the ", "min(({items}), default=0)", "int"),
)


def composed() -> list[Routine]:
    """Every composition that changes something, with a few constants each."""
    routines = []
    for keep in _KEEP:
        for change in _CHANGE:
            for gather in _GATHER:
                if gather[0] == "count" and change[0]:
                    continue
                constants = (2, 3, 5, 7) if "{k}" in "".join((*keep, *change)) else (0,)
                routines += [_composed(keep, change, gather, k) for k in constants]
    return routines


def _composed(keep: Sequence[str], change: Sequence[str], gather: Sequence[str], k: int) -> Routine:
    what = f"{change[1]}{keep[1]}".format(k=k)
    items = f"{change[2]} for n in numbers{' if ' + keep[2] if keep[2] else ''}".format(k=k)
    name = "_".join(part for part in (gather[0], change[0], keep[0] or "all") if part).format(k=k)
    body = f"    return {gather[2].format(items=items)}\n"
    return Routine(
        name, (("numbers", "list[int]"),), gather[3], f"{gather[1]}{what}", body, _plan(keep, change, gather, k)
    )


def _plan(keep: Sequence[str], change: Sequence[str], gather: Sequence[str], k: int) -> str:
    steps = []
    if keep[2]:
        steps.append(f"Keep n where {keep[2]}.")
    if change[0]:
        steps.append(f"Turn n into {change[2]}.")
    steps.append({"list": "Collect them in a list.", "sum": "Add them up.", "sorted": "Sort them.", "count": "Count them.",
                  "largest": "Take the maximum.", "smallest": "Take the minimum."}[gather[0]])  # fmt: skip
    return " ".join(steps).format(k=k)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def classic(name: str, parameters: str, returns: str, text: str, body: str, plan: str) -> Routine:
    pairs = tuple((part.split(":")[0].strip(), part.split(":")[1].strip()) for part in parameters.split(";"))
    lines = "".join(f"    {line}\n" for line in body.split("|"))
    return Routine(name, pairs, returns, text, lines, plan)


# fmt: off
CLASSICS = (
    classic("product", "numbers: list[int]", "int", "Return the product of all numbers, 1 for an empty list", "result = 1|for n in numbers:|    result *= n|return result", "Start with 1 and multiply by each number."),
    classic("total", "numbers: list[int]", "int", "Add all numbers of a list", "total = 0|for n in numbers:|    total += n|return total", "Start with 0 and add each number."),
    classic("average", "numbers: list[int]", "float", "Return the average of a list with at least one number", "return sum(numbers) / len(numbers)", "Divide the sum by the length."),
    classic("difference", "a: int; b: int", "int", "Return the absolute difference of two integers", "return abs(a - b)", "Subtract and take the absolute value."),
    classic("maximum_of_two", "a: int; b: int", "int", "Return the larger of two integers", "return a if a > b else b", "Compare the two numbers."),
    classic("area_of_triangle", "base: int; height: int", "float", "Compute the area of a triangle", "return base * height / 2", "Base times height, divided by 2."),
    classic("is_odd", "n: int", "bool", "Check whether an integer is odd", "return n % 2 == 1", "Test the remainder by 2."),
    classic("is_multiple", "n: int; k: int", "bool", "Check whether n is a multiple of k", "return n % k == 0", "Test the remainder by k."),
    classic("sum_to", "n: int", "int", "Return the sum of the integers from 1 to n", "return n * (n + 1) // 2", "Use n (n + 1) / 2."),
    classic("sum_of_squares", "n: int", "int", "Return the sum of the squares from 1 to n", "return sum(i * i for i in range(1, n + 1))", "Add i * i for i from 1 to n."),
    classic("count_up", "n: int", "list[int]", "Return the list of the integers from 1 to n", "return list(range(1, n + 1))", "Use a range."),
    classic("powers_of_two", "n: int", "list[int]", "Return the first n powers of two", "return [2 ** i for i in range(n)]", "Take 2 ** i for each i."),
    classic("number_of_divisors", "n: int", "int", "Count the divisors of n", "count = 0|for d in range(1, n + 1):|    if n % d == 0:|        count += 1|return count", "Try every d from 1 to n."),
    classic("divisors", "n: int", "list[int]", "Return the divisors of n in rising order", "return [d for d in range(1, n + 1) if n % d == 0]", "Keep every d that divides n."),
    classic("lcm_of", "a: int; b: int", "int", "Return the least common multiple of two positive integers", "x, y = a, b|while y:|    x, y = y, x % y|return a * b // x", "Find the greatest common divisor and divide the product by it."),
    classic("digit_product", "n: int", "int", "Return the product of the decimal digits of n", "result = 1|for digit in str(n):|    result *= int(digit)|return result", "Multiply the digits."),
    classic("reverse_number", "n: int", "int", "Return the integer with the digits of n in reverse order", "return int(str(n)[::-1])", "Reverse the text of the number."),
    classic("collatz_steps", "n: int", "int", "Count the steps until n becomes 1, when an even n is halved and an odd n becomes 3n + 1", "steps = 0|while n != 1:|    n = n // 2 if n % 2 == 0 else 3 * n + 1|    steps += 1|return steps", "Repeat the rule and count."),
    classic("lucas", "n: int", "int", "Return the n-th Lucas number, where lucas(0) is 2 and lucas(1) is 1", "a, b = 2, 1|for _ in range(n):|    a, b = b, a + b|return a", "Carry two neighbours along."),
    classic("first_character", "text: str", "str", "Return the first character of a string that is not empty", "return text[0]", "Take index 0."),
    classic("upper_text", "text: str", "str", "Return the text in upper case", "return text.upper()", "Use upper."),
    classic("length_of", "text: str", "int", "Return the number of characters of a string", "return len(text)", "Use len."),
    classic("count_consonants", "text: str", "int", "Count the letters of a word that are not a, e, i, o or u", "return sum(1 for c in text if c not in \"aeiou\")", "Count characters outside of aeiou."),
    classic("remove_vowels", "text: str", "str", "Remove the letters a, e, i, o, u from a word", "return \"\".join(c for c in text if c not in \"aeiou\")", "Keep the other characters."),
    classic("double_letters", "text: str", "str", "Write every character of a word twice", "return \"\".join(c * 2 for c in text)", "Repeat each character."),
    classic("sorted_letters", "text: str", "str", "Return the characters of a word in alphabetical order", "return \"\".join(sorted(text))", "Sort and join."),
    classic("unique_letters", "text: str", "int", "Count the different characters of a word", "return len(set(text))", "Use a set."),
    classic("starts_and_ends_alike", "text: str", "bool", "Check whether a word begins and ends with the same letter", "return text[0] == text[-1]", "Compare both ends."),
    classic("repeat_text", "text: str; n: int", "str", "Repeat a string n times", "return text * n", "Multiply the string."),
    classic("first_letters", "words: list[str]", "str", "Join the first letters of a list of words", "return \"\".join(word[0] for word in words)", "Take index 0 of each word."),
    classic("join_words", "words: list[str]", "str", "Join a list of words with spaces", "return \" \".join(words)", "Use join."),
    classic("word_lengths", "words: list[str]", "list[int]", "Return the lengths of the words", "return [len(word) for word in words]", "Take len of each word."),
    classic("shortest_word", "words: list[str]", "str", "Return the shortest word of a list that is not empty", "return min(words, key=len)", "Use min by length."),
    classic("sort_words", "words: list[str]", "list[str]", "Sort a list of words in alphabetical order", "return sorted(words)", "Use sorted."),
    classic("reverse_words", "words: list[str]", "list[str]", "Reverse every word of a list", "return [word[::-1] for word in words]", "Reverse each word."),
    classic("count_word", "words: list[str]; word: str", "int", "Count how often a word is in a list", "count = 0|for item in words:|    if item == word:|        count += 1|return count", "Compare each item and count."),
    classic("reverse_list", "numbers: list[int]", "list[int]", "Return a list in reverse order", "return numbers[::-1]", "Use a slice with step -1."),
    classic("first_and_last", "numbers: list[int]", "list[int]", "Return the first and the last number of a list that is not empty", "return [numbers[0], numbers[-1]]", "Take both ends."),
    classic("without_first", "numbers: list[int]", "list[int]", "Return a list without its first number", "return numbers[1:]", "Slice from index 1."),
    classic("range_of", "numbers: list[int]", "int", "Return the largest minus the smallest number of a list", "return max(numbers) - min(numbers)", "Subtract the minimum from the maximum."),
    classic("index_of_largest", "numbers: list[int]", "int", "Return the index of the largest number; the first one counts", "best = 0|for i, n in enumerate(numbers):|    if n > numbers[best]:|        best = i|return best", "Remember the best index."),
    classic("add_to_each", "numbers: list[int]; k: int", "list[int]", "Add k to every number of a list", "return [n + k for n in numbers]", "Add k to each."),
    classic("contains", "numbers: list[int]; value: int", "bool", "Check whether a list contains a value", "return value in numbers", "Use in."),
    classic("count_larger", "numbers: list[int]; limit: int", "int", "Count the numbers that are larger than a limit", "count = 0|for n in numbers:|    if n > limit:|        count += 1|return count", "Compare each number and count."),
    classic("running_maximum", "numbers: list[int]", "list[int]", "Return for each position the largest number so far", "result = []|for n in numbers:|    result.append(n if not result else max(n, result[-1]))|return result", "Compare with the last maximum."),
    classic("alternating_sum", "numbers: list[int]", "int", "Add the numbers at even positions and subtract the others", "return sum(n if i % 2 == 0 else -n for i, n in enumerate(numbers))", "Change the sign by position."),
    classic("pair_sums", "numbers: list[int]", "list[int]", "Return the sums of neighbouring numbers", "return [a + b for a, b in zip(numbers, numbers[1:])]", "Add each number and the next."),
    classic("is_rising", "numbers: list[int]", "bool", "Check whether every number is larger than the one before", "return all(a < b for a, b in zip(numbers, numbers[1:]))", "Compare neighbours."),
    classic("distinct", "numbers: list[int]", "list[int]", "Return the different numbers of a list in rising order", "return sorted(set(numbers))", "Use a set and sort."),
    classic("count_each", "numbers: list[int]", "dict[int, int]", "Return how often each number is in a list", "counts = {}|for n in numbers:|    counts[n] = counts.get(n, 0) + 1|return counts", "Keep a dictionary of counts."),
    classic("split_signs", "numbers: list[int]", "tuple", "Split a list into its negative numbers and the others", "return [n for n in numbers if n < 0], [n for n in numbers if n >= 0]", "Build both lists."),
    classic("longest_run", "numbers: list[int]", "int", "Return the length of the longest run of equal numbers", "best = run = 0|last = None|for n in numbers:|    run = run + 1 if n == last else 1|    last = n|    best = max(best, run)|return best", "Count the run and remember the best."),
    classic("has_pair", "numbers: list[int]; target: int", "bool", "Check whether two numbers at different positions add up to target", "seen = set()|for n in numbers:|    if target - n in seen:|        return True|    seen.add(n)|return False", "Remember the numbers seen."),
    classic("to_base_three", "n: int", "str", "Return the digits of a positive n in base 3", "digits = \"\"|while n:|    digits = str(n % 3) + digits|    n //= 3|return digits", "Divide by 3 and collect remainders."),
    classic("seconds_to_clock", "seconds: int", "tuple", "Split seconds into minutes and remaining seconds", "return seconds // 60, seconds % 60", "Divide by 60."),
    classic("sign", "n: int", "int", "Return 1 for a positive number, -1 for a negative number and 0 for zero", "if n > 0:|    return 1|if n < 0:|    return -1|return 0", "Compare with zero."),
    classic("grade", "points: int", "str", "Return 'pass' if points are at least 6 and 'fail' otherwise", "return \"pass\" if points >= 6 else \"fail\"", "Compare with 6."),
    classic("fizz", "n: int", "str", "Return 'Fizz' if n is divisible by 3, otherwise the number as text", "return \"Fizz\" if n % 3 == 0 else str(n)", "Test the remainder by 3."),
)
# fmt: on
