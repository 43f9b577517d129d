# ruff: noqa: E501 -- one routine, one line
"""Routines of the second edition: further classics, and known ones under names that only their prompt holds.

A model that has seen each routine under one name writes that name, whatever it is asked for.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from runtime.training.tasks import words
from runtime.training.tasks.routines import CLASSICS, Routine, classic

_PIECES = sorted({piece for routine in CLASSICS for piece in routine.name.split("_")})
_INVENTED_PERCENT = 30


def name_of_pieces(rng: random.Random) -> str:
    """Two or three words of other routines' names, or invented ones."""
    chosen = (
        words.invented(rng) if rng.randrange(100) < _INVENTED_PERCENT else rng.choice(_PIECES)
        for _ in range(rng.randint(2, 3))
    )
    return "_".join(chosen)


def renamed(routine: Routine, rng: random.Random) -> Routine:
    name = name_of_pieces(rng)
    return replace(routine, name=name, text=re.sub(rf"\b{routine.name}(?=\()", name, routine.text))


# fmt: off
FURTHER = (
    classic("cube_of", "n: int", "int", "Return the third power of n", "return n * n * n", "Multiply n three times."),
    classic("last_digit", "n: int", "int", "Return the last decimal digit of n", "return n % 10", "Take the remainder by 10."),
    classic("is_square", "n: int", "bool", "Check whether n is the square of an integer", "root = 0|while root * root < n:|    root += 1|return root * root == n", "Count up a root until its square reaches n."),
    classic("sum_of_odd", "n: int", "int", "Return the sum of the odd numbers from 1 to n", "return sum(range(1, n + 1, 2))", "Use a range with step 2."),
    classic("halvings", "n: int", "int", "Count how often n can be halved until it is 1 or less", "steps = 0|while n > 1:|    n //= 2|    steps += 1|return steps", "Halve and count."),
    classic("difference_of_squares", "a: int; b: int", "int", "Return the square of a minus the square of b", "return a * a - b * b", "Square both and subtract."),
    classic("perimeter_of", "width: int; height: int", "int", "Compute the perimeter of a rectangle", "return 2 * (width + height)", "Twice the sum of both sides."),
    classic("days_to_weeks", "days: int", "tuple", "Split days into weeks and remaining days", "return days // 7, days % 7", "Divide by 7."),
    classic("evens_to", "n: int", "list[int]", "Return the even numbers from 2 to n", "return list(range(2, n + 1, 2))", "Use a range with step 2."),
    classic("squares_to", "n: int", "list[int]", "Return the squares of the integers from 1 to n", "return [i * i for i in range(1, n + 1)]", "Square each i."),
    classic("lower_text", "text: str", "str", "Return the text in lower case", "return text.lower()", "Use lower."),
    classic("without_first_letter", "text: str", "str", "Return a word without its first letter", "return text[1:]", "Slice from index 1."),
    classic("first_half", "text: str", "str", "Return the first half of a word, without its middle letter", "return text[:len(text) // 2]", "Slice up to half of the length."),
    classic("every_second", "text: str", "str", "Return every second letter of a word, from the first one on", "return text[::2]", "Use a slice with step 2."),
    classic("join_reversed", "words: list[str]", "str", "Join a list of words with spaces, the last one first", "return \" \".join(words[::-1])", "Reverse the list and join."),
    classic("longest_length", "words: list[str]", "int", "Return the length of the longest word of a list, 0 for an empty list", "best = 0|for word in words:|    best = max(best, len(word))|return best", "Remember the largest length."),
    classic("total_length", "words: list[str]", "int", "Add the lengths of all words", "total = 0|for word in words:|    total += len(word)|return total", "Start with 0 and add each length."),
    classic("last_word", "words: list[str]", "str", "Return the last word of a list that is not empty", "return words[-1]", "Take index -1."),
    classic("without_last", "numbers: list[int]", "list[int]", "Return a list without its last number", "return numbers[:-1]", "Slice up to index -1."),
    classic("smallest_first", "numbers: list[int]", "list[int]", "Return the numbers in rising order", "return sorted(numbers)", "Use sorted."),
    classic("largest_first", "numbers: list[int]", "list[int]", "Return the numbers in falling order", "return sorted(numbers, reverse=True)", "Sort in reverse."),
    classic("subtract_from_each", "numbers: list[int]; k: int", "list[int]", "Subtract k from every number of a list", "return [n - k for n in numbers]", "Subtract k from each."),
    classic("multiply_each", "numbers: list[int]; k: int", "list[int]", "Multiply every number of a list by k", "return [n * k for n in numbers]", "Multiply each by k."),
    classic("count_smaller", "numbers: list[int]; limit: int", "int", "Count the numbers that are smaller than a limit", "count = 0|for n in numbers:|    if n < limit:|        count += 1|return count", "Compare each number and count."),
    classic("all_above", "numbers: list[int]; limit: int", "bool", "Check whether every number is larger than a limit", "return all(n > limit for n in numbers)", "Compare each number."),
    classic("any_below", "numbers: list[int]; limit: int", "bool", "Check whether some number is smaller than a limit", "return any(n < limit for n in numbers)", "Compare each number."),
    classic("running_minimum", "numbers: list[int]", "list[int]", "Return for each position the smallest number so far", "result = []|for n in numbers:|    result.append(n if not result else min(n, result[-1]))|return result", "Compare with the last minimum."),
    classic("pair_products", "numbers: list[int]", "list[int]", "Return the products of neighbouring numbers", "return [a * b for a, b in zip(numbers, numbers[1:])]", "Multiply each number and the next."),
    classic("index_of", "numbers: list[int]; value: int", "int", "Return the first index of a value, or -1 if it is not in the list", "for i, n in enumerate(numbers):|    if n == value:|        return i|return -1", "Compare each number and return its index."),
    classic("count_changes", "numbers: list[int]", "int", "Count the positions where a number differs from the one before", "return sum(1 for a, b in zip(numbers, numbers[1:]) if a != b)", "Compare neighbours and count."),
    classic("longest_rise", "numbers: list[int]", "int", "Return the length of the longest run of rising numbers", "best = run = 0|last = None|for n in numbers:|    run = run + 1 if last is not None and n > last else 1|    last = n|    best = max(best, run)|return best", "Count the run and remember the best."),
    classic("middle_of", "numbers: list[int]", "int", "Return the number in the middle of a list that is not empty", "return numbers[len(numbers) // 2]", "Take the index of half the length."),
    classic("size_word", "n: int", "str", "Return 'small' if n is below 5, 'middle' if it is below 9, and 'large' otherwise", "if n < 5:|    return \"small\"|if n < 9:|    return \"middle\"|return \"large\"", "Compare with 5 and 9."),
    classic("same_parity", "a: int; b: int", "bool", "Check whether two integers are both even or both odd", "return a % 2 == b % 2", "Compare the remainders by 2."),
)
# fmt: on
