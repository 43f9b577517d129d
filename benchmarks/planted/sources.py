"""Small changes of native source lines, one at a time, and the order in which they are planted."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "kernels/csrc"

_SWAPS = (
    (" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "),
    (" && ", " || "), (" || ", " && "), (" + ", " - "), (" - ", " + "), (" * ", " / "), (" / ", " * "),
    (" % ", " / "), (" += ", " -= "), (" *= ", " /= "), (" << ", " >> "), (" >> ", " << "), (" & ", " | "),
    (" | ", " & "), ("true", "false"), ("false", "true"), ("_fmadd_", "_fnmadd_"), ("_fnmadd_", "_fmadd_"),
    ("_max_", "_min_"), ("_min_", "_max_"), ("fmaxf(", "fminf("), ("fminf(", "fmaxf("), ("max(", "min("),
    ("min(", "max("), ("sqrtf(", "("), ("rsqrtf(", "("), ("TO_NEAREST_INT", "TO_ZERO"), ("_rn(", "_rz("),
    ("_CMP_LT_OQ", "_CMP_GT_OQ"), ("_CMP_GT_OQ", "_CMP_GE_OQ"), ("_slli_", "_srli_"), ("_srli_", "_slli_"),
    ("-INFINITY", "0.0f"), ("continue;", "break;"), ("_sub_", "_add_"), ("_andnot_", "_and_"), ("_or_", "_and_"),
)  # fmt: skip
_FLOAT = re.compile(r"(?<![\w.])(\d+\.\d*)(f?)\b")
_INTEGER = re.compile(r"(?<![\w.])(\d+|0x[0-9A-Fa-f]+)(u?)(?![\w.])")
_CHOICE = re.compile(r"\? ([^?:;]+?) : ([^?:;]+?)(?=[;,)\]])")
_STATEMENT = re.compile(r"^(\s+)((?:if \([^;]*\) |for \([^)]*\) )?)([^\s/#][^{}]*;)$")
_DECLARES = re.compile(
    r"^(?:const|constexpr|alignas|static|using|template|return|typename|extern|asm|struct|auto|break|__shared__"
    r"|(?:u?int\d*_t|float|double|bool|int|char|__m256i?|__m128i?|unsigned|half2?|uint2|uint4|float[24]"
    r"|Sums<[^>]*>|Tokens|Decoded) )"
)


@dataclass(frozen=True)
class Mutant:
    """One changed line of `file` (relative to kernels/csrc); `line` counts from 0. `id` outlives moves of the line."""

    file: str
    line: int
    before: str
    after: str
    id: str

    def source(self) -> str:
        """The whole file with the change."""
        lines = (CSRC / self.file).read_text().splitlines()
        assert lines[self.line] == self.before
        return "\n".join([*lines[: self.line], self.after, *lines[self.line + 1 :]]) + "\n"

    def told(self) -> str:
        return f"{self.id} {self.file}:{self.line + 1}: {self.before.strip()}  ->  {self.after.strip() or '(dropped)'}"


def changes(code: str) -> Iterator[str]:
    """Every small change of one line of C++ or CUDA, comment and preprocessor left alone."""
    body, comment, rest = code.partition("//")
    if not body.strip() or body.lstrip().startswith(("#", "namespace", "template", "EXPORT", "static_assert")):
        return
    for old, new in _SWAPS:
        for found in re.finditer(re.escape(old), body):
            yield body[: found.start()] + new + body[found.end() :] + comment + rest
    for found in _FLOAT.finditer(body):
        value = float(found[1])
        yield body[: found.start()] + f"{value * 1.01 or 0.01:.9g}{found[2]}" + body[found.end() :] + comment + rest
    for found in _INTEGER.finditer(body):
        yield body[: found.start()] + f"{int(found[1], 0) + 1}{found[2]}" + body[found.end() :] + comment + rest
    for found in _CHOICE.finditer(body):
        yield body[: found.start()] + f"? {found[2]} : {found[1]}" + body[found.end() :] + comment + rest
    statement = _STATEMENT.match(body.rstrip())
    if statement and not _DECLARES.match(statement[3]):
        yield f"{statement[1]}{statement[2]};"


def mutants_of(file: str) -> list[Mutant]:
    found, seen = [], {}
    for number, line in enumerate((CSRC / file).read_text().splitlines()):
        for after in dict.fromkeys(changes(line)):
            key = f"{file}|{line.strip()}|{after.strip()}"
            seen[key] = seen.get(key, 0) + 1
            name = hashlib.sha256(f"{key}|{seen[key]}".encode()).hexdigest()[:8]
            found.append(Mutant(file, number, line, after, name))
    return found


def groups(device: str) -> dict[str, tuple[str, ...]]:
    """Operator, or `include`, to the files that are its own: no earlier operator compiles them."""
    from kernels.operators import OPERATORS

    found: dict[str, tuple[str, ...]] = {}
    seen, shared = set[str](), set[str]()
    for op in OPERATORS:
        builds = [schedule.build for schedule in op.schedules if of_device(schedule.build, device)]
        files = {file for build in builds for file in (*build.sources, *build.headers) if not file.endswith("abi.h")}
        headers = {file for file in files if file.startswith("include/")}
        found[op.name] = tuple(sorted(files - headers - seen))
        seen |= files
        shared |= headers
    return {name: files for name, files in {**found, "include": tuple(sorted(shared))}.items() if files}


def of_device(build: Any, device: str) -> bool:
    return build is not None and build.language == {"cpu": "c++", "cuda": "cuda"}[device]


def drawn(files: Sequence[str]) -> list[Mutant]:
    """All mutants of `files` in the order in which they are planted."""
    every = [mutant for file in files for mutant in mutants_of(file)]
    return sorted(every, key=lambda mutant: mutant.id)
