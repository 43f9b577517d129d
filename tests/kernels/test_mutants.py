"""The gate against faults planted in the native sources, by benchmarks/mutants.py."""

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kernels.checking import before
from kernels.checking.cases import cases_of
from kernels.native import toolkit
from kernels.native.building import ensure
from kernels.operators import OPERATORS, operator

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks/mutants.py"
sys.path.insert(0, str(SCRIPT.parent))

from planted import beyond, building, court, judging, sources  # noqa: E402  no package: the script's own folder
from planted.equivalent import EQUIVALENT  # noqa: E402

GROUPS = {device: sources.groups(device) for device in ("cpu", "cuda")}


@pytest.mark.parametrize("device", GROUPS)
def test_every_operators_source_offers_thirty_mutants_and_more(device: str) -> None:
    language = {"cpu": "c++", "cuda": "cuda"}[device]
    builds = [schedule.build for op in OPERATORS for schedule in op.schedules if schedule.build]
    named = [{*build.sources, *build.headers} for build in builds if build.language == language]
    listed = [file for files in GROUPS[device].values() for file in files]
    assert sorted(listed) == sorted(set[str]().union(*named) - {"include/abi.h"})
    for files in GROUPS[device].values():
        drawn = sources.drawn(files)
        assert len(drawn) > 36 and len({mutant.id for mutant in drawn}) == len(drawn)
        for mutant in drawn:
            line = (sources.CSRC / mutant.file).read_text().splitlines()[mutant.line]
            assert line == mutant.before != mutant.after


def test_a_line_offers_what_changes_it_and_a_comment_nothing() -> None:
    changed = list(sources.changes("  if (i < 8) sum += 0.5f * x[i];  // at most 8 + 1"))
    assert "  if (i <= 8) sum += 0.5f * x[i];  // at most 8 + 1" in changed
    assert "  if (i < 9) sum += 0.5f * x[i];  // at most 8 + 1" in changed
    assert "  if (i < 8) sum -= 0.5f * x[i];  // at most 8 + 1" in changed
    assert "  if (i < 8) sum += 0.505f * x[i];  // at most 8 + 1" in changed
    assert "  if (i < 8) ;" in changed and len(changed) == 6
    assert not list(sources.changes("// x < 8")) and not list(sources.changes("#if WIDE > 8"))


def test_what_is_called_equivalent_can_still_be_planted() -> None:
    known = {mutant.id for device in ("cpu", "cuda") for files in sources.groups(device).values()
             for mutant in sources.drawn(files)}  # fmt: skip
    assert EQUIVALENT.keys() | beyond.BEYOND.keys() <= known, "a line was changed: judge its mutants again"
    assert not EQUIVALENT.keys() & beyond.BEYOND.keys()
    found_elsewhere = [found.reason for found in beyond.BEYOND.values()]
    assert all(len(reason) > 20 for reason in (*EQUIVALENT.values(), *found_elsewhere))


IDS = {"028d9d03": "a check", "042b517c": "a signal", "3ebe1335": "nothing"}  # of selection/scan.cpp, and what kills it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Three mutants of the CPU's selection, built."""
    scan, cases = operator("selection").schedule("cpu-scan"), cases_of(operator("selection"), "cpu")
    if refusal := scan.refusal(cases[0].make("cpu").problem):
        pytest.skip(refusal.reason)
    made = tmp_path_factory.mktemp("planted")
    for spec in building.specs_of("cpu"):
        if spec.operator == "selection":
            ensure(spec, spec.archs[0])
    choice = building.Choice(0, 2, only=tuple(IDS))
    building.build_all(made, "cpu", {"selection": GROUPS["cpu"]["selection"]}, choice)
    return made


def judged(
    folder: Path, until: float = float("inf"), only: Collection[str] = IDS, start: int = 0
) -> dict[str, judging.Verdict]:
    planned = [planned for planned in building.plan_of(folder).values() if planned.id in only]
    jobs = deque(judging.Job("selection", planned.id, planned.file, start) for planned in planned)
    out = folder / "verdicts.jsonl"
    with out.open("w") as lines:
        court.Court(folder, "cpu", lines, jobs, jobs=1, compilers=1, until=until).run()
    return {verdict.id: verdict for verdict in court.verdicts_of([out])}


@pytest.mark.parametrize("stays", [pytest.param(False, marks=pytest.mark.acceptance), True])
def test_a_planted_fault_is_found_and_what_changes_nothing_is_not(
    folder: Path, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that stays has the next mutant's library, and the unchanged one, beside those of all before it."""
    monkeypatch.setattr(judging, "STAYS", {"cpu"} if stays else set())
    found = judged(folder)
    assert {name: verdict.outcome for name, verdict in found.items()} == {
        name: "survived" if by == "nothing" else "killed" for name, by in IDS.items()
    }
    assert found["042b517c"].said.startswith("SIG") and "bound/" in found["028d9d03"].said
    assert found["3ebe1335"].seen == found["3ebe1335"].problems > 10


def test_specifications_that_differ_in_name_alone_share_a_library_and_others_have_their_own() -> None:
    names = {spec.name: building.body_of(spec).name for spec in building.specs_of("cuda")}
    assert names["shortlist_codes"] == "shortlist_rows" and names["gated_nvfp4_stream"] == "projection_nvfp4_stream"
    assert names["gdn_bv8"] == "gdn_bv8" and building.body_of(before.BUILD) is before.BUILD


def test_a_judge_that_fails_what_is_unchanged_judges_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "STAYS", {"cpu"})
    monkeypatch.setattr(judging.Bench, "failure", lambda bench, problem: "it is I who am broken")
    assert {verdict.outcome for verdict in judged(folder).values()} == {"foul"}


def test_a_mutant_that_breaks_its_judge_is_killed_where_the_sources_go_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a write beyond a workspace, say: what is unchanged fails after it, and passes in the next judge before it."""
    broken: list[str] = []  # of one process

    def failure(bench: judging.Bench, problem: judging.Problem) -> str | None:
        if bench.mutant != judging.AS_IS:
            broken.append("what it wrote over")
        return "wrong" if broken else None

    monkeypatch.setattr(judging, "STAYS", {"cpu"})
    monkeypatch.setattr(judging.Bench, "failure", failure)
    found = judged(folder, only=["3ebe1335"])["3ebe1335"]
    assert (found.outcome, found.said) == ("killed", "wrong")


@pytest.mark.acceptance
def test_a_judge_that_hangs_has_killed_and_one_that_cannot_begin_has_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(court, "HANG_S", {"cpu": 0.3})
    monkeypatch.setattr(court, "FRESH", 1)
    monkeypatch.setattr(judging.Bench, "failure", lambda bench, problem: time.sleep(60))
    assert judged(folder, only=["3ebe1335"])["3ebe1335"].outcome == "killed"
    monkeypatch.setattr(judging, "serve", lambda *operands: time.sleep(60))
    assert judged(folder, only=["3ebe1335"])["3ebe1335"].outcome == "foul"


@pytest.mark.acceptance
def test_what_a_cut_run_saw_is_kept_and_gone_on_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = judging.Bench.failure

    def slow(bench: judging.Bench, problem: judging.Problem) -> str | None:
        time.sleep(0.2)
        return failure(bench, problem)

    monkeypatch.setattr(judging, "TURN_S", {"cpu": 0.3})
    monkeypatch.setattr(judging.Bench, "failure", slow)
    cut = judged(folder, time.monotonic() + 1.2, ["3ebe1335"])["3ebe1335"]
    assert cut.outcome == "cut" and 0 < cut.seen < cut.problems
    monkeypatch.setattr(judging.Bench, "failure", failure)
    went_on = judged(folder, only=["3ebe1335"], start=cut.seen)["3ebe1335"]
    assert went_on.outcome == "survived" and went_on.seen == went_on.problems


def planted(group: str, *words: str) -> dict[str, int]:
    """The counts of a group whose every mutant was judged to its end: at least thirty, or all that it offers."""
    done = subprocess.run([sys.executable, SCRIPT, group, *words], capture_output=True, text=True, timeout=3500)
    assert done.stdout, done.stderr[-2000:]
    total = json.loads(done.stdout.splitlines()[-1])
    print(done.stdout)
    device = total["device"]
    offered = len(sources.drawn(GROUPS[device][group]))
    assert done.returncode == 0
    assert total["planted"] >= 30 or total["planted"] + total["stillborn"] + total["identical"] == offered
    return total


@pytest.mark.acceptance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", GROUPS["cpu"])
def test_the_gate_finds_what_is_planted(group: str) -> None:
    total = planted(group)
    assert total["killed"] + total["equivalent"] == total["planted"]


# Of output_gate/pieces.cu: an output left as it was, an address beyond the operand, two blocks more than are needed.
CUDA_IDS = {"041602d2": "bound/live", "a4447893": "illegal memory access", "76fb99eb": ""}


@pytest.fixture(scope="module")
def cuda_folder(tmp_path_factory: Any) -> Path:
    """Three mutants of Hopper's output gate, built."""
    if not toolkit.nvcc("sm_90a"):
        pytest.skip("no nvcc that knows sm_90a")
    for spec in (*(spec for spec in building.specs_of("cuda") if spec.operator == "output_gate"), before.BUILD):
        ensure(spec, spec.archs[0])
    made, group = tmp_path_factory.mktemp("planted"), {"output_gate": GROUPS["cuda"]["output_gate"]}
    building.build_all(made, "cuda", group, building.Choice(0, len(CUDA_IDS), only=tuple(CUDA_IDS)))
    return made


@pytest.mark.acceptance
def test_mutants_of_cuda_sources_are_built_without_a_gpu(cuda_folder: Path) -> None:
    plan = building.plan_of(cuda_folder)
    assert {name: found.outcome for name, found in plan.items()} == dict.fromkeys(CUDA_IDS, building.BUILT)


@pytest.mark.gpu
def test_on_a_gpu_too_and_a_judge_whose_context_broke_is_replaced(cuda_folder: Path) -> None:
    """In a process of its own: judges are forked, which one that has used CUDA cannot do."""
    command = [sys.executable, SCRIPT, "output_gate", "--device", "cuda", "--folder", cuda_folder, "--judge"]
    done = subprocess.run([*command, "--only", *CUDA_IDS], capture_output=True, text=True, timeout=200)
    found = {verdict.id: verdict for verdict in court.verdicts_of([cuda_folder / "verdicts.jsonl"])}
    outcomes = {name: verdict.outcome for name, verdict in found.items()}
    assert outcomes == {name: "killed" if by else "survived" for name, by in CUDA_IDS.items()}, done.stderr[-2000:]
    assert done.returncode == 0 and all(by in found[name].said for name, by in CUDA_IDS.items()), done.stdout
    assert found["76fb99eb"].seen == found["76fb99eb"].problems > 10


@pytest.mark.gpu
@pytest.mark.acceptance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", [group for group in GROUPS["cuda"] if group != "include"])
def test_the_gate_finds_what_is_planted_on_cuda(group: str) -> None:
    total = planted(group, "--device", "cuda", "--jobs", "12")
    assert total["killed"] + total["equivalent"] + total["beyond"] == total["planted"]


@pytest.mark.gpu
@pytest.mark.acceptance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", beyond.BEYOND)
def test_another_gate_finds_what_the_contract_lets_pass(name: str, tmp_path: Path) -> None:
    found, tree = beyond.BEYOND[name], tmp_path / "planted"
    plant = [sys.executable, SCRIPT, "--device", "cuda", "--only", name, "--plant", tree]
    subprocess.run(plant, check=True, timeout=60)
    gate = [sys.executable, "-m", "kernels.gate", found.schedule, "--gate", found.gate]
    for folder, passes in ((ROOT, True), (tree, False)):
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(gate, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        failed = [line for line in lines if line["status"] == "failed"]
        assert {line["check"] for line in failed} == (set() if passes else {found.check}), done.stderr[-2000:]


def test_one_mutant_is_planted_in_a_copy_of_the_package(tmp_path: Path) -> None:
    name = next(iter(beyond.BEYOND))
    plant = [sys.executable, SCRIPT, "--device", "cuda", "--only", name, "--plant", tmp_path / "tree"]
    subprocess.run(plant, check=True, timeout=60)
    (mutant,) = (m for files in GROUPS["cuda"].values() for m in sources.drawn(files) if m.id == name)
    changed = (tmp_path / "tree/kernels/csrc" / mutant.file).read_text().splitlines()
    assert changed[mutant.line] == mutant.after
    changed[mutant.line] = mutant.before
    assert changed == (sources.CSRC / mutant.file).read_text().splitlines()
