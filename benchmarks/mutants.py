"""Faults planted in the native sources, one at a time, and whether the contract gate finds each.

    python benchmarks/mutants.py [OPERATOR …] [--device cpu|cuda] [--count 36] [--jobs N] [--list] [--only ID …]

Every source line offers small changes (a bound, a sign, a constant, a rounding, a dropped statement); `--count` of them
are drawn per operator by the hash of the change, so that a draw stays as the sources grow. `include` stands for the
headers, whose mutants every operator that reads them may kill. A mutant is built from a copy and run against every
contract case of the schedules that compile it; the first failed check, a crash or a hang kills it. One that does not
compile, or compiles to the same bytes (trivial compiler equivalence: Papadakis, Jia, Harman, Le Traon, ICSE 2015), is
replaced by the next. Those that change no result are in benchmarks/mutants_equivalent.py, with the reason.
Prints a line a mutant and the counts of each operator; exits with 1 where one survives that is not called equivalent.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CSRC = ROOT / "kernels/csrc"
LIMIT_S = {"cpu": 120, "cuda": 400}
OUTCOMES = ("survived", "killed", "stillborn", "identical")  # of a child, by its exit code
_PR_SET_PDEATHSIG = 1

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


def libraries(device: str) -> dict[tuple[str, str], str]:
    """(name, architecture) to the sha256 of every native library of the sources as they are, built where missing."""
    from kernels.native import building
    from kernels.operators import OPERATORS

    found = {}
    for build in [schedule.build for op in OPERATORS for schedule in op.schedules if of_device(schedule.build, device)]:
        for arch in build.archs:
            building.ensure(build, arch)
            found[build.name, arch] = building.read_manifest(build, arch)["library_sha256"]
    return found


def drawn(files: Sequence[str]) -> list[Mutant]:
    """All mutants of `files` in the order in which they are planted."""
    every = [mutant for file in files for mutant in mutants_of(file)]
    return sorted(every, key=lambda mutant: mutant.id)


class Bed:
    """A copy of the kernels that takes one mutant after the other; each is judged in a process of its own."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device, self.unchanged = folder, device, libraries(device)
        shutil.copytree(ROOT / "kernels", folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))

    def judge(self, group: str, mutant: Mutant | None) -> tuple[str, str]:
        """`killed`, `survived`, `stillborn`, `identical` and what was seen. None judges the sources as they are."""
        shutil.rmtree(self.folder / "build", ignore_errors=True)
        path = self.folder / "kernels/csrc" / mutant.file if mutant else None
        if path is not None:
            lines = path.read_text().splitlines()
            assert lines[mutant.line] == mutant.before
            path.write_text("\n".join([*lines[: mutant.line], mutant.after, *lines[mutant.line + 1 :]]) + "\n")
        try:
            return self._child(group, mutant)
        finally:
            if path is not None:
                shutil.copyfile(CSRC / mutant.file, path)

    def _child(self, group: str, mutant: Mutant | None) -> tuple[str, str]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()  # so that a late one's compiler is killed with it; it dies with its parent nevertheless
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(reading)
            os._exit(self._inside(group, mutant.file if mutant else None, writing))
        os.close(writing)
        with os.fdopen(reading) as pipe:
            late = not select.select([pipe], [], [], LIMIT_S[self.device])[0]
            if late:
                os.killpg(child, signal.SIGKILL)
            said = pipe.read()
        status = os.waitpid(child, 0)[1]
        if late:
            return "killed", f"not finished within {LIMIT_S[self.device]} s"
        if os.WIFSIGNALED(status):
            return "killed", signal.Signals(os.WTERMSIG(status)).name
        return OUTCOMES[os.waitstatus_to_exitcode(status)], said

    def _inside(self, group: str, file: str | None, writing: int) -> int:
        """In the child: the gate of the copied kernels, every schedule that compiles `file`, up to a failure."""
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "kernels"]:
            del sys.modules[name]
        sys.stderr.flush()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        code, said = "survived", ""
        try:
            subjects = [subject for subject in subjects_of(group, file, self.device) if self._differs(subject, file)]
            said = next(filter(None, map(first_failure, subjects)), "")
            code = "killed" if said else "survived" if subjects else "identical"
        except Exception as error:
            code = "stillborn" if type(error).__name__ == "BuildError" else "killed"
            said = f"{type(error).__name__}: {error}".splitlines()[0]
        os.write(writing, (said or " ").encode()[:4000])
        return OUTCOMES.index(code)

    def _differs(self, subject: Any, file: str | None) -> bool:
        """Whether there is anything to judge: a mutant that compiles to the same bytes is none of that library's."""
        from kernels.native.library import prepare

        library = prepare(subject.schedule.build)
        return file is None or self.unchanged.get((library.name, library.arch)) != library.sha256


def subjects_of(group: str, file: str | None, device: str) -> Iterator[Any]:
    """The schedules that compile `file`, of any operator; every one of the group where there is none."""
    from kernels import gate
    from kernels.operators import OPERATORS

    assert Path(gate.__file__).is_relative_to(Path.cwd())
    for op in OPERATORS:
        for schedule in op.schedules:
            build = schedule.build
            if of_device(build, device) and (
                file in (*build.sources, *build.headers) if file else group in ("include", op.name)
            ):
                yield gate.subject_of(op, schedule, device)


def first_failure(subject: Any) -> str | None:
    from kernels import gate
    from kernels.checking.cases import cases_of

    for case in cases_of(subject.op, subject.device):
        for line in gate.lines_of(subject, "contract", case, 0):
            if line.status != "passed":
                return f"{subject.name} {case.id} {line.check}: {line.message}"
    return None


def plant(group: str, files: Sequence[str], first: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Judge this process's part of one group's mutants and print each; the `first` judges the group as it is, too."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from mutants_equivalent import EQUIVALENT

    found: dict[str, list[str]] = {"equivalent": []} | {outcome: [] for outcome in OUTCOMES}
    part, parts = options.part
    count = options.count // parts + (part < options.count % parts)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        bed = Bed(Path(name), options.device)
        if first:
            outcome, said = bed.judge(group, None)
            assert outcome == "survived", f"{group} fails its gate without any mutant: {said}"
        for mutant in drawn(files)[part::parts]:
            if (options.only and mutant.id not in options.only) or (not options.only and planted(found) >= count):
                continue
            if time.monotonic() > options.until:
                break
            began = time.monotonic()
            outcome, said = bed.judge(group, mutant)
            reason = EQUIVALENT.get(mutant.id)
            if reason is not None and outcome == "survived":
                outcome, said = "equivalent", reason
            elif reason is not None and outcome == "killed":
                outcome, said = "survived", f"called equivalent ({reason}), but killed: {said}"
            found[outcome].append(mutant.id)
            print(f"{outcome:10} {mutant.told()}  [{time.monotonic() - began:.1f} s] {said.strip()[:160]}", flush=True)
    return {"group": group, "device": options.device, "planted": planted(found)} | {k: len(v) for k, v in found.items()}


def planted_here(chosen: dict[str, tuple[str, ...]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """This process's part of every group, beginning with another one than its neighbours."""
    import torch  # before the forks, so that each has it already

    torch.set_num_threads(1)
    (part, parts), names = options.part, list(chosen)
    turned = names[part % len(names) :] + names[: part % len(names)]
    return [plant(name, chosen[name], names.index(name) % parts == part, options) for name in turned]


def shared_out(names: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The groups' mutants over `--jobs` processes, whose lines are printed as they come."""
    words = [*names, "--device", options.device, "--count", str(options.count), "--minutes", str(options.minutes)]
    words += ["--only", *options.only] if options.only else []
    commands = [[sys.executable, __file__, *words, "--part", f"{i}/{options.jobs}"] for i in range(options.jobs)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    with ThreadPoolExecutor(options.jobs) as pool:
        parts = [total for totals in pool.map(totals_of, children) for total in totals]
    assert not any(child.returncode not in (0, 1) for child in children), "a part ended before its totals"
    return [summed([part for part in parts if part["group"] == name]) for name in names]


def totals_of(child: subprocess.Popen[str]) -> list[dict[str, Any]]:
    totals = []
    for line in child.stdout or ():
        if line.startswith("{"):
            totals.append(json.loads(line))
        else:
            print(line, end="", flush=True)
    child.wait()
    return totals


def summed(totals: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {k: sum(total[k] for total in totals) if isinstance(v, int) else v for k, v in totals[0].items()}


def part_of(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    return int(part), int(parts)


def planted(found: dict[str, list[str]]) -> int:
    return sum(len(ids) for outcome, ids in found.items() if outcome not in ("stillborn", "identical"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("operators", nargs="*", help="operators, or include (default: all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=36, help="mutants per operator (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (default: %(default)s)")
    parser.add_argument(
        "--part", type=part_of, default=(0, 1), metavar="I/N", help="every N-th mutant from the I-th on"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="plant none after so many (default: all)")
    parser.add_argument("--only", nargs="+", default=(), metavar="ID")
    parser.add_argument(
        "--list", action="store_true", help="print the mutants that would be planted first, and judge none"
    )
    options = parser.parse_args()
    options.until = time.monotonic() + 60 * options.minutes
    chosen = {name: files for name, files in groups(options.device).items() if name in (options.operators or [name])}
    if unknown := sorted(set(options.operators) - set(chosen)):
        parser.error(
            f"{unknown[0]} has no native source for {options.device}; there are {', '.join(groups(options.device))}"
        )
    if options.list:
        for files in chosen.values():
            print("\n".join(mutant.told() for mutant in drawn(files)[: options.count]))
        return 0
    totals = shared_out(list(chosen), options) if options.jobs > 1 else planted_here(chosen, options)
    for total in totals:
        print(json.dumps(total))
    return int(any(total["survived"] for total in totals))


if __name__ == "__main__":
    sys.exit(main())
