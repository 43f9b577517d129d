# ruff: noqa: E501 -- wordings stay on one line
"""Programming exercises over `routines`: complete a function, write one that passes tests, methods and programs.

A template is one routine in one form with one wording. Checks run the model's code on drawn arguments; that happens in
evaluation alone, in a child process (`runtime.training.evaluate`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from runtime.training.tasks.exercise import Exercise, Template
from runtime.training.tasks.further_routines import FURTHER, renamed
from runtime.training.tasks.routines import CLASSICS, Routine, camel, composed
from runtime.training.tasks.trial import agrees, typed_in

_FENCE = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)

COMPLETE = (
    "Complete this Python function. Answer with the whole function in one code block.\n```python\n{prompt}```",
    "Complete the following Python function:\n```python\n{prompt}```",
    "Finish this function. Write it out in full in a code block.\n\n```python\n{prompt}```",
)
PASS_TESTS = (
    "Write a function to {text}.\nAnswer with Python code in one code block. It has to pass these tests:\n{tests}",
    "Write a function to {text}.\nYour code should pass these tests:\n{tests}",
    "Write a Python function to {text}. It must satisfy:\n{tests}\nPut the code into one block.",
)
METHOD = (
    "{problem}\n\nComplete this Python class. Put the whole class in one code block.\n```python\n{starter}\n```",
    "{problem}\n\nUse this starter code and answer with one code block.\n```python\n{starter}\n```",
)
PROGRAM = (
    "{problem}\n\nWrite a Python program that reads standard input and prints the answer. Put the whole program in one code block.",
    "{problem}\n\nRead from standard input, print to standard output, and answer with one code block.",
)
_TYPES = {"list[int]": "List[int]", "list[str]": "List[str]"}
_READ = {
    "int": "int(input())",
    "str": "input()",
    "list[int]": "list(map(int, input().split()))",
    "list[str]": "input().split()",
}
_LINE = {
    "int": "an integer {name}",
    "str": "a word {name}",
    "list[int]": "integers {name} separated by spaces",
    "list[str]": "words {name} separated by spaces",
}


def templates() -> list[Template]:
    """A classic weighs as much as eight compositions: there are far fewer of them. The second edition adds classics, and
    every routine under other names; those weigh half."""
    routines = [*((routine, 8.0, 1) for routine in CLASSICS), *((routine, 1.0, 1) for routine in composed())]
    routines += [(routine, 8.0, 2) for routine in FURTHER]
    forms: tuple[tuple[str, str, Callable[..., Exercise], Sequence[str]], ...] = (
        ("humaneval", "complete", _complete, COMPLETE),
        ("mbpp", "tests", _pass_tests, PASS_TESTS),
        ("livecodebench", "method", _method, METHOD),
        ("livecodebench", "program", _program, PROGRAM),
    )
    found = []
    for kind, form, pose, wordings in forms:
        for routine, weight, edition in routines:
            if form == "program" and not _printable(routine):
                continue
            for index, wording in enumerate(wordings):
                name = f"{form}/{routine.name}/{index}"
                found.append(Template(kind, name, _poser(pose, routine, wording), check_code, weight, edition))
                if form != "program":  # a program has no name
                    poser = _renaming(pose, routine, wording)
                    found.append(Template(kind, f"{name}-renamed", poser, check_code, weight / 2, 2))
    return found


def _printable(routine: Routine) -> bool:
    return routine.returns in ("int", "str") and all(kind in _READ for _, kind in routine.parameters)


def _poser(pose: Callable[..., Exercise], routine: Routine, wording: str) -> Callable[[random.Random], Exercise]:
    return lambda rng: pose(rng, routine, wording)


def _renaming(pose: Callable[..., Exercise], routine: Routine, wording: str) -> Callable[[random.Random], Exercise]:
    return lambda rng: pose(rng, renamed(routine, rng), wording)


def _complete(rng: random.Random, routine: Routine, wording: str) -> Exercise:
    arguments = routine.arguments(rng)
    example = f"    >>> {routine.name}({_spelled(arguments)})\n    {routine.function()(*arguments)!r}\n"
    head = routine.code(typed=True).splitlines()[0]
    prompt = f'{head}\n    """{routine.text}.\n{example}    """\n'
    return _exercise(wording.format(prompt=prompt), routine, routine.code(typed=True), "function", example=arguments)


def _pass_tests(rng: random.Random, routine: Routine, wording: str) -> Exercise:
    drawn = [routine.arguments(rng) for _ in range(rng.randint(1, 3))]
    tests = "\n".join(_assertion(routine, arguments) for arguments in drawn)
    text = routine.text[0].lower() + routine.text[1:]
    return _exercise(
        wording.format(text=text, tests=tests), routine, routine.code(typed=False), "function", example=drawn[0]
    )


def _method(rng: random.Random, routine: Routine, wording: str) -> Exercise:
    _, body = routine.code(typed=True).split("\n", 1)
    name, returns = camel(routine.name), _TYPES.get(routine.returns, routine.returns)
    types = ", ".join(f"{parameter}: {_TYPES.get(kind, kind)}" for parameter, kind in routine.parameters)
    starter = f"class Solution:\n    def {name}(self, {types}) -> {returns}:"
    drawn = [routine.arguments(rng) for _ in range(2)]
    examples = "\n\n".join(_shown(routine, index, arguments) for index, arguments in enumerate(drawn, 1))
    given = " and ".join(f"{parameter} ({kind})" for parameter, kind in routine.parameters)
    problem = f"You are given {given}. {routine.text}.\n\n{examples}"
    code = starter + "\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return _exercise(wording.format(problem=problem, starter=starter + "\n        "), routine, code, "method", drawn[0])


def _program(rng: random.Random, routine: Routine, wording: str) -> Exercise:
    lines = [_LINE[kind].format(name=name.upper()[:1]) for name, kind in routine.parameters]
    given = f"You are given {lines[0]} on one line" + (f" and {lines[1]} on the next line" if len(lines) > 1 else "")
    drawn = [routine.arguments(rng) for _ in range(2)]
    samples = "\n\n".join(_sample(routine, index, arguments) for index, arguments in enumerate(drawn, 1))
    problem = f"{given}. {_printed(routine.text)}.\n\n{samples}"
    reads = "".join(f"{name} = {_READ[kind]}\n" for name, kind in routine.parameters)
    body = "".join(line[4:] + "\n" for line in routine.body.splitlines())
    direct = body.count("return") == 1 and body.splitlines()[-1].startswith("return ")
    if direct:
        program = reads + body.replace("return ", "print(", 1).rstrip("\n") + ")\n"
    else:
        program = f"{routine.code(typed=False)}\n{reads}print({routine.name}({routine.bare_signature}))\n"
    return _exercise(wording.format(problem=problem), routine, program, "program", drawn[0])


def _printed(text: str) -> str:
    return f"Print the answer to this: {text}" if not text.startswith("Return ") else "Print " + text[len("Return ") :]


def _exercise(question: str, routine: Routine, code: str, form: str, example: tuple[object, ...]) -> Exercise:
    inputs = " and ".join(f"{name}, of type {kind}" for name, kind in routine.parameters)
    outcome = f"For {_spelled(example)} the result is {routine.function()(*example)!r}."
    thinking = f"The task: {routine.text}.\nThe input is {inputs}. The result is of type {routine.returns}.\n{routine.plan}\n{outcome}"
    return Exercise(question, thinking, f"{routine.plan}\n```python\n{code}```", (form, routine))


def _sample(routine: Routine, index: int, arguments: tuple[object, ...]) -> str:
    result = routine.function()(*arguments)
    return f"Sample Input {index}\n\n{typed_in(arguments)}\n\nSample Output {index}\n\n{result}"


def _shown(routine: Routine, index: int, arguments: tuple[object, ...]) -> str:
    return f"Example {index}:\n\nInput: {_spelled(arguments)}\nOutput: {routine.function()(*arguments)!r}"


def _assertion(routine: Routine, arguments: tuple[object, ...]) -> str:
    return f"assert {routine.name}({_spelled(arguments)}) == {routine.function()(*arguments)!r}"


def _spelled(arguments: Sequence[object]) -> str:
    return ", ".join(map(repr, arguments))


def code_of(answer: str) -> str:
    """The last fenced block, or nothing."""
    blocks = _FENCE.findall(answer)
    return blocks[-1] if blocks else ""


def check_code(answer: str, exercise: Exercise) -> bool:
    """The answer's code does what the routine does on eight drawn arguments. Runs it: evaluation only."""
    form, routine = exercise.expected
    code = code_of(answer)
    return bool(code) and agrees(code, form, routine, camel(routine.name))
