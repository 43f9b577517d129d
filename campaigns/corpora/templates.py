"""How a record becomes a user message. The texts in force are frozen too, since they change every answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from campaigns.errors import UsageError

DEFAULT: Mapping[str, str] = {
    "gsm8k": "{question}\nThink step by step and put the final number in \\boxed{{}}.",
    "math500": "{problem}\nThink step by step and put the final answer in \\boxed{{}}.",
    "humaneval": "Complete this Python function. Answer with the whole function in one code block.\n"
    "```python\n{prompt}```",
    "mbpp": "{text}\nAnswer with Python code in one code block. It has to pass these tests:\n{tests}",
    "livecodebench-stdin": "{problem}\n\nWrite a Python program that reads standard input and prints the answer. "
    "Put the whole program in one code block.",
    "livecodebench-functional": "{problem}\n\nComplete this Python class. Put the whole class in one code block.\n"
    "```python\n{starter}\n```",
    "json-schema": "Write one JSON document that fits this JSON schema. Answer with the document alone.\n{schema}",
}


def read_templates(path: Path | None) -> Mapping[str, str]:
    """The default texts, with those that a JSON file {name: text} replaces."""
    if path is None:
        return DEFAULT
    try:
        own = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as a JSON object of templates ({error})") from error
    unknown = sorted(set(own) - set(DEFAULT)) if isinstance(own, dict) else ["(no object)"]
    if unknown:
        raise UsageError(f"{path}: unknown template {unknown[0]!r}; the names are {', '.join(DEFAULT)}")
    wrong = [name for name, text in own.items() if not isinstance(text, str)]
    if wrong:
        raise UsageError(f"{path}: template {wrong[0]!r} is no text; give a text with fields in braces")
    return {**DEFAULT, **own}


def render(templates: Mapping[str, str], name: str, **fields: str) -> str:
    try:
        return templates[name].format(**fields)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"template {name!r}: {error} cannot be filled in; it may use {', '.join('{' + f + '}' for f in fields)}"
        ) from error
