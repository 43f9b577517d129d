"""The libraries of planted faults, built into a folder that may travel to the machine that judges them.

    FOLDER/plan.jsonl        a line a mutant: its group, whether it can be judged, and the libraries that were seen
    FOLDER/ID/NAME.ID.so     a library with that one line changed
    FOLDER/ID/NAME.ID.same   it has the bytes of the unchanged one: none of that library's business

A mutant that no compiler takes is stillborn; one that changes no library is identical (trivial compiler equivalence:
Papadakis, Jia, Harman, Le Traon, ICSE 2015). Specifications with the same sources and flags are built once; only the
names of their symbols differ.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from kernels.native import building
from kernels.native.specification import BuildSpec, sha256_file
from kernels.operators import OPERATORS
from planted.sources import CSRC, Mutant, drawn, of_device

COMPILE_LIMIT_S = 200
WHOLE = "whole"  # beside the plan, once nobody builds any more
BUILT, STILLBORN, IDENTICAL = "built", "stillborn", "identical"
LATE = "late"  # nobody tried: the time was up


@cache
def specs_of(device: str) -> tuple[BuildSpec, ...]:
    return tuple(
        s.build for op in OPERATORS for s in op.schedules if s.build is not None and of_device(s.build, device)
    )


@cache
def body_of(spec: BuildSpec) -> BuildSpec:
    """The first specification with the sources and flags of `spec`: its library serves both."""
    same = specs_of("cuda" if spec.language == "cuda" else "cpu")
    body = (spec.sources, spec.headers, spec.flags)
    return next((other for other in same if (other.sources, other.headers, other.flags) == body), spec)


def specs_with(file: str, device: str) -> list[BuildSpec]:
    """What compiles `file`, once each."""
    found = [body_of(spec) for spec in specs_of(device) if file in (*spec.sources, *spec.headers)]
    return list(dict.fromkeys(found))


def place(folder: Path, mutant: str, spec: BuildSpec) -> Path:
    """A name of its own: a process maps the unchanged library beside it, and refuses two of one name."""
    return folder / mutant / f"{body_of(spec).name}.{mutant}.so"


def state_of(folder: Path, mutant: str, spec: BuildSpec) -> str | None:
    """BUILT, IDENTICAL, or None where nobody has tried."""
    path = place(folder, mutant, spec)
    return BUILT if path.exists() else IDENTICAL if path.with_suffix(".same").exists() else None


def build(folder: Path, mutant: Mutant, spec: BuildSpec) -> str:
    """Compile one library with `mutant` in it: BUILT, IDENTICAL or STILLBORN."""
    spec, arch = body_of(spec), spec.archs[0]
    unchanged = building.read_manifest(spec, arch)
    assert unchanged is not None, f"{spec.name} is not built: python -m kernels.build"
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        at = Path(name)
        for file in (*spec.sources, *spec.headers):
            (at / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CSRC / file, at / file)
        lines = (CSRC / mutant.file).read_text().splitlines()
        assert lines[mutant.line] == mutant.before
        (at / mutant.file).write_text(
            "\n".join([*lines[: mutant.line], mutant.after, *lines[mutant.line + 1 :]]) + "\n"
        )
        tool = building.compiler_for(spec, arch)
        command = [tool.path, *spec.all_flags(arch), "-I", "include", "-o", "library.so", *spec.sources]
        try:
            done = subprocess.run(command, cwd=at, capture_output=True, timeout=COMPILE_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return STILLBORN
        if done.returncode:
            return STILLBORN
        target = place(folder, mutant.id, spec)
        target.parent.mkdir(parents=True, exist_ok=True)
        if sha256_file(at / "library.so") == unchanged["library_sha256"]:
            target.with_suffix(".same").touch()
            return IDENTICAL
        shutil.copyfile(at / "library.so", target.with_suffix(".part"))
        target.with_suffix(".part").replace(target)
        return BUILT


def tried(folder: Path, mutant: Mutant, device: str) -> str:
    """Libraries of `mutant` up to the first that differs; IDENTICAL where none does."""
    for spec in specs_with(mutant.file, device):
        outcome = state_of(folder, mutant.id, spec) or build(folder, mutant, spec)
        if outcome != IDENTICAL:
            return outcome
    return IDENTICAL


@dataclass(frozen=True)
class Planned:
    """A line of the plan."""

    group: str
    device: str
    id: str
    file: str
    told: str
    outcome: str


@dataclass(frozen=True)
class Choice:
    """How many of each group, or which; `until` is time.monotonic()'s."""

    count: int
    jobs: int = 1
    until: float = math.inf
    only: tuple[str, ...] = ()


def plan_of(folder: Path) -> dict[str, Planned]:
    path = folder / "plan.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {found.id: found for found in (Planned(**json.loads(line)) for line in lines)}


def build_all(folder: Path, device: str, groups: dict[str, tuple[str, ...]], choice: Choice) -> None:
    """The next mutants of every group until each has `count` that can be judged; the plan grows by lines."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WHOLE).unlink(missing_ok=True)
    plan = plan_of(folder)
    left = {
        group: [m for m in drawn(files) if m.id not in plan and (not choice.only or m.id in choice.only)]
        for group, files in groups.items()
    }
    built = {group: sum(p.group == group and p.outcome == BUILT for p in plan.values()) for group in groups}

    def note(group: str, mutant: Mutant) -> Planned:
        late = time.monotonic() > choice.until
        outcome = LATE if late else tried(folder, mutant, device)
        return Planned(group, device, mutant.id, mutant.file, mutant.told(), outcome)

    def lacking() -> list[tuple[str, Mutant]]:
        """As many of each group as it lacks, taken from those that are left; the groups in turn."""
        turns: list[tuple[int, str, Mutant]] = []
        for group in groups:
            count = len(left[group]) if choice.only else max(0, choice.count - built[group])
            turns += [(turn, group, mutant) for turn, mutant in enumerate(left[group][:count])]
            del left[group][:count]
        return [(group, mutant) for _, group, mutant in sorted(turns, key=lambda found: found[0])]

    with (folder / "plan.jsonl").open("a") as out, ThreadPoolExecutor(choice.jobs) as pool:
        while (wanted := lacking()) and time.monotonic() < choice.until:
            for found in pool.map(note, *zip(*wanted, strict=True)):
                if found.outcome == LATE:
                    continue
                built[found.group] += found.outcome == BUILT
                print(json.dumps(asdict(found)), file=out, flush=True)
    (folder / WHOLE).touch()
