"""Long proofs over whole corpora: references pass in the sandbox, empty bodies fail, answers equal themselves.

The public datasets are not part of this project; these tests use them where they lie beside the checkout.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import warnings
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from campaigns.corpora.case import Case
from campaigns.corpora.embedded import FOLDER, embedded
from campaigns.corpora.freezing import Recipe, freeze
from campaigns.corpora.manifest import Corpus, read, write
from campaigns.corpora.readers import gsm8k, livecodebench, math500, structured
from campaigns.corpora.readers.schema_features import loosened
from campaigns.corpora.source import open_all
from campaigns.corpora.templates import DEFAULT
from campaigns.scorers.code import score_code
from campaigns.scorers.equivalence import Equal, equivalent
from campaigns.scorers.structured import score_structured
from campaigns.scorers.verdict import Answer, Judged, Verdict
from orchestrator.scoring.proving import SolutionRuns
from orchestrator.scoring.sandbox import Sandbox

DATASETS = Path(__file__).resolve().parents[4] / "shared" / "datasets"
HIDDEN_AND_PUBLIC = ("livecodebench-public", "leetcodedataset")
_READ = {"gsm8k": gsm8k.read, "math500": math500.read}
beside = pytest.mark.skipif(not DATASETS.is_dir(), reason=f"no public datasets in {DATASETS}")


def recipe() -> Recipe:
    files = {
        "gsm8k": ["gsm8k/test.jsonl"],
        "math500": ["math500/test.jsonl"],
        "humaneval": ["humaneval/HumanEval.jsonl.gz"],
        "humanevalplus": ["humanevalplus/HumanEvalPlus-OriginFmt.jsonl.gz"],
        "mbpp": ["mbpp/mbpp.jsonl"],
        "mbppplus": ["mbppplus/MbppPlus-OriginFmt.jsonl.gz"],
        "livecodebench": [
            "livecodebench_v6/problems_public_tests.jsonl",
            "livecodebench_v6/leetcodedataset_overlap.jsonl.gz",
        ],
        "structured": ["bfcl_v4", "jsonschemabench"],
    }
    return Recipe({name: [DATASETS / path for path in paths] for name, paths in files.items()})


@cache
def public() -> Corpus:
    return freeze(recipe(), embedded(), SolutionRuns(Sandbox()))


def records(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.split("\n") if line]


Solutions = dict[tuple[str, str], str]  # (case id, name of the set of tests) -> a solution published for it


def references(name: str) -> Solutions:
    """EvalPlus publishes corrected solutions of its own: some original ones fail its tests."""
    base = name.removeprefix("builtin-")
    own = base != name
    if base == "livecodebench":
        rows = records(FOLDER / "livecodebench.jsonl") if own else []
        found = {(f"{name}/{r['question_id']}", "own"): r["reference"] for r in rows}
        return found if own else {(c, s): text for c, text in leetcode_references().items() for s in HIDDEN_AND_PUBLIC}
    files = {
        "humaneval": ("humaneval/HumanEval.jsonl.gz", "humanevalplus/HumanEvalPlus-OriginFmt.jsonl.gz"),
        "mbpp": ("mbpp/mbpp.jsonl", "mbppplus/MbppPlus-OriginFmt.jsonl.gz"),
    }
    paths = [FOLDER / f"{base}{plus}.jsonl" if own else DATASETS / files[base][bool(plus)] for plus in ("", "plus")]
    return {
        (f"{name}/{str(r['task_id']).rpartition('/')[2]}", tests): _solution(r)
        for tests, path in zip(("original", "evalplus"), paths, strict=True)
        for r in records(path)
    }


def _solution(row: dict[str, Any]) -> str:
    return row["code"] if "code" in row else row["prompt"] + row["canonical_solution"]


def leetcode_references() -> dict[str, str]:
    solutions = records(DATASETS / "livecodebench_v6" / "leetcodedataset_overlap.jsonl.gz")
    by_slug = {r["task_id"]: r["prompt"] + r["completion"] for r in solutions}
    problems = records(DATASETS / "livecodebench_v6" / "problems_public_tests.jsonl")
    slugs = {r["question_title"]: f"livecodebench/{r['question_id']}" for r in problems}
    return {slugs[slug]: solution for slug, solution in by_slug.items()}


def returning_none(source: str) -> str:
    """The same functions and methods, each with `return None` for a body; a program prints nothing."""
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        function.body = [ast.Return(ast.Constant(None))]
    return ast.unparse(ast.fix_missing_locations(tree)) if functions else "pass\n"


def code_cases(corpus: Corpus) -> list[tuple[Case, str]]:
    """Each set of tests as a case of its own, with a published solution; ineligible sets have none to pass."""
    names = [name for name in corpus.counts() if re.search("humaneval|mbpp|livecodebench", name)]
    solutions = {key: text for name in names for key, text in references(name).items()}
    return [
        (replace(case, tests=(tests,)), solutions[case.id, tests.name])
        for case in corpus.cases
        for tests in case.tests
        if (case.id, tests.name) in solutions and not tests.ineligible
    ]


def prove(corpus: Corpus, box: Sandbox, every: int = 1) -> Counter[tuple[str, str]]:
    """Run solutions and empty bodies; raises with every verdict that is not as it has to be."""
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[tuple[str, str, Verdict]] = []
    for case, solution in code_cases(corpus)[::every]:
        for what, source, wanted in (
            ("reference", solution, Judged.PASSED),
            ("empty", returning_none(solution), Judged.FAILED),
        ):
            (verdict,) = score_code(case, Answer(f"```python\n{source}\n```"), box)
            counts[verdict.scorer, f"{what} {verdict.outcome}"] += 1
            if verdict.outcome is not wanted:
                wrong.append((what, case.id, verdict))
    assert not wrong, "\n".join(map(str, wrong))
    return counts


def test_some_embedded_references_pass_and_empty_bodies_fail(box: Sandbox) -> None:
    counts = prove(embedded(), box, every=19)
    assert len({scorer for scorer, _ in counts}) == 5, counts


@pytest.mark.acceptance
def test_all_embedded_references_pass_and_empty_bodies_fail(box: Sandbox) -> None:
    counts = prove(embedded(), box)
    print(dict(counts))
    assert counts["builtin-humaneval/evalplus", "reference passed"] == 32
    assert counts["builtin-mbpp/evalplus", "reference passed"] == 30
    assert counts["builtin-livecodebench/own", "reference passed"] == 16


@beside
@pytest.mark.acceptance
def test_the_public_corpus_freezes_to_equal_bytes(tmp_path: Path) -> None:
    path, _ = write(public(), "public", tmp_path)
    again = freeze(recipe(), embedded(), SolutionRuns(Sandbox()))
    print(public().sha256, again.sha256, public().header["proof"], public().header["left_out"])
    assert len(public().header["left_out"]) == 3 and public().header["proof"]["passed"] == 69
    assert again.content == public().content == path.read_bytes()
    assert read(path) == public() and len(public().cases) == 148
    assert sum(public().counts().values()) == 148 and len(public().counts()) == 7, "one JSON object is our own"


@beside
@pytest.mark.acceptance
@pytest.mark.parametrize(("dataset", "num_left_out"), [("humaneval", 0), ("mbpp", 27)])
def test_every_task_has_a_program_that_passes_what_is_shown_and_what_is_scored(
    dataset: str, num_left_out: int, box: Sandbox
) -> None:
    """MBPP+ changed 27 of MBPP's tasks so that no answer to the original prompt can pass its tests."""
    whole = replace(recipe(), mix={dataset: {"humaneval": 164, "mbpp": 500 - num_left_out}[dataset]})
    corpus = freeze(whole, prover=SolutionRuns(box))
    print(dataset, corpus.header["proof"], corpus.header["left_out"])
    assert corpus.header["proof"]["unpublished"] == 0 and len(corpus.header["left_out"]) == num_left_out


@beside
@pytest.mark.acceptance
def test_public_references_pass_and_empty_bodies_fail(box: Sandbox) -> None:
    counts = prove(public(), box)
    print(dict(counts))
    assert counts["humaneval/original", "reference passed"] == counts["mbpp/original", "reference passed"] == 32


@beside
@pytest.mark.acceptance
def test_all_leetcode_references_pass_their_hidden_and_public_tests(box: Sandbox) -> None:
    sources = open_all(recipe().paths["livecodebench"])
    cases = [case for case in livecodebench.read(sources, DEFAULT) if case.id in leetcode_references()]
    verdicts = [
        verdict
        for case in cases
        for verdict in score_code(case, Answer(f"```python\n{leetcode_references()[case.id]}\n```"), box)
    ]
    counts = Counter((verdict.scorer, verdict.outcome) for verdict in verdicts)
    print(counts)
    assert counts == {
        ("livecodebench-public", Judged.PASSED): 60,
        ("leetcodedataset", Judged.PASSED): 60,
    }, [v for v in verdicts if v.outcome is not Judged.PASSED]


@beside
@pytest.mark.acceptance
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dataset", ["math500", "gsm8k"])
def test_answers_equal_themselves_and_not_their_neighbours(dataset: str) -> None:
    answers = [str(case.answer) for case in _READ[dataset](open_all(recipe().paths[dataset]), DEFAULT)][:500]
    pairs = list(zip(answers, answers[1:] + answers[:1], strict=True))
    own = [equivalent(answer, answer) for answer in answers]
    next_one = [equivalent(answer, other) for answer, other in pairs]
    equal = [pair for pair, said in zip(pairs, next_one, strict=True) if said is Equal.YES]
    print(dataset, Counter(own), Counter(next_one), "of different texts:", [p for p in equal if p[0] != p[1]])
    assert set(own) == {Equal.YES}, [a for a, said in zip(answers, own, strict=True) if said is not Equal.YES]
    assert {pair for pair in equal if pair[0] != pair[1]} <= {("5", "x=5")}
    assert set(next_one) <= {Equal.YES, Equal.NO}


def accepted(options: list[Any], schema: dict[str, Any]) -> list[Any]:
    """Values that the leaderboard accepts for an argument, as a call would write them, as far as the schema allows."""
    values = [_written(option, schema) for option in options if option != ""]
    from campaigns.scorers.schema import schema_complaint  # a second of imports

    return [value for value in values if schema_complaint(schema, value) == ""]


def _written(option: Any, schema: dict[str, Any]) -> Any:
    if isinstance(option, dict):
        return _arguments(option, schema.get("properties", {}))
    if isinstance(option, list):
        return [_written(item, schema.get("items", {})) for item in option]
    return option


def _arguments(told: dict[str, list[Any]], schemas: dict[str, Any]) -> dict[str, Any]:
    values = {name: accepted(options, schemas.get(name, {})) for name, options in told.items()}
    return {name: some[0] for name, some in values.items() if some}


@beside
@pytest.mark.acceptance
def test_every_function_calling_question_has_an_answer_that_passes() -> None:
    pools = structured.read([DATASETS / "bfcl_v4"], DEFAULT)
    cases = [*pools["one-tool"], *pools["parallel-tools"]]
    for case in cases:
        schemas = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in case.tools}
        functions = [
            {"name": name, "arguments": json.dumps(_arguments(told, schemas[name]))}
            for call in reversed(case.answer["calls"])
            for name, told in call.items()
        ]
        answer = Answer("", json.dumps([{"type": "function", "function": f} for f in functions]), "tool_calls")
        verdict = score_structured(case, answer)
        assert verdict.outcome is Judged.PASSED, (case.id, verdict)
    assert len(cases) == 855


@beside
@pytest.mark.acceptance
def test_schemas_agree_with_their_published_instances() -> None:
    from campaigns.scorers.schema import schema_complaint

    agree = Counter[bool]()
    for path in sorted((DATASETS / "jsonschemabench" / "maskbench").glob("*.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        for test in told["tests"]:
            right = (schema_complaint(told["schema"], test["data"]) == "") is test["valid"]
            assert not test["valid"] or schema_complaint(loosened(told["schema"]).schema, test["data"]) == "", path.name
            agree[right] += 1
            assert right, (path.name, test["description"])
    assert agree == {True: 94}
