"""How often our scorers agree with the public ones, and what kind each disagreement is of.

    python benchmarks/scorer_agreement.py DATASETS [--oracle PYTHON] [--parts math,calls,code] [--every N]

DATASETS is the folder with the published files. `math` asks math-verify of this environment. `calls` asks the
function-calling leaderboard's checker and `code` EvalPlus, both in the environment of `--oracle`, which needs
`pip install --no-deps bfcl-eval evalplus` and `pip install numpy psutil appdirs tempdir wget multipledispatch tqdm`.
Answers are made from the published ones: forms of numbers, mutated calls, mutated solutions. Every line is a count.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import logging
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from campaigns.corpora.case import Case
from campaigns.scorers.verdict import Answer, Judged

Json = Any

# The checkers alone: their packages import whole model zoos and data hubs at the top, which are cut off.
_CALLS_ORACLE = """
import json, sys, types
class Any: underscore_to_dot = True
stub = types.ModuleType("bfcl_eval.constants.model_config")
stub.MODEL_CONFIG_MAPPING = {"any": Any}
sys.modules[stub.__name__] = stub
from bfcl_eval.constants.enums import Language
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
for line in sys.stdin:
    functions, calls, wanted, kind = json.loads(line)
    try:
        said = bool(ast_checker(functions, calls, wanted, Language.PYTHON, kind, "any")["valid"])
    except Exception as error:
        said = type(error).__name__
    print(json.dumps(said), flush=True)
"""
_CODE_ORACLE = """
import json, sys, types
stub = types.ModuleType("datasets")
stub.load_dataset = None
sys.modules["datasets"] = stub
from evalplus.data.mbpp import mbpp_deserialize_inputs
from evalplus.eval import PASS, untrusted_check
from evalplus.gen.util import trusted_exec
known = {}
def truth(dataset, task):
    if task["task_id"] not in known:
        inputs = task["base_input"] + task["plus_input"]
        if dataset == "mbpp":
            inputs = mbpp_deserialize_inputs(task["task_id"], inputs)
        code = task["prompt"] + task["canonical_solution"]
        known[task["task_id"]] = inputs, *trusted_exec(code, inputs, task["entry_point"], record_time=True)
    return known[task["task_id"]]
if __name__ == "__main__":
    for line in sys.stdin:
        dataset, task, code = json.loads(line)
        inputs, expected, times = truth(dataset, task)
        said, _ = untrusted_check(dataset, code, inputs, task["entry_point"], expected, task["atol"], times,
                                  fast_check=True, min_time_limit=20.0)
        print(json.dumps(said == PASS), flush=True)
"""


class Asked(NamedTuple):
    kind: str  # how the answer was made: the class of a disagreement
    ours: bool
    theirs: bool | str
    example: str


def report(part: str, asked: Sequence[Asked], num_shown: int = 12) -> None:
    agree = sum(one.ours is one.theirs for one in asked)
    print(f"{part}: {agree} of {len(asked)} verdicts agree ({100 * agree / max(1, len(asked)):.2f} %)")
    apart = [one for one in asked if one.ours is not one.theirs]
    kinds = Counter((one.kind, one.ours, one.theirs) for one in apart)
    for (kind, ours, theirs), count in kinds.most_common():
        examples = [one.example for one in apart if (one.kind, one.ours, one.theirs) == (kind, ours, theirs)]
        print(f"  {count:5}  {kind}: ours {_word(ours)}, theirs {_word(theirs)}; e.g. {examples[0][: num_shown * 12]}")


def _word(said: bool | str) -> str:
    return {True: "passes", False: "fails"}.get(said, f"raises {said}") if isinstance(said, bool) else f"raises {said}"


class Oracle:
    """One process that answers a JSON line with a JSON line."""

    def __init__(self, python: str, program: str) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([python, "-c", program], stdin=pipe, stdout=pipe, text=True)

    def __call__(self, told: Json) -> bool | str:
        assert self._process.stdin is not None and self._process.stdout is not None, "started with pipes"
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the oracle ended: see its last words above, and the packages that --help names")
        said: bool | str = json.loads(line)
        return said


# --- mathematical answers -------------------------------------------------------------------------------------------

FORMS: Mapping[str, str] = {
    "as it is": "{}",
    "bare unit": "{} dollars",
    "text unit": "{}\\text{{ cm}}",
    "square unit": "{} m^2",
    "percent": "{}\\%",
    "percent in words": "{} percent",
    "currency": "\\${}",
    "euro": "€{}",
    "colour": "\\textcolor{{red}}{{{}}}",
    "whole text": "\\text{{{} eggs}}",
    "equation": "x = {}",
    "approximately": "\\approx {}",
    "variable": "{}t",
    "or more": "{} \\text{{ or more}}",
    "negated": "-({})",
    "plus a tiny number": "{} + 2^{{-87}}",
}


def math(datasets: Path, every: int) -> list[Asked]:
    from math_verify import parse, verify

    from campaigns.scorers.answer import score_answer

    wanted = [json.loads(line)["answer"] for line in (datasets / "math500" / "test.jsonl").open(encoding="utf-8")]
    asked = []
    for one, other in zip(wanted[::every], wanted[1::every], strict=False):
        gold = parse(f"\\boxed{{{one}}}", parsing_timeout=None)
        answers = [(kind, form.format(one)) for kind, form in FORMS.items()] + [("another task's answer", other)]
        for kind, given in answers:
            text = f"\\boxed{{{given}}}"
            ours = score_answer("math500", one, Answer(text)).outcome is Judged.PASSED
            theirs = bool(verify(gold, parse(text, parsing_timeout=None), timeout_seconds=None))
            asked.append(Asked(kind, ours, theirs, f"{given} for {one}"))
    return asked


# --- tool calls -----------------------------------------------------------------------------------------------------


def calls(datasets: Path, every: int, oracle: Oracle) -> list[Asked]:
    from campaigns.corpora.readers import structured
    from campaigns.corpora.templates import DEFAULT
    from campaigns.scorers.structured import score_structured

    folder = datasets / "bfcl_v4"
    pools = structured.read([folder], DEFAULT)
    questions = {row["id"]: row for path in folder.glob("*.json") for row in _lines(path)}
    truths = {row["id"]: row["ground_truth"] for path in (folder / "possible_answer").glob("*") for row in _lines(path)}
    asked = []
    for case in [*pools["one-tool"], *pools["parallel-tools"]][::every]:
        label = case.id.partition("/")[2]
        kind_of_task = "parallel" if len(truths[label]) > 1 else "simple"
        for kind, made in _mutated_calls(case):
            functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in made]
            sent = json.dumps([{"type": "function", "function": function} for function in functions])
            ours = score_structured(case, Answer("", sent, "tool_calls")).outcome is Judged.PASSED
            wire = [{name: arguments} for name, arguments in made]
            theirs = oracle([questions[label]["function"], wire, truths[label], kind_of_task])
            asked.append(Asked(kind, ours, theirs, f"{label}: {sent[:300]}"))
    return asked


def _lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _mutated_calls(case: Case) -> Iterator[tuple[str, list[tuple[str, dict[str, Json]]]]]:
    """The right calls, and one change of one argument at a time."""
    right = [(name, _arguments(told)) for call in case.answer["calls"] for name, told in call.items()]
    yield "right", right
    yield "other order", right[::-1]
    yield "a call twice", [*right, right[0]]
    yield "no call", []
    name, arguments = right[0]
    accepted = next(iter(case.answer["calls"][0].values()))
    for key, value in arguments.items():
        for kind, changed in _changes(value):
            yield kind, [(name, arguments | {key: changed}), *right[1:]]
        yield "argument left out", [(name, {k: v for k, v in arguments.items() if k != key}), *right[1:]]
        for option in accepted[key]:
            if option != "":
                yield "each accepted value", [(name, arguments | {key: _value(option)}), *right[1:]]
    yield "unknown argument", [(name, arguments | {"nobody_asked": 1}), *right[1:]]


def _arguments(told: Mapping[str, list[Json]]) -> dict[str, Json]:
    return {key: _value(options[0]) for key, options in told.items() if options and options[0] != ""}


def _value(option: Json) -> Json:
    if isinstance(option, dict):
        return _arguments(option)
    return [_value(item) for item in option] if isinstance(option, list) else option


def _changes(value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, bool):
        yield from (("other boolean", not value), ("boolean as number", int(value)), ("boolean as text", str(value)))
    elif isinstance(value, int | float):
        yield from (("another number", value + 1), ("number as text", str(value)))
        yield ("whole number as fraction", float(value)) if isinstance(value, int) else ("fraction cut off", int(value))
    elif isinstance(value, str):
        yield from (
            ("text in capitals", value.upper()),
            ("text with commas", value + ", "),
            ("another text", value + "x"),
        )
        yield from (("text in quotes", f"'{value}'"), ("text as list", [value]))
    elif isinstance(value, list):
        yield from (("list reversed", value[::-1]), ("item twice", value + value[:1]), ("empty list", []))
        for kind, changed in _changes(value[0]) if value else ():
            yield f"first item: {kind}", [changed, *value[1:]]
    elif isinstance(value, dict) and value:
        key = next(iter(value))
        for kind, changed in _changes(value[key]):
            yield f"first field: {kind}", value | {key: changed}
        yield "field left out", {k: v for k, v in value.items() if k != key}


# --- code -----------------------------------------------------------------------------------------------------------


def code(datasets: Path, every: int, oracle: Oracle) -> list[Asked]:
    from campaigns.corpora.readers import humaneval, mbpp
    from campaigns.corpora.source import open_all
    from campaigns.corpora.templates import DEFAULT
    from campaigns.scorers.code import score_code
    from orchestrator.scoring.sandbox import Sandbox

    asked, box = [], Sandbox()
    for name, reader, base, plus in (
        ("humaneval", humaneval, "humaneval/HumanEval.jsonl.gz", "humanevalplus/HumanEvalPlus"),
        ("mbpp", mbpp, "mbpp/mbpp.jsonl", "mbppplus/MbppPlus"),
    ):
        enhanced = open_all([datasets / f"{plus}-OriginFmt.jsonl.gz"])
        (theirs,) = open_all([datasets / f"{plus}.jsonl.gz"])
        tasks = {str(task["task_id"]).rpartition("/")[2]: task for task in theirs.records}
        for case in reader.read(open_all([datasets / base]), enhanced, DEFAULT)[::every]:
            tests, task = case.tests[1], tasks.get(case.id.rpartition("/")[2])
            if tests.ineligible or task is None:
                continue
            for kind, program in _mutated(task["prompt"] + task["canonical_solution"]):
                (verdict,) = score_code(replace(case, tests=(tests,)), Answer(f"```python\n{program}\n```"), box)
                said = oracle([name, task, program])
                asked.append(Asked(kind, verdict.outcome is Judged.PASSED, said, f"{case.id}: {verdict.details}"))
    return asked


def _mutated(program: str) -> Iterator[tuple[str, str]]:
    yield "reference", program
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(program)
    for kind, change in MUTATIONS.items():
        changed = copy.deepcopy(tree)
        target = next((node for node in ast.walk(changed) if change(node)), None)
        if target is not None:
            yield kind, ast.unparse(ast.fix_missing_locations(changed))


def _returns(value: ast.expr) -> Callable[[ast.AST], bool]:
    def change(node: ast.AST) -> bool:
        if not isinstance(node, ast.Return):
            return False
        node.value = value
        return True

    return change


def _less_or_equal(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.Gt)):
        return False
    node.ops[0] = ast.LtE() if isinstance(node.ops[0], ast.Lt) else ast.GtE()
    return True


def _one_more(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Constant) and type(node.value) is int):
        return False
    node.value += 1
    return True


MUTATIONS: Mapping[str, Callable[[ast.AST], bool]] = {
    "returns None": _returns(ast.Constant(None)),
    "returns an empty list": _returns(ast.List([], ast.Load())),
    "a bound moved": _less_or_equal,
    "a constant more": _one_more,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, metavar="DATASETS")
    parser.add_argument("--oracle", default=sys.executable, metavar="PYTHON", help="interpreter that has the checkers")
    parser.add_argument("--parts", default="math,calls,code", help="default: %(default)s")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every N-th case (default: %(default)s)")
    options = parser.parse_args()
    if not options.datasets.is_dir():
        parser.error(f"DATASETS {options.datasets}: no such folder")
    logging.disable(logging.CRITICAL)  # math-verify warns about missing timeouts at every call
    warnings.simplefilter("ignore")
    parts: dict[str, Callable[[], list[Asked]]] = {
        "math": lambda: math(options.datasets, options.every),
        "calls": lambda: calls(options.datasets, options.every, Oracle(options.oracle, _CALLS_ORACLE)),
        "code": lambda: code(options.datasets, options.every, Oracle(options.oracle, _CODE_ORACLE)),
    }
    for part in options.parts.split(","):
        if part not in parts:
            parser.error(f"--parts {part}: there are {', '.join(parts)}")
        report(part, parts[part]())


if __name__ == "__main__":
    main()
