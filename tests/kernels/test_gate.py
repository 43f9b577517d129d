"""The gate command: one JSON line a check, honest exit codes, and sanitizers that are held rather than passed."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernels import bench, gate
from kernels.checking import sanitizer, sheet
from kernels.checking.cases import cases_of, hammered_of, sanitized_of, working_sets_of
from kernels.operators import OPERATORS, operator

FIELDS = (
    "gate", "operator", "schedule", "revision", "library_sha256", "check", "problem", "status", "message", "figures",
    "host", "utc",
)  # fmt: skip


def run_gate(*arguments: str) -> tuple[int, list[dict]]:
    out = Path(arguments[-1])
    code = gate.main(["--device", "cpu", "--gate", "contract", *arguments[:-1], "--out", str(out)])
    return code, [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture
def scanned():
    """Skip where the native library cannot be had."""
    schedule = operator("selection").schedule("cpu-scan")
    if refusal := schedule.refusal(cases_of(operator("selection"), "cpu")[0].make("cpu").problem):
        pytest.skip(refusal.reason)


def test_writes_one_line_a_check(scanned, tmp_path, capsys):
    code, lines = run_gate("selection/cpu-scan", "--cases", "r2-v2-k1", str(tmp_path / "lines.jsonl"))
    assert code == 0 and lines
    assert all(tuple(line) == FIELDS for line in lines)
    assert {line["status"] for line in lines} == {"passed"}
    assert {line["check"].partition("/")[0] for line in lines} == {
        "guards",
        "untouched",
        "bound",
        "bytes",
        "twice",
        "fence",
    }
    first = lines[0]
    assert (first["operator"], first["schedule"], first["revision"]) == ("selection", "cpu-scan", 1)
    assert len(first["library_sha256"]) == 64
    assert "selection/cpu-scan" in capsys.readouterr().err


def test_a_broken_schedule_fails_the_gate(scanned, tmp_path, monkeypatch):
    op = operator("selection")
    broken = replace(op.schedule("cpu-scan"), run=lambda logits, k: op.schedule("sort").run(-logits, k))
    monkeypatch.setattr(gate, "wanted", lambda names, every, device: [(op, broken)])
    code, lines = run_gate("selection", "--cases", "r2-v2-k1", str(tmp_path / "lines.jsonl"))
    assert code == 1 and any(line["status"] == "failed" and line["message"] for line in lines)


def test_an_exception_is_a_failed_check(scanned, tmp_path, monkeypatch):
    op = operator("selection")

    def explodes(logits, k):
        raise RuntimeError("an illegal memory access was encountered\nand more")

    broken = replace(op.schedule("cpu-scan"), run=explodes)
    monkeypatch.setattr(gate, "wanted", lambda names, every, device: [(op, broken)])
    code, lines = run_gate("selection", "--cases", "r2-v2-k1", str(tmp_path / "lines.jsonl"))
    assert code == 1
    assert [line["message"] for line in lines] == ["RuntimeError: an illegal memory access was encountered"]


def test_a_schedule_no_problem_reaches_is_held(scanned, tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "cases_of", lambda op, device: ())
    code, lines = run_gate("selection/cpu-scan", str(tmp_path / "lines.jsonl"))
    assert code == 1 and [line["status"] for line in lines] == ["held"]


def test_a_text_that_no_problems_id_contains_is_a_usage_error_and_no_finding(scanned, tmp_path, capsys):
    out = tmp_path / "lines.jsonl"
    assert gate.main(["selection/cpu-scan", "--device", "cpu", "--cases", "NOPE", "--out", str(out)]) == 2
    assert "--cases NOPE: no problem's id contains NOPE; there are r" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("module", "words"), [("gate", []), ("build", ["--bogus"]), ("list", ["--bogus"]), ("gate", ["--gate", "x", "a"])]
)
def test_a_wrong_word_gets_one_sentence_without_usage_lines(module, words, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [module, *words])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(f"kernels.{module}").main()
    said = capsys.readouterr().err
    assert said.startswith(f"python -m kernels.{module}: ") and said.count("\n") == 1


def test_never_overwrites(tmp_path, capsys):
    (tmp_path / "lines.jsonl").write_text("")
    with pytest.raises(SystemExit, match="2"):
        gate.main(["selection", "--out", str(tmp_path / "lines.jsonl")])
    assert "never overwrite" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["selection/quick", "convolution"])
def test_unknown_names_are_a_usage_error(name, capsys):
    assert gate.main(["--device", "cpu", name]) == 2
    assert name.split("/")[-1] in capsys.readouterr().err


def test_all_means_every_schedule_of_the_device_but_the_defaults():
    found = {(op.name, schedule.name) for op, schedule in gate.wanted([], True, "cpu")}
    native = {(op.name, s.name) for op in OPERATORS for s in op.schedules if s.build and s.build.language == "c++"}
    assert native <= found and not {(op.name, op.default) for op in OPERATORS} & found
    cuda = {(op.name, s.name) for op in OPERATORS for s in op.schedules if s.build and s.build.language == "cuda"}
    assert not cuda & found


def test_no_number_is_written_that_json_lacks():
    found = sheet.finite({"a": float("inf"), "b": {"c": float("nan"), "d": 1.5}})
    assert found == {"a": None, "b": {"c": None, "d": 1.5}}


BEGIN, END = (f"{mark}bv8 one\n" for mark in (sanitizer.BEGIN, sanitizer.END))
INVALID = "========= Invalid __global__ write of size 4 bytes\n=========     at kernel+0x40\n"
NONE = "========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.parametrize(
    ("code", "output", "status", "words"),
    [
        (0, f"{BEGIN}{END}{NONE}", "passed", ""),
        (0, f"{BEGIN}{END}========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)\n", "passed", ""),
        (99, f"{BEGIN}{INVALID}{END}========= ERROR SUMMARY: 1 error\n", "failed", "1 reported; first: Invalid"),
        (99, f"{BEGIN}========= Error: Race reported\n{END}========= RACECHECK SUMMARY: 1 hazard\n", "failed", "Race"),
        (0, NONE, "held", "did not finish"),
        (0, f"{BEGIN}{NONE}", "held", "did not finish"),
        (1, f"{BEGIN}{END}{NONE}", "held", "exit 1 and 0 reported"),
        (99, f"{BEGIN}{END}========= ERROR SUMMARY: 2 errors\n", "held", "2 reported, of no known problem"),
        (255, "========= Error: Device not supported\n", "held", "Device not supported"),
        (0, f"{BEGIN}{END}", "held", "no summary"),
    ],
    ids=[
        "clean", "race-clean", "bad access", "race", "never began", "never ended", "crashed", "unplaced", "refused",
        "silent",
    ],
)  # fmt: skip
def test_a_sanitizers_words_are_judged(code, output, status, words):
    found = sanitizer.judge(code, output, ["bv8 one"])["bv8 one"]
    assert found.status == status and words in found.message


def test_a_report_belongs_to_the_problem_it_came_in():
    two = f"{sanitizer.BEGIN}bv8 two\n{INVALID}{sanitizer.END}bv8 two\n"
    output = f"========= COMPUTE-SANITIZER\n{BEGIN}{END}{two}========= ERROR SUMMARY: 1 error\n"
    names = ["bv8 one", "bv8 two", "bv8 three"]
    found = sanitizer.judge(99, output, names)
    assert [found[name].status for name in names] == ["passed", "failed", "held"]


def stand_in(tmp_path, monkeypatch, body: str) -> None:
    """A program in the place of compute-sanitizer."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!{sys.executable}\n{body}")
    tool.chmod(0o755)
    monkeypatch.setattr(sanitizer, "find", lambda: str(tool))


def test_a_tool_out_of_time_is_held(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, f"import time; print({BEGIN + END!r}, flush=True); time.sleep(30)")
    found = sanitizer.check("memcheck", "gdn", ["bv8 one", "bv8 two"], 1.5)
    told = "memcheck did not finish within 2 s, 1 of 2 problems seen"
    assert set(found.values()) == {sanitizer.Verdict("held", told)}


def test_a_missing_tool_is_held(monkeypatch):
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    assert sanitizer.check("memcheck", "gdn", ["bv8 one"], 5)["bv8 one"].status == "held"


def test_the_tool_meets_the_problems_and_uncached_memory(tmp_path, monkeypatch):
    body = "import os, sys; print(sys.argv[1:], os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING'])"
    stand_in(tmp_path, monkeypatch, body)
    said = sanitizer.check("racecheck", "gdn", ["bv8 one", "bv8 two"], 20)["bv8 one"].message
    assert "'racecheck'" in said and "'gdn', 'bv8 one', 'bv8 two'" in said and said.endswith("1")


def test_a_schedule_held_beside_a_failure_runs_again_alone(tmp_path, monkeypatch):
    body = f"""
import sys
names = sys.argv[sys.argv.index("gdn") + 1:]
bad = names[0].startswith("bv8")
print({sanitizer.BEGIN!r} + names[0])
print({INVALID!r} if bad else {sanitizer.END!r} + names[0])
print("========= ERROR SUMMARY:", int(bad), "errors")
sys.exit(99 if bad else 0)"""
    stand_in(tmp_path, monkeypatch, body)
    found = sanitizer.check("memcheck", "gdn", ["bv8 one", "bv2 one"], 20)
    assert [verdict.status for verdict in found.values()] == ["failed", "passed"]


def test_racecheck_looks_at_two_lengths():
    assert all(sanitizer.looks_at(tool, length) for tool in sanitizer.TOOLS for length in (1025, 3297, None))
    assert [tool for tool in sanitizer.TOOLS if sanitizer.looks_at(tool, 262144)] == ["memcheck", "synccheck"]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_problems_have_unique_names(op):
    names = [case.id for device in ("cpu", "cuda") for case in cases_of(op, device)]
    assert len(names) == len(set(names))
    # A child that runs them finds them by their names.
    assert {case.id for case in (*sanitized_of(op), *hammered_of(op))} <= set(names)
    assert working_sets_of(op, "cpu") and working_sets_of(op, "cuda")


def test_the_interval_of_a_median_covers_it():
    assert bench.interval_of_median([float(i) for i in range(31)]) == (10.0, 20.0)
    assert bench.interval_of_median([1.0]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "status"), [(0.8, 0.99, "passed"), (0.9, 1.1, "held"), (1.0, 1.2, "failed"), (0.5, 1.0, "held")]
)
def test_only_a_whole_interval_decides(low, high, status):
    found = bench.Comparison("one", 8, "old", "new", 1.0, 1.0, (low + high) / 2, low, high, 31, 0.0)
    assert gate.timed_status(found) == status


def test_a_comparison_alternates_and_checks(scanned):
    op = operator("selection")
    case = cases_of(op, "cpu")[0]
    found = bench.compare(case, 2, op.schedule("sort"), op.schedule("cpu-scan"), 5)
    assert found.pairs == 5 and found.layers == 2 and found.rel_l2_to_control == 0.0
    assert found.ratio_low <= found.ratio <= found.ratio_high


def test_a_race_is_told_with_both_accesses():
    race = "========= Error: Race between Write at f+0x10\n=========     and Read at f+0x20 [4 hazards]\n"
    output = f"{BEGIN}{race}{END}========= RACECHECK SUMMARY: 1 hazard displayed (1 error)\n"
    message = sanitizer.judge(99, output, ["bv8 one"])["bv8 one"].message
    assert message == "1 reported; first: Error: Race between Write at f+0x10 and Read at f+0x20 [4 hazards]"


def test_a_working_set_that_cannot_run_is_held(scanned, monkeypatch):
    op = operator("selection")
    subject = gate.subject_of(op, op.schedule("cpu-scan"), "cpu")

    def fails(*operands):
        raise RuntimeError("Cannot copy between CPU and CUDA tensors during capture\nand more")

    monkeypatch.setattr(bench, "compare", fails)
    line = gate.working_set_line(subject, 3)
    assert line.status == "held" and line.message.endswith("during capture")


def test_a_gate_that_checked_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.main(["selection/cluster", "--device", "cpu", "--gate", "contract"]) == 1
    assert "nothing was checked: on cpu selection/cluster has no check in contract" in capsys.readouterr().err


def test_lines_need_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        gate.main(["selection", "--out", str(tmp_path / "none" / "g.jsonl")])
    assert "name a file in a folder that exists" in capsys.readouterr().err
