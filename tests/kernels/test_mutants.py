"""The gate against faults planted in the native sources, by benchmarks/mutants.py."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernels.operators import OPERATORS, operator

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks/mutants.py"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


mutants = load("mutants")
GROUPS = {device: mutants.groups(device) for device in ("cpu", "cuda")}


@pytest.mark.parametrize("device", GROUPS)
def test_every_operators_source_offers_thirty_mutants_and_more(device: str) -> None:
    language = {"cpu": "c++", "cuda": "cuda"}[device]
    builds = [schedule.build for op in OPERATORS for schedule in op.schedules if schedule.build]
    named = [{*build.sources, *build.headers} for build in builds if build.language == language]
    listed = [file for files in GROUPS[device].values() for file in files]
    assert sorted(listed) == sorted(set[str]().union(*named) - {"include/abi.h"})
    for files in GROUPS[device].values():
        drawn = mutants.drawn(files)
        assert len(drawn) > 36 and len({mutant.id for mutant in drawn}) == len(drawn)
        for mutant in drawn:
            line = (mutants.CSRC / mutant.file).read_text().splitlines()[mutant.line]
            assert line == mutant.before != mutant.after


def test_a_line_offers_what_changes_it_and_a_comment_nothing() -> None:
    changed = list(mutants.changes("  if (i < 8) sum += 0.5f * x[i];  // at most 8 + 1"))
    assert "  if (i <= 8) sum += 0.5f * x[i];  // at most 8 + 1" in changed
    assert "  if (i < 9) sum += 0.5f * x[i];  // at most 8 + 1" in changed
    assert "  if (i < 8) sum -= 0.5f * x[i];  // at most 8 + 1" in changed
    assert "  if (i < 8) sum += 0.505f * x[i];  // at most 8 + 1" in changed
    assert "  if (i < 8) ;" in changed and len(changed) == 6
    assert not list(mutants.changes("// x < 8")) and not list(mutants.changes("#if WIDE > 8"))


def test_what_is_called_equivalent_can_still_be_planted() -> None:
    known = {mutant.id for device in ("cpu", "cuda") for files in mutants.groups(device).values()
             for mutant in mutants.drawn(files)}  # fmt: skip
    equivalent = load("mutants_equivalent").EQUIVALENT
    assert equivalent.keys() <= known, "a line was changed: judge its mutants again"
    assert all(len(reason) > 20 for reason in equivalent.values())


def planted(group: str, *words: str) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, SCRIPT, group, *words], capture_output=True, text=True, timeout=3500)
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, done.stdout.splitlines()


@pytest.mark.acceptance
def test_a_planted_fault_is_found_and_an_equivalent_one_is_not() -> None:
    """One of each, through the whole machinery."""
    op = operator("selection")
    from kernels.checking.cases import cases_of

    if refusal := op.schedule("cpu-scan").refusal(cases_of(op, "cpu")[0].make("cpu").problem):
        pytest.skip(refusal.reason)
    code, lines = planted("selection", "--only", "473d29f9", "3ebe1335")
    assert code == 0, lines
    assert {line.split()[0] for line in lines[:-1]} == {"killed", "equivalent"}


@pytest.mark.acceptance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", GROUPS["cpu"])
def test_the_gate_finds_what_is_planted(group: str) -> None:
    code, lines = planted(group)
    total = json.loads(lines[-1])
    print("\n".join(lines))
    assert total["planted"] >= 30 and total["killed"] + total["equivalent"] == total["planted"] and code == 0


@pytest.mark.gpu
@pytest.mark.acceptance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", GROUPS["cuda"])
def test_the_gate_finds_what_is_planted_on_cuda(group: str) -> None:
    code, lines = planted(group, "--device", "cuda", "--jobs", "12")
    total = json.loads(lines[-1])
    print("\n".join(lines))
    assert total["planted"] >= 30 and code == 0
