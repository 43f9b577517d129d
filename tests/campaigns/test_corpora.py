"""Readers, selection and freezing, on small files of our own in the published formats."""

from __future__ import annotations

import base64
import gzip
import io
import json
import pickle
import random
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaigns.corpora import choice, manifest
from campaigns.corpora.case import Case, compact_json
from campaigns.corpora.embedded import FOLDER, embedded
from campaigns.corpora.freezing import Recipe, freeze
from campaigns.corpora.readers import gsm8k, humaneval, livecodebench, math500, mbpp, structured
from campaigns.corpora.readers.private_tests import unpack
from campaigns.corpora.selection import Selecting, Selection
from campaigns.corpora.source import Source
from campaigns.corpora.templates import DEFAULT, read_templates
from campaigns.errors import IdentityMismatch, UsageError
from campaigns.plan import Sampling
from orchestrator.servers.adapters import Ask, open_adapter


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def words(*answers: str) -> list[dict[str, str]]:
    return [{"question": f"Question {n}?", "answer": f"It is so.\n#### {a}"} for n, a in enumerate(answers)]


def own_sources(**replaced: Path) -> dict[str, tuple[Path, ...]]:
    names = ("gsm8k", "math500", "humaneval", "humanevalplus", "mbpp", "mbppplus", "livecodebench", "structured")
    return {name: (replaced.get(name, FOLDER / f"{name}.jsonl"),) for name in names}


def test_the_embedded_corpus_has_the_public_mix() -> None:
    counts = embedded().counts()
    assert list(counts.values()) == [32, 32, 32, 32, 16, 4] and len(embedded().cases) == 148
    assert all(name.startswith("builtin-") for name in counts)
    forms = [c.response_format["type"] for c in embedded().cases if c.response_format]
    calls = [len(c.answer["calls"]) for c in embedded().cases if c.tools]
    assert forms == ["json_object", "json_schema"] and calls == [1, 2]


def test_freezing_twice_gives_equal_bytes(tmp_path: Path) -> None:
    one, two = freeze(Recipe(own_sources())), freeze(Recipe(own_sources()))
    assert one.content == two.content
    renamed = tmp_path / "another-name.jsonl"
    renamed.write_bytes((FOLDER / "gsm8k.jsonl").read_bytes())
    assert freeze(Recipe(own_sources(gsm8k=renamed))).content == one.content, "file names must not be hashed"
    first, _ = manifest.write(one, "first", tmp_path / "a")
    second, told = manifest.write(two, "second", tmp_path / "b")
    assert first.name == second.name == f"{one.sha256}.jsonl"
    assert manifest.read(told) == one and json.loads(told.read_text())["corpus_sha256"] == one.sha256


def test_neither_names_nor_the_order_of_options_change_a_byte(tmp_path: Path) -> None:
    tests = [json.dumps([{"input": "1", "output": "2"}])]
    parts = [[problem(question_id=f"{part}{n}", public_test_cases=tests[0]) for n in range(6)] for part in "ab"]
    files = [jsonl(tmp_path / name, *rows) for name, rows in zip(("z", "y"), parts, strict=True)]
    folders = [function_calling(tmp_path / "f"), tmp_path / "schemas"]
    folders[1].mkdir()
    for name, title in (("b", "1"), ("a", "2")):
        jsonl(folders[1] / f"{name}.json", {"schema": {"type": "object", "title": title}})
    mix = {"livecodebench": 5, "structured": 3}

    def content(order: int) -> bytes:
        paths = {"livecodebench": files[::order], "structured": folders[::order]}
        return freeze(Recipe(paths, mix=mix), fill=embedded()).content

    assert content(1) == content(-1)


def test_sources_that_nothing_is_taken_from_leave_no_trace() -> None:
    few = {"gsm8k": 3, "mbpp": 0}
    header = freeze(Recipe(own_sources(), mix=few)).header
    assert [source["dataset"] for source in header["sources"]] == ["gsm8k"]


def test_the_shuffle_is_the_published_one(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "t.jsonl", *words(*map(str, range(50))))
    indices = list(range(50))
    random.Random(42).shuffle(indices)
    corpus = freeze(Recipe({"gsm8k": [source]}, mix={"gsm8k": 5}))
    assert [case.record_index for case in corpus.cases] == indices[:5]
    assert corpus.header["order"] == "shuffle42" and "Random(42)" in corpus.header["rule"]


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(Selecting.SEQUENTIAL), ["gsm8k/0", "gsm8k/1"]),
        (Selection(Selecting.IDS, ("gsm8k/3", "gsm8k/1", "gsm8k/0")), ["gsm8k/3", "gsm8k/1", "gsm8k/0"]),
    ],
)
def test_other_selections(tmp_path: Path, selection: Selection, wanted: list[str]) -> None:
    source = jsonl(tmp_path / "t.jsonl", *words("1", "2", "3", "4"))
    corpus = freeze(Recipe({"gsm8k": [source]}, mix={"gsm8k": 2}, selection=selection))
    assert [case.id for case in corpus.cases] == wanted


@pytest.mark.parametrize("order", [Selecting.SHUFFLE42, Selecting.SEQUENTIAL, Selecting.ELIGIBLE_ONLY])
def test_a_case_that_no_published_solution_passes_gives_its_place_to_the_next(order: Selecting) -> None:
    selection = Selection(order)
    names = [case.id for case in freeze(Recipe(own_sources(), mix={"mbpp": 30}, selection=selection)).cases]
    asked: list[str] = []

    def prover(case: Case, programs: Sequence[str]) -> bool:
        assert len(programs) == 1, "the same solution stands in both files"
        asked.append(case.id)
        return case.id not in names[1:3]

    corpus = freeze(Recipe(own_sources(), mix={"mbpp": 4}, selection=selection), prover=prover)
    assert [case.id for case in corpus.cases] == [names[n] for n in (0, 3, 4, 5)]
    assert asked == names[:6], "and nothing behind them was run"
    assert list(corpus.header["left_out"]) == names[1:3]
    assert corpus.header["proof"] == {"passed": 4, "unpublished": 0}
    assert "original and evalplus" in corpus.header["left_out"][names[1]]


def test_a_named_case_that_cannot_be_passed_is_refused() -> None:
    recipe = Recipe(own_sources(), mix={"mbpp": 1}, selection=Selection(Selecting.IDS, ("mbpp/11",)))
    with pytest.raises(UsageError, match="--ids mbpp/11: no published solution passes"):
        freeze(recipe, prover=lambda case, programs: False)
    assert freeze(recipe, prover=lambda case, programs: True).is_proven


def test_problems_without_a_published_solution_are_counted_and_not_left_out(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FOLDER / "livecodebench.jsonl").read_text().splitlines()]
    source = jsonl(tmp_path / "l", *({k: v for k, v in row.items() if k != "reference"} for row in rows))
    corpus = freeze(Recipe({"livecodebench": [source]}, mix={"livecodebench": 5}), prover=lambda *_: False)
    assert corpus.header["proof"] == {"passed": 0, "unpublished": 5} and len(corpus.cases) == 5


def test_corpora_of_the_first_format_still_load_and_say_that_nothing_was_proven(tmp_path: Path) -> None:
    path, told = manifest.write(freeze(Recipe(own_sources())), "old", tmp_path)
    assert manifest.read(path) == manifest.read(told) and not manifest.read(path).is_proven
    assert not embedded().is_proven, "its bytes stay, so that campaigns on it can be scored again"


@pytest.mark.parametrize("packed", [0, 1, 9])
def test_packing_a_source_anew_changes_no_byte(tmp_path: Path, packed: int) -> None:
    content = (FOLDER / "mbpp.jsonl").read_bytes()
    path = tmp_path / "m"
    path.write_bytes(gzip.compress(content, packed, mtime=packed) if packed else content)
    assert freeze(Recipe(own_sources(mbpp=path))).content == freeze(Recipe(own_sources())).content


def test_eligible_only_leaves_out_what_one_denominator_does_not_count() -> None:
    recipe = Recipe(own_sources(), mix={"mbpp": 30}, selection=Selection(Selecting.ELIGIBLE_ONLY))
    assert all(case.eligible for case in freeze(recipe).cases)
    everything = freeze(Recipe(own_sources(), mix={"mbpp": 32}))
    assert sum(not case.eligible for case in everything.cases) == 2


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        (Recipe({"gsm8k": [FOLDER / "gsm8k.jsonl"]}), "no source for 32 cases of math500"),
        (Recipe({"gsm8k": [FOLDER / "gsm8k.jsonl"]}, mix={"gsm8k": 33}), "33 cases wanted, the pool .* has 32"),
        (Recipe({"gsm8k": [FOLDER / "mbpp.jsonl"]}, mix={"gsm8k": 1}), "field 'question' is missing"),
        (Recipe({"gsm8k": [FOLDER / "nothing"]}, mix={"gsm8k": 1}), "cannot be read"),
        (Recipe({"gsm8k": [FOLDER / "gsm8k.jsonl"] * 2}, mix={"gsm8k": 64}), "occurs twice"),
        (
            Recipe({"gsm8k": [FOLDER / "gsm8k.jsonl"]}, {"gsm8k": 1}, Selection(Selecting.IDS, ("gsm8k/99",))),
            "no source has a case of this id",
        ),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(recipe: Recipe, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        freeze(recipe)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["lines", "list"])
def test_sources_in_every_published_form(tmp_path: Path, form: str, packed: bool) -> None:
    rows = words("1,234", "5")
    text = json.dumps(rows) if form == "list" else "".join(json.dumps(row) + "\n" for row in rows)
    path = tmp_path / "data"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    cases = gsm8k.read([Source.open(path)], DEFAULT)
    assert [case.answer for case in cases] == ["1234", "5"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "holds no record"),
        (b"{}\n\n[1]\n", r"record 1 \(line 3\): a JSON object was expected"),
        (b"[{}, [1]]", "record 1: a JSON object was expected"),
        (b"{}\n{\n", "line 2: no JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "line 1: no JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "line 1: no JSON"),
        (gzip.compress(b"{}", mtime=0)[:-6], "damaged gzip"),
    ],
)
def test_damaged_sources_are_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        Source.open(path)


def test_windows_line_ends_and_byte_order_marks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    text = "".join(json.dumps(row) + "\r\n" for row in words("1", "2"))
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert [case.answer for case in gsm8k.read([Source.open(path)], DEFAULT)] == ["1", "2"]


WRONG = (None, 5, True, [None], {"a": None}, "{", "[1]", "[{}]", '{"func_name": 3}', '[{"input": 1, "output": 2}]')


@pytest.mark.parametrize("name", list(own_sources()))
def test_no_record_whatever_it_holds_raises_anything_but_a_sentence(tmp_path: Path, name: str) -> None:
    """Every field of a record replaced by values of other kinds: read, or refused in words."""
    base = name.removesuffix("plus")
    mix = {base: 4 if base == "structured" else 1}
    rows = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().split("\n") if line]
    last = {tuple(sorted(row)): row for row in rows}
    refused = 0
    changed = [row | {field: value} for row in last.values() for field in row for value in WRONG]
    for record in changed:
        paths = {base: [FOLDER / f"{base}.jsonl"], name: [jsonl(tmp_path / "x", record)]}
        try:
            assert freeze(Recipe(paths, mix=mix), fill=embedded()).sha256
        except UsageError:
            refused += 1
    assert refused >= 10


@pytest.mark.parametrize("text", ["\ud800", "\udfff!"])
def test_texts_that_cannot_be_sent_are_refused(tmp_path: Path, text: str) -> None:
    source = jsonl(tmp_path / "t", {"question": text, "answer": "#### 1"})
    with pytest.raises(UsageError, match="case gsm8k/0: it holds what no JSON text can say"):
        freeze(Recipe({"gsm8k": [source]}, mix={"gsm8k": 1}))


def test_line_separators_inside_records_do_not_split_them(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text(json.dumps(words("1")[0] | {"question": "one\u2028two"}, ensure_ascii=False) + "\n", "utf-8")
    assert len(Source.open(path).records) == 1


def test_every_change_of_a_frozen_file_is_noticed(tmp_path: Path) -> None:
    path, told = manifest.write(embedded(), "own", tmp_path)
    assert choice.load("file", str(told)).sha256 == embedded().sha256
    content = path.read_bytes()
    changes = {
        "answer": content.replace(b'"answer":"15"', b'"answer":"16"', 1),
        "case left out": b"\n".join(content.split(b"\n")[:5] + content.split(b"\n")[6:]),
        "header": content.replace(b"sequential", b"shuffle42", 1),
        "bytes": content.replace(b'":', b'": ', 1),
        "cut": content[:-20],
    }
    for what, changed in changes.items():
        assert changed != content, what
        path.write_bytes(changed)
        with pytest.raises(IdentityMismatch):
            manifest.read(path)
        with pytest.raises(IdentityMismatch):
            manifest.read(told)
    other = tmp_path / "README.md"
    for text in (b"# words\n", b"", b"[1]\n"):
        other.write_bytes(text)
        with pytest.raises(UsageError, match="no frozen corpus; name one that"):
            manifest.read(other)
    path.write_bytes(content)
    for what in ("case left out", "header"):
        (tmp_path / "renamed.jsonl").write_bytes(changes[what])
        with pytest.raises(IdentityMismatch, match="not the one in its name"):
            manifest.read(tmp_path / "renamed.jsonl")
    told.write_text(told.read_text().replace("builtin-gsm8k/7", "builtin-gsm8k/8"))
    with pytest.raises(IdentityMismatch, match="freeze again"):
        manifest.read(told)


@pytest.mark.parametrize("text", ["[]", "{}", '{"file": "../x.jsonl"}', '{"file": 3}', "[" * 100_000])
def test_a_manifest_that_is_none_is_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.manifest.json").write_text(text)
    with pytest.raises(UsageError, match="name a frozen corpus or its manifest"):
        manifest.read(tmp_path / "x.manifest.json")


def test_differences_are_named(tmp_path: Path) -> None:
    rows = words("1", "2", "3")
    recipe = {"mix": {"gsm8k": 3}, "selection": Selection(Selecting.SEQUENTIAL)}
    one = freeze(Recipe({"gsm8k": [jsonl(tmp_path / "a", *rows)]}, **recipe))
    rows[1]["answer"] = "#### 7"
    two = freeze(Recipe({"gsm8k": [jsonl(tmp_path / "b", *rows)]}, **recipe))
    assert list(manifest.differences(one, one)) == []
    lines = list(manifest.differences(one, two))
    assert any(line.startswith("changed: gsm8k/1: ") and "answer" in line for line in lines)


def test_the_prompt_on_the_wire_keeps_the_order_of_keys(tmp_path: Path) -> None:
    path, _ = manifest.write(embedded(), "own", tmp_path)
    fixtures = {f.id: f for f in manifest.read(path).fixtures((0, 1), 64)}
    fixture = fixtures["builtin-structured/own/json-schema"]
    _, body = open_adapter("command").body(Ask(fixture, 0, 64, Sampling(), "m"))
    schema = json.loads(body)["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["customer", "item", "colour", "count", "delivery"]
    fixture = fixtures["builtin-gsm8k/0"]
    assert fixture.seeds == (0, 1) and fixture.max_tokens == 64 and fixture.dataset == "builtin-gsm8k"


def test_another_order_of_keys_is_another_case(tmp_path: Path) -> None:
    path, _ = manifest.write(embedded(), "own", tmp_path)
    case = embedded().case("builtin-structured/own/json-schema")
    assert case is not None and case.response_format is not None
    form = json.loads(json.dumps(case.response_format))
    properties = form["json_schema"]["schema"]["properties"]
    form["json_schema"]["schema"]["properties"] = dict(reversed(properties.items()))
    swapped = replace(case, response_format=form)
    assert swapped == case and swapped.sha256 != case.sha256 and swapped.body() != case.body()
    ours, theirs = (compact_json(order).encode() for order in (properties, dict(reversed(properties.items()))))
    content = path.read_bytes()
    assert ours in content
    path.write_bytes(content.replace(ours, theirs))
    with pytest.raises(IdentityMismatch):
        manifest.read(path)


def test_math500_and_templates(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "m", {"problem": "What is ${1,2}$?", "answer": "\\{1,2\\}"})
    (case,) = math500.read([Source.open(source)], DEFAULT)
    assert "${1,2}$" in case.messages[0]["content"] and "\\boxed{}" in case.messages[0]["content"]
    own = tmp_path / "t.json"
    own.write_text(json.dumps({"math500": "Solve: {problem}"}))
    (case,) = math500.read([Source.open(source)], read_templates(own))
    assert case.messages[0]["content"] == "Solve: What is ${1,2}$?"
    for told, sentence in (({"math": "x"}, "unknown template 'math'"), ({"math500": 5}, "'math500' is no text")):
        own.write_text(json.dumps(told))
        with pytest.raises(UsageError, match=sentence):
            read_templates(own)
    for text in ("{problem.x}", "{problem[x]}", "{0}", "{answer}", "{"):
        with pytest.raises(UsageError, match=r"template 'math500': .*it may use \{problem\}"):
            math500.read([Source.open(source)], {"math500": text})


def test_evalplus_files_without_results_are_refused(tmp_path: Path) -> None:
    raw = Source.open(jsonl(tmp_path / "p", {"task_id": "HumanEval/0", "plus_input": []}))
    base = Source.open(FOLDER / "humaneval.jsonl")
    with pytest.raises(UsageError, match="OriginFmt"):
        humaneval.read([base], [raw], DEFAULT)
    with pytest.raises(UsageError, match="OriginFmt"):
        mbpp.read([Source.open(FOLDER / "mbpp.jsonl")], [raw], DEFAULT)


BROADCASTING = """import numpy as np

def assertion(out, exp, atol):
    assert out == exp or np.allclose(out, exp, rtol=1e-07, atol=atol)

def check(candidate):
    assertion(candidate(1.5), 2.25, 1e-6)
    assertion(candidate(2), 4.0, 1e-6)
"""


@pytest.mark.parametrize(
    ("body", "passes"),
    [("return x * x", True), ("return x * x + 1e-9", True), ("return []", False), ("return [[]]", False)],
)
def test_an_empty_list_is_not_close_to_a_number(tmp_path: Path, body: str, passes: bool) -> None:
    """EvalPlus's scripts broadcast: `return []` passed 21 tasks of HumanEval+ and MBPP+."""
    row = {"task_id": "HumanEval/0", "prompt": "", "entry_point": "f", "test": BROADCASTING}
    source = Source.open(jsonl(tmp_path / "h", row))
    (case,) = humaneval.read([source], [source], DEFAULT)
    program = case.tests[1].program
    names: dict[str, Any] = {}
    exec(f"def f(x):\n    {body}\n{program['setup']}", names)
    try:
        names["check"](names["f"])
    except AssertionError:
        assert not passes
    else:
        assert passes


def test_known_bad_enhanced_items_are_ineligible(tmp_path: Path) -> None:
    row = json.loads((FOLDER / "humaneval.jsonl").read_text().split("\n")[0])
    rows = [row | {"task_id": f"HumanEval/{n}"} for n in (31, 32, 33)]
    base = Source.open(jsonl(tmp_path / "b", *rows))
    plus = Source.open(jsonl(tmp_path / "p", *rows[:2]))
    reasons = [case.tests[1].ineligible for case in humaneval.read([base], [plus], DEFAULT)]
    assert reasons[0] == "" and "TypeError" in reasons[1] and "no test" in reasons[2]


def test_mbpp_takes_the_test_split_and_its_own_names(tmp_path: Path) -> None:
    row = {
        "text": "Write a function.",
        "code": "class Node: pass\ndef helper(x): return x\ndef f(x):\n    def g(): pass\n    return helper(x)\n",
        "test_setup_code": "n = Node()",
        "test_list": ["assert f(n) == n"],
    }
    rows = [row | {"task_id": n} for n in (10, 11, 510, 511)]
    cases = mbpp.read([Source.open(jsonl(tmp_path / "m", *rows))], [], DEFAULT)
    assert [case.id for case in cases] == ["mbpp/11", "mbpp/510"]
    assert cases[0].tests[0].program["bind"] == {"Node": "Node", "f": "f"}, "an answer needs no helper of the reference"


def problem(**changes: Any) -> dict[str, Any]:
    public = [{"input": "1", "output": "2", "testtype": "stdin"}]
    base = {"question_id": "q1", "question_title": "slug", "question_content": "Do it.", "starter_code": ""}
    return {**base, "public_test_cases": json.dumps(public), "metadata": "{}", "platform": "atcoder", **changes}


def packed_tests(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_the_official_release_with_packed_private_tests(tmp_path: Path) -> None:
    private = json.dumps([{"input": "3", "output": "4", "testtype": "stdin"}])
    source = Source.open(jsonl(tmp_path / "l", problem(private_test_cases=packed_tests(private))))
    (case,) = livecodebench.read([source], DEFAULT)
    assert [tests.name for tests in case.tests] == ["livecodebench"]
    assert case.tests[0].program["tests"] == [{"input": "1", "output": "2"}, {"input": "3", "output": "4"}]


def test_without_private_tests_the_score_has_another_name(tmp_path: Path) -> None:
    hidden = {"task_id": "slug", "prompt": "x = 1\n", "test": "def check(candidate): pass", "entry_point": "f"}
    sources = [Source.open(jsonl(tmp_path / n, row)) for n, row in (("l", problem()), ("h", hidden))]
    (case,) = livecodebench.read(sources, DEFAULT)
    assert [tests.name for tests in case.tests] == ["livecodebench-public", "leetcodedataset"]


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        (7 / 6, 1.16667, True),
        (1, 1.0, True),
        (1.1668, 1.16667, False),
        (True, 1.0, False),
        ((1, 2), [1, 2], True),
        ([1.5, [2]], [1.500001, [2]], True),
        ([1], [1, 2], False),
        ("ab", ["a", "b"], False),
        (None, [], False),
    ],
)
def test_functional_results_are_compared_as_the_problems_say(given: Any, wanted: Any, same: bool) -> None:
    names: dict[str, Any] = {}
    exec(livecodebench.SAME, names)
    assert names["_same"](given, wanted) is same


@pytest.fixture
def _own_limits() -> Iterator[None]:
    """The prelude of LiveCodeBench's programs raises limits of the interpreter that runs it."""
    before = sys.getrecursionlimit(), sys.get_int_max_str_digits()
    yield
    sys.setrecursionlimit(before[0])
    sys.set_int_max_str_digits(before[1])


@pytest.mark.usefixtures("_own_limits")
@pytest.mark.parametrize(
    ("source", "passes"),
    [
        ("class Solution:\n    def twice(self, x: List[int]) -> List[int]:\n        return [2 * n for n in x]\n", True),
        ("def twice(x):\n    return tuple(2 * n for n in x)\n", True),
        ("def twice(x):\n    return x\n", False),
        ("def twice(x):\n    return [mul(n, 2) for n in x if n < maxsize and mean([n]) == n and StringIO]\n", True),
        ("def twice(x):\n    return [int(str(2 * n * 10**9999)[:1]) for n in x]\n", True),
    ],
)
def test_methods_and_plain_functions_are_called_as_the_official_runner_does(
    tmp_path: Path, source: str, passes: bool
) -> None:
    public = json.dumps([{"input": "[1, 2]", "output": "[2, 4]", "testtype": "functional"}])
    row = problem(public_test_cases=public, metadata='{"func_name": "twice"}', starter_code="class Solution: ...")
    (case,) = livecodebench.read([Source.open(jsonl(tmp_path / "l", row))], DEFAULT)
    program = case.tests[0].program
    names: dict[str, Any] = {}
    exec(program["prelude"] + source, names)
    names["candidate"] = eval(program["bind"]["candidate"], names)
    exec(program["setup"], names)
    try:
        exec(program["steps"][0], names)
    except AssertionError:
        assert not passes
    else:
        assert passes
    assert case.limits == livecodebench.METHOD_LIMITS


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("owned",))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (packed_tests(Evil()), "asks for builtins.print"),
        (packed_tests(Path("x")), "no class is allowed"),
        (packed_tests([1, 2]), "hold no JSON"),
        (packed_tests("[1]"), "no list of input and output"),
        ("%%%", "damaged"),
        (base64.b64encode(zlib.compress(bytes(range(256)))[:-40]).decode(), "cut short|damaged"),
        (base64.b64encode(zlib.compress(b"cos\nsystem\n(S'true'\ntR.")).decode(), "asks for os.system"),
    ],
)
def test_pickles_that_reach_for_classes_are_refused(
    value: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=sentence):
        unpack("file, record 0", value)
    assert "owned" not in capsys.readouterr().out


def test_persistent_objects_are_refused() -> None:
    buffer = io.BytesIO()

    class Lender(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return "x" if obj == "lent" else None

    Lender(buffer).dump(["lent"])
    with pytest.raises(UsageError, match="persistent object"):
        unpack("here", base64.b64encode(zlib.compress(buffer.getvalue())).decode())


def function_calling(folder: Path) -> Path:
    tool = {
        "name": "music.play",
        "description": "Plays.",
        "parameters": {
            "type": "dict",
            "properties": {
                "volume": {"type": "float"},
                "type": {"type": "string", "enum": ["dict"]},
                "extra": {"type": "array", "items": {"type": "tuple", "items": {"type": "any"}}},
            },
            "required": ["volume"],
        },
    }
    answers = [{"music.play": {"volume": [1.0], "type": ["dict", ""], "extra": [""]}}]
    (folder / "possible_answer").mkdir(parents=True)
    rows = [{"id": f"r{n}", "question": [[{"role": "user", "content": "Play."}]], "function": [tool]} for n in (0, 1)]
    left_out = [rows[0] | {"id": "r2", "function": [tool, tool]}, rows[0] | {"id": "live_simple_106-63-0"}]
    truth = [answers, answers * 2, answers, answers]
    jsonl(folder / "q.json", *rows, *left_out)
    told = [{"id": row["id"], "ground_truth": calls} for row, calls in zip([*rows, *left_out], truth, strict=True)]
    jsonl(folder / "possible_answer" / "q.json", *told)
    return folder


def test_function_calling_folders_become_tool_cases(tmp_path: Path) -> None:
    pools = structured.read([function_calling(tmp_path / "f")], DEFAULT)
    assert {kind: len(pool) for kind, pool in pools.items() if pool} == {"one-tool": 1, "parallel-tools": 1}
    function = pools["one-tool"][0].tools[0]["function"]
    assert function["name"] == "music_play"
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "volume": {"type": "number"},
            "type": {"type": "string", "enum": ["dict"]},
            "extra": {"type": "array", "items": {"type": "array", "items": {}}},
        },
        "required": ["volume"],
    }
    assert list(pools["one-tool"][0].answer["calls"][0]) == ["music_play"]


@pytest.mark.parametrize(
    ("part", "sent", "features"),
    [
        ({"type": "array", "items": {"type": "string", "format": "date"}}, None, []),
        ({"type": "string", "pattern": "^[a-z]+(?:x|y)$"}, None, []),
        ({"properties": {"not": {"type": "string"}, "if": {"type": "null"}}}, None, []),
        ({"enum": [{"not": 1}], "default": {"uniqueItems": True}}, None, []),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, None, []),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["uniqueItems"]),
        ({"anyOf": [{"type": "string"}, {"not": {"type": "null"}}]}, {"anyOf": [{"type": "string"}, {}]}, ["not"]),
        ({"type": "string", "pattern": "^(?!@)x"}, {"type": "string"}, ["look-around in pattern"]),
        ({"type": "string", "pattern": "(?<=a)x"}, {"type": "string"}, ["look-around in pattern"]),
        (
            {"type": "object", "patternProperties": {"^(?!@@)x": {}}, "additionalProperties": False},
            {"type": "object"},
            ["look-around in patternProperties"],
        ),
        ({"type": "string", "format": "uri-reference"}, {"type": "string"}, ["format uri-reference"]),
        ({"if": {"const": 1}, "then": {"type": "null"}}, {}, ["if", "then"]),
        (
            {"oneOf": [{"type": "array", "uniqueItems": True}, {"type": "array"}]},
            {"anyOf": [{"type": "array"}, {"type": "array"}]},
            ["uniqueItems"],
        ),
    ],
)
def test_what_no_grammar_follows_is_not_sent_and_checked_afterwards(
    tmp_path: Path, part: dict[str, Any], sent: dict[str, Any] | None, features: list[str]
) -> None:
    whole = {"type": "object", "properties": {"a": part}}
    jsonl(tmp_path / "s.json", {"schema": whole, "tests": []})
    (case,) = structured.read([tmp_path], DEFAULT)["json-schema"]
    form: Any = case.response_format
    assert form["json_schema"]["schema"] == {"type": "object", "properties": {"a": part if sent is None else sent}}
    assert case.answer == ({"schema": whole, "checked_afterwards": features} if features else {})
    assert compact_json(whole) in case.messages[0]["content"], "the prompt shows the whole schema"


def test_kinds_that_the_sources_lack_come_from_the_embedded_corpus(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    jsonl(schemas / "s.json", {"schema": {"type": "object"}, "tests": []})
    paths = {"structured": [function_calling(tmp_path / "f"), schemas]}
    corpus = freeze(Recipe(paths, mix={"structured": 4}), fill=embedded())
    assert [case.dataset for case in corpus.cases] == ["builtin-structured", "structured", "structured", "structured"]
    with pytest.raises(UsageError, match=r"json-object\): 1 cases wanted"):
        freeze(Recipe(paths, mix={"structured": 4}))


def test_word_problems_without_a_marked_answer_are_refused(tmp_path: Path) -> None:
    source = Source.open(jsonl(tmp_path / "t", {"question": "How many?", "answer": "Seven."}))
    with pytest.raises(UsageError, match="record 0: the answer has no line"):
        gsm8k.read([source], DEFAULT)


def test_a_manifest_of_another_corpus_is_overwritten_only_with_force(tmp_path: Path) -> None:
    whole = embedded()
    other = replace(whole, cases=whole.cases[:2])
    manifest.write(whole, "mine", tmp_path)
    manifest.write(whole, "mine", tmp_path)  # the same again
    with pytest.raises(UsageError, match=r"mine.manifest.json is there already: .* --force"):
        manifest.write(other, "mine", tmp_path)
    assert manifest.read(tmp_path / "mine.manifest.json").sha256 == whole.sha256
    manifest.write(other, "mine", tmp_path, force=True)
    assert manifest.read(tmp_path / "mine.manifest.json").sha256 == other.sha256 != whole.sha256
