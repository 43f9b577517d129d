"""Published styles of code answers: each yields the program that a reader would run, or says why there is none."""

from __future__ import annotations

import sys
import threading

import pytest

from campaigns.scorers.extraction import Extracted, extract_code

F = "def f(x):\n    return x * x\n"
MAIN = "n = int(input())\nprint(n * n)\n"
PROD = "def {}(x):\n    return math.prod([x, x])\n"
CALL = "def {}(x):\n    return {}(x)\n"
READ = "\ndata = sys.stdin.read().split()\nprint(f(int(data[0])))\n"
GUARDED = "def main():\n    n = int(input())\n    print(n * n)\n\nif __name__ == '__main__':\n    main()\n"
SOLUTION = "class Solution:\n    def f(self, x):\n        return x * x\n"


def fenced(code: str, info: str = "python", fence: str = "```") -> str:
    return f"{fence}{info}\n{code}{fence}\n"


def indented(text: str, by: str) -> str:
    return "".join(by + line for line in text.splitlines(keepends=True))


FUNCTIONS = {
    "a fence": fenced(F),
    "no language": fenced(F, ""),
    "tildes": fenced(F, "python", "~~~"),
    "tildes without a language": fenced(F, "", "~~~"),
    "four backticks": fenced(F, "python", "````"),
    "a capital letter": fenced(F, "Python"),
    "py": fenced(F, "py"),
    "python3": fenced(F, "python3"),
    "a version": fenced(F, "python3.11"),
    "a version apart": fenced(F, "Python 3"),
    "an attribute": fenced(F, 'python title="a.py"'),
    "pandoc's attributes": fenced(F, "{.python .numberLines}"),
    "knitr's braces": fenced(F, "{python}"),
    "a file name": fenced(F, "python:solution.py"),
    "a space before the language": fenced(F, " python"),
    "an unclosed fence": f"So:\n```python\n{F}",
    "an unclosed fence without a language": f"So:\n```\n{F}",
    "an unclosed fence before a closed one": f"```python\nx = 1\n```python\n{F}```\n",
    "prose on the closing line": f"```python\n{F}``` This squares.\n",
    "a fence in a list": "1. Square it:\n" + indented(fenced(F), "   "),
    "a fence behind the number of a list": f"1. ```python\n{indented(F, '   ')}   ```\n",
    "a fence indented by a tab": indented(fenced(F), "\t"),
    "an indented fence, its block further": f"  ```python\n{indented(F, '      ')}  ```\n",
    "an indented fence, its block at the margin": f"   ```python\n{F}   ```\n",
    "an indented block": fenced(indented(F, "    ")),
    "a quotation": indented(fenced(F), "> "),
    "signs of a quotation inside": fenced('def f(x: int) -> int:\n    """\n    >>> f(2)\n> 4\n"""\n    return x * x\n'),
    "Windows line ends": fenced(F).replace("\n", "\r\n"),
    "bare code": F,
    "bare code between prose": f"Here is it.\n\n{F}\nThis squares x, doesn't it?\n",
    "a block of Markdown": fenced(f"# Answer\n{fenced(F)}", "markdown", "````"),
    "text for a language": fenced(F, "text"),
    "HTML": f'<pre><code class="language-python">{F}</code></pre>',
    "tags": f"[PYTHON]\n{F}[/PYTHON]",
    "LaTeX": f"\\begin{{lstlisting}}[language=Python]\n{F}\\end{{lstlisting}}",
    "one line of code in prose": "Use `f = lambda x: 0` or better `def f(x): return x * x` then.",
    "a fence of one line": "```python def f(x): return x * x```",
    "a session of the interpreter": fenced(">>> def f(x):\n...     return x * x\n>>> f(2)\n4\n", "pycon"),
    "an example behind": fenced(F) + "For example:\n" + fenced("print(f(2))\n"),
    "an example's input behind": fenced(F) + "Input:\n" + fenced("3\n", ""),
    "an install command in front": fenced("pip install x\n", "bash") + fenced(F),
    "another language behind": fenced(F) + fenced("int f(int x);\n", "c"),
    "a sketch that is no Python behind": fenced(F) + fenced("def f(x): ... # as\nabove, but then\n"),
    "a first attempt": fenced(F.replace("*", "+")) + "Wait, that adds.\n" + fenced(F),
    "imports in a block of their own": fenced("import math\n") + "and\n" + fenced(PROD.format("f")),
    "a helper in a block of its own": fenced(F.replace("f(", "g(")) + "then\n" + fenced(CALL.format("f", "g")),
    "helpers of helpers": "".join(
        map(fenced, ("import math\n", PROD.format("h"), CALL.format("g", "h"), CALL.format("f", "g")))
    ),
    "a helper behind": fenced(CALL.format("f", "g")) + "with\n" + fenced(F.replace("f(", "g(")),
    "a main program that reads": fenced(F + "\nn = int(input())\nfor _ in range(n):\n    print(f(int(input())))\n"),
    "a guarded main program": fenced(F + "\nif __name__ == '__main__':\n    print(f(int(input())))\n"),
    "a function that reads, called": fenced(F + "\ndef main():\n    print(f(int(input())))\n\nmain()\n"),
    "sys.stdin read at once": fenced("import sys\n" + F + READ),
}


@pytest.mark.parametrize("style", FUNCTIONS)
def test_a_function_is_what_a_reader_would_run(style: str) -> None:
    names: dict[str, object] = {"__name__": "answer"}
    found = extract_code(FUNCTIONS[style], ["f"])
    exec(found.source, names | {"input": _nothing_to_read}, names)
    exec(found.source, names)  # functions find their helpers in the globals
    # What an executed program defines is an object to the checker.
    assert names["f"](3) == 9 and not found.reason  # type: ignore[operator]


def _nothing_to_read() -> str:
    raise EOFError


PROGRAMS = {
    "a program": fenced(MAIN),
    "a class beside it": fenced(SOLUTION) + "As a program:\n" + fenced(MAIN),
    "a class behind it": fenced(MAIN) + "As on LeetCode:\n" + fenced(SOLUTION),
    "a class in front that it uses": fenced(SOLUTION) + fenced("print(Solution().f(int(input())))\n"),
    "a class in it": fenced(SOLUTION + "\nprint(Solution().f(int(input())))\n"),
    "a function in front that it uses": fenced(F) + "Read and print:\n" + fenced("print(f(int(input())))\n"),
    "an example behind": fenced(MAIN) + "Input:\n" + fenced("3\n", "") + "Output:\n" + fenced("9\n", "text"),
    "a check behind": fenced(MAIN) + fenced("assert 3 * 3 == 9\n"),
    "sys.stdin": fenced("import sys\nn = int(sys.stdin.readline())\nprint(n * n)\n"),
    "a guarded main program": fenced(GUARDED),
    "bare": MAIN,
    "tildes": fenced(MAIN, "", "~~~"),
}


@pytest.mark.parametrize("style", PROGRAMS)
def test_a_program_is_what_a_reader_would_run(
    style: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("3\n"))
    exec(extract_code(PROGRAMS[style], reads_stdin=True).source, {"__name__": "__main__"})
    assert capsys.readouterr().out == "9\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the final answer is empty"),
        (" \n", "the final answer is empty"),
        (fenced("int f(int x) { return x * x; }\n", "c"), "no Python among its blocks: c"),
        (fenced("x => x * x\n", "js") + fenced("{}\n", "json"), "no Python among its blocks: js, json"),
        (fenced("\n"), "no Python among its blocks: python"),
    ],
)
def test_without_a_program_the_reason_is_named(text: str, reason: str) -> None:
    found = extract_code(text, ["f"])
    assert (found.source, found.reason) == ("", reason)


def test_prose_without_code_is_left_as_it_is_and_fails_by_itself() -> None:
    assert extract_code("I cannot do this.", ["f"]).source == "I cannot do this."


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "-" * 100_000 + "1",
        "a." * 60_000 + "a",
        "lambda: " * 20_000 + "1",
        "\x00def f(x): pass",
        "[" * 199 + "]" * 199,
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "```python\ndef f(x): return x\nf = {}\n```", "def f(x):\n  {}\nand\n" + "so\n" * 50]
)
def test_hostile_code_ends_no_process_and_no_thread(text: str, around: str) -> None:
    """Python's parser has its own limits; threads score, and have smaller stacks."""
    threading.stack_size(1 << 20)
    try:
        found: list[Extracted] = []
        thread = threading.Thread(target=lambda: found.append(extract_code(around.replace("{}", text), ["f"])))
        thread.start()
        thread.join(60)
        assert found and found[0].source
    finally:
        threading.stack_size(0)
