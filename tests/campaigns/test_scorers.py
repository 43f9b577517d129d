"""Verdicts on right, wrong, empty, capped and hostile answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from campaigns.corpora.case import Case, TestSet
from campaigns.corpora.embedded import embedded
from campaigns.scorers import scoring
from campaigns.scorers.answer import final_answer
from campaigns.scorers.code import codes, score_code, strictly_positive
from campaigns.scorers.equivalence import Equal, equivalent
from campaigns.scorers.execution import Job, Limits, Outcome, TestResult
from campaigns.scorers.extraction import extract_code
from campaigns.scorers.structured import score_structured
from campaigns.scorers.verdict import Answer, Judged, Verdict


def case(**fields: Any) -> Case:
    return Case(**{"id": "x/0", "dataset": "x", "source_sha256": "", "record_index": 0, "messages": (), **fields})


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so it is \\boxed{12}.", "12"),
        ("first \\boxed{1}, no: \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed {\\{1, 2\\}}", "\\{1, 2\\}"),
        ("it costs $1,234.50 now", "1234.50"),
        ("either 3 or -4", "-4"),
        ("a ratio of 3/4", "3/4"),
        ("\\boxed{unfinished, but 7 before", "7"),
        ("\\boxed{42}. It belongs into \\boxed{}.", "42"),
        ("\\boxed{a} and \\boxed{b", "a"),
        ("\\boxed{\\boxed{3}}", "3"),
        ("\\boxed{17 \\boxed{18}}", "18"),
        ("\\boxed{17} or \\boxed{18}", "18"),
        ("\\boxed{\\text{a \\} b}} in 5 steps", "\\text{a \\} b}"),
        ("\\boxed{\\,\\frac{1}{2}\\; .}", "\\frac{1}{2}"),
        ("\\boxed{9.}", "9"),
        ("\\boxed{0.5}", "0.5"),
        ("pages 5-10", "10"),
        ("so x=-3.", "-3"),
        ("it is \u22125 degrees", "-5"),
        ("about .5", ".5"),
        ("no number at all", None),
        ("", None),
    ],
)
def test_the_last_final_answer_counts(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 50_000,
        "`" * 1_000_000,
        "```python\n" + "\n" * 1_000_000,
        "```python\n" + "def " * 300_000,
        "\\boxed{" + "\\," * 500_000 + "}",
        "\\boxed{" + ". " * 500_000 + "}",
        "1," * 500_000,
        "1/" * 500_000,
        "<think>" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_answers_that_repeat_themselves_are_read_in_one_pass(text: str) -> None:
    """Quadratic in the length these take ten minutes, which the limit on every test ends."""
    final_answer(Answer(text).final_text or text)
    extract_code(text, ["f"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("wanted", "given", "equal"),
    [
        ("18", "18.0", True),
        ("18", "19", False),
        ("\\frac{3}{4}", "0.75", True),
        ("\\frac{3}{4}", "3/4", True),
        ("6\\sqrt{2}", "\\sqrt{72}", True),
        ("x^2 - 2x - 15", "(x+3)(x-5)", True),
        ("(x-5)(x+5)", "x^2-24", False),
        ("\\text{Evelyn}", "Evelyn", True),
        ("\\text{Evelyn}", "\\text{Carla}", False),
        ("(3, \\frac{\\pi}{2})", "(3, \\pi/2)", True),
        ("7", "\\frac{", False),
        ("10", "10\\%", True),
        ("10\\%", "10", True),
        ("10", "11\\%", False),
        ("10", "0.1", False),
        ("2516_8", "2516_{8}", True),
        ("2516_8", "2516_9", False),
        ("1234", "\\$1{,}234 \\text{ dollars}", True),
        ("18", "17, 18", False),
        ("18", "17 \\text{ or } 18", False),
        ("(1,2)", "[1,2]", False),
        ("", "", False),
        ("18", "x=18", True),
        ("18", "\\text{Area} = 18", True),
        ("18", "AB = 18 \\text{ cm}", True),
        ("18", "3 \\cdot 6 = 18", True),
        ("18", "a = 3 \\cdot 6 = 18", True),
        ("x^2 - 2x - 15", "(x+3)(x-5) = x^2 - 2x - 15", True),
        ("(1,2)", "(x,y) = (1,2)", True),
        ("14.29", "\\frac{100}{7} = 14.29", True),
        ("18", "0.18 = 18\\%", True),
        ("18", "17=18", False),
        ("18", "18=17", False),
        ("18", "x = 17 = 18", False),
        ("18", "3 \\cdot 7 = 18", False),
        ("18", "\\frac{36}{2} = 19 = 18", False),
        ("18", "17 \\equiv 18", False),
        ("18", "x \\equiv 18 \\pmod{83}", True),
        ("240", "12(20) = 240", True),
        ("52_8", "6_8 \\cdot 7_8 = 52_8", True),
        ("0.\\overline{3}", "x = 0.\\overline{3}", True),
        ("6", "\\log_2 64 = 6", True),
        ("60 \\text{ min}", "1 \\text{ h} = 60 \\text{ min}", True),
        ("\\frac{3}{4}", "\\large \\frac{3}{4}", True),
        ("17,18", "x=17, 5=18", False),
        ("1001", "1000=1001", False),
        ("18", "n=17 \\text{ or } n=18", False),
        ("18", "17 \\neq 18", False),
        ("18", "\\neq 18", False),
        ("18", "\\le 18", False),
        ("18", "x < 18", False),
        ("18", "17 \\to 18", False),
        ("18", "17 \\unknown 18", False),
        ("18", "\\large 17, 18", False),
        ("18", "\\large 18", True),
        ("18", "\\approx 18", True),
        ("18", "x \\approx 18", True),
        ("18", "17 \\approx 18", False),
        ("18", "18 apples", True),
        ("18", "18 \\text{ apples}", True),
        ("18", "[17,18]", False),
        ("18", "(17,18)", False),
        ("18", "\\pm 18", False),
        ("35", "17 18", False),
        ("1800", "1\\,800", True),
        ("801", "1\\,800", False),
        ("3.5", "3\\frac{1}{2}", True),
    ],
)
def test_equivalence_is_about_values(wanted: str, given: str, equal: bool) -> None:
    assert (equivalent(wanted, given) is Equal.YES) is equal


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer("\\boxed{7}"), Judged.PASSED),
        (Answer("\\boxed{ 7 }"), Judged.PASSED),
        (Answer("\\boxed{8}"), Judged.FAILED),
        (Answer(""), Judged.FAILED),
        (Answer("\\boxed{7} and then", finish_reason="length"), Judged.CAPPED),
        (Answer("<think>\\boxed{8}</think>\\boxed{7}"), Judged.PASSED),
        (Answer("<think>it must be \\boxed{7}"), Judged.FAILED),
        (Answer("<think>so \\boxed{7}</think>"), Judged.FAILED),
        (Answer("<think>so \\boxed{7}</think>The answer is 8."), Judged.FAILED),
        (Answer("\\boxed{8=7}"), Judged.FAILED),
        (Answer("\\boxed{7} or \\boxed{8}"), Judged.FAILED),
        (Answer("it is 7"), Judged.PASSED),
    ],
)
def test_numbers_are_scored_from_the_final_answer(answer: Answer, outcome: Judged) -> None:
    (verdict,) = scoring.score(case(answer="7"), answer, scoring.score_text, never)
    assert verdict.outcome is outcome and verdict.scorer == "x"


def never(job: Job) -> Outcome:
    raise AssertionError("no code was to be run")


@pytest.mark.parametrize(
    ("results", "passes"),
    [
        ([1, 1, 1], True),
        ([True, True], True),
        ([-1], False),
        ([1, -2], False),
        ([-3, 1], False),
        ([1, 1, -4], False),
        ([0], False),
        ([], False),
    ],
    ids=["all", "booleans", "compile", "wrong", "time", "run-time", "false", "none"],
)
def test_only_strictly_positive_results_pass(results: list[Any], passes: bool) -> None:
    """Case 59: -1 to -4 are truthy, and a harness that asked for truth counted them as passes."""
    assert strictly_positive(results) is passes


def outcome(*statuses: str, broke: str = "") -> Outcome:
    return Outcome(tuple(TestResult(status) for status in statuses), broke, 0.1, "namespaces")


SET = TestSet("original", {"kind": "steps", "prelude": "", "setup": "", "bind": {"f": "f"}, "steps": ["f(1)"]})


@pytest.mark.parametrize(
    ("ran", "judged", "official"),
    [
        (outcome("passed", "passed"), Judged.PASSED, [1, 1]),
        (outcome("passed", "failed"), Judged.FAILED, [1, -2]),
        (outcome("timeout", "not-run"), Judged.TIMEOUT, [-3, -4]),
        (outcome("crashed"), Judged.FAILED, [-4]),
        (outcome("memory"), Judged.FAILED, [-4]),
        (outcome("passed", broke="no-verdict"), Judged.FAILED, [1]),
        (outcome("passed", broke="timeout"), Judged.TIMEOUT, [1]),
        (outcome(), Judged.FAILED, []),
    ],
)
def test_outcomes_of_the_sandbox_become_verdicts(ran: Outcome, judged: Judged, official: list[int]) -> None:
    (verdict,) = score_code(case(tests=(SET,)), Answer("```python\nx\n```"), lambda job: ran)
    assert verdict.outcome is judged and codes(ran) == verdict.details["results"] == official
    assert verdict.details["limits"] and verdict.details["sandbox"] == "namespaces"


@pytest.mark.parametrize(
    ("answer", "judged"),
    [
        (Answer("```python\ndef f(): ..\n```", finish_reason="length"), Judged.CAPPED),
        (Answer(""), Judged.FAILED),
        (Answer("<think>\n```python\ndef f(): ..\n```"), Judged.FAILED),
        (Answer("<think>\n```python\ndef f(): ..\n```</think>"), Judged.FAILED),
    ],
)
def test_no_final_code_is_run_for_answers_without_any(answer: Answer, judged: Judged) -> None:
    (verdict,) = score_code(case(tests=(SET,)), answer, never)
    assert verdict.outcome is judged


def test_sets_are_denominators_of_their_own_and_ineligible_ones_are_counted() -> None:
    sets = (SET, TestSet("evalplus", ineligible="EvalPlus has no contract for this task"))
    verdicts = score_code(case(tests=sets), Answer("def f(x): return x"), lambda job: outcome("passed"))
    assert [(v.scorer, v.outcome) for v in verdicts] == [
        ("x/original", Judged.PASSED),
        ("x/evalplus", Judged.INELIGIBLE),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(): pass", "def f(): pass"),
        ("Like this:\n```python\na\n```\nor\n```py\nb\n```\ndone", "b\n"),
        ("```python\ndef f(): pass\n```\nUse it:\n```python\nprint(f())\n```", "def f(): pass\n"),
        ("```bash\npip install x\n```\n```\na\n```", "a\n"),
        ("1. So:\n   ```python\n   def f():\n       pass\n   ```", "def f():\n    pass\n"),
        ("```python\r\nx\r\n```\r\nIt works.", "x\r\n"),
        ("```python\na\n```\nInput:\n```\n3\n```\n", "a\n"),
        ("```python\na\n```\n```java\nb\n```", "a\n"),
        ("```\n    return 1\n```", "    return 1\n"),
        ("```python\ndef f(): pass\n", "def f(): pass\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
    ],
)
def test_code_is_taken_from_its_block(text: str, code: str) -> None:
    assert extract_code(text, ["f"]).source == code


@pytest.mark.parametrize(
    ("tests", "scorer"),
    [
        ("original", "x/original"),
        ("livecodebench-public", "livecodebench-public"),
        ("leetcodedataset", "leetcodedataset"),
    ],
)
def test_tests_that_are_not_the_official_ones_name_the_score(tests: str, scorer: str) -> None:
    one = case(tests=(TestSet(tests, SET.program),))
    assert score_code(one, Answer("x = 1"), lambda job: outcome("passed"))[0].scorer == scorer


def test_a_bare_continuation_is_completed_by_its_prompt() -> None:
    program = {**SET.program, "prelude": 'def f(x):\n    """Doc."""\n'}
    jobs: list[Job] = []

    def run(job: Job) -> Outcome:
        jobs.append(job)
        return outcome("passed")

    score_code(case(tests=(TestSet("original", program),), limits={"cpu_s": 3}), Answer("    return x\n"), run)
    assert jobs[0].source == 'def f(x):\n    """Doc."""\n    return x\n'
    assert jobs[0].limits == Limits(cpu_s=3.0)


def schema_form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": schema}}


OBJECT = {"type": "json_object"}
SCHEMA = schema_form(
    {
        "type": "object",
        "properties": {"day": {"type": "string", "format": "date"}, "n": {"type": "integer"}},
        "required": ["day"],
        "additionalProperties": False,
    }
)
CHAIN = schema_form({"type": "object", "properties": {"next": {"$ref": "#"}}})
NUMBER = schema_form({"type": "number", "multipleOf": 0.25, "maximum": 1e300})


@pytest.mark.parametrize(
    ("form", "wanted", "text", "judged"),
    [
        (OBJECT, {"value": {"a": 1}}, '{"a": 1}', Judged.PASSED),
        (OBJECT, {"value": {"a": 1}}, ' {"a": 1.0}\n', Judged.PASSED),
        (OBJECT, {"value": {"a": 1}}, '{"a": true}', Judged.FAILED),
        (OBJECT, {"value": {"a": 1}}, '{"a": 1, "b": 2}', Judged.FAILED),
        (OBJECT, {}, "[1]", Judged.FAILED),
        (OBJECT, {}, "", Judged.FAILED),
        (OBJECT, {}, '{"a": NaN}', Judged.FAILED),
        (OBJECT, {}, '{"a": -Infinity}', Judged.FAILED),
        (OBJECT, {}, '{"a": 1e999}', Judged.FAILED),
        (OBJECT, {}, '{"a": 1' + "0" * 1_000_000 + "}", Judged.FAILED),
        (OBJECT, {}, '{"a": 0.' + "1" * 1_000_000 + "}", Judged.PASSED),
        (OBJECT, {"value": {"a": "x"}}, '{"a": "\\ud800"}', Judged.FAILED),
        (OBJECT, {}, '{"a": "\\ud800"}', Judged.PASSED),
        (OBJECT, {}, '{"a": {"b": 1, "b": 1}}', Judged.FAILED),
        (OBJECT, {}, '{"a": 1, "a": 1}', Judged.FAILED),
        (OBJECT, {}, 'Here: {"a": 1}', Judged.FAILED),
        (OBJECT, {}, "[" * 100_000, Judged.FAILED),
        (OBJECT, {"value": {"a": 1}}, '{"a":' * 300 + "{}" + "}" * 300, Judged.FAILED),
        (CHAIN, {}, '{"next":' * 20 + "{}" + "}" * 20, Judged.PASSED),
        (CHAIN, {}, '{"next":' * 300 + "{}" + "}" * 300, Judged.ERROR),
        (schema_form({"$ref": "#"}), {}, "{}", Judged.ERROR),
        (schema_form({"$ref": "#/$defs/none"}), {}, "{}", Judged.ERROR),
        (schema_form({"pattern": "\\p{Letter}"}), {}, '"a"', Judged.ERROR),
        (schema_form({"type": "list"}), {}, "[]", Judged.ERROR),
        (NUMBER, {}, "1e999", Judged.FAILED),
        (NUMBER, {}, "1" * 1000, Judged.ERROR),
        (NUMBER, {}, "1.25", Judged.PASSED),
        (SCHEMA, {}, '{"day": "2026-02-28"}', Judged.PASSED),
        (SCHEMA, {}, '{"day": "2026-02-30"}', Judged.FAILED),
        (SCHEMA, {}, '{"day": "2026-02-28", "n": 1.5}', Judged.FAILED),
        (SCHEMA, {}, '{"day": "2026-02-28", "x": 1}', Judged.FAILED),
    ],
)
def test_json_answers(form: dict[str, Any], wanted: dict[str, Any], text: str, judged: Judged) -> None:
    assert score_structured(case(response_format=form, answer=wanted), Answer(text)).outcome is judged


@pytest.mark.parametrize(("text", "judged"), [("[1, 2]", Judged.PASSED), ("[1, 1]", Judged.FAILED)])
def test_what_the_server_was_not_asked_to_follow_is_checked_on_the_answer(text: str, judged: Judged) -> None:
    """The request's schema allows both; the whole one has the word."""
    answer = {"schema": {"type": "array", "uniqueItems": True}, "checked_afterwards": ["uniqueItems"]}
    verdict = score_structured(case(response_format=schema_form({"type": "array"}), answer=answer), Answer(text))
    assert verdict.outcome is judged and verdict.details["checked_afterwards"] == ["uniqueItems"]


def test_references_out_of_the_schema_are_never_fetched() -> None:
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}
    verdict = score_structured(
        case(response_format={"type": "json_schema", "json_schema": {"schema": schema}}, answer={}), Answer("{}")
    )
    assert verdict.outcome is Judged.ERROR and "not in it" in verdict.details["reason"]


def calls(*arguments: Any, name: str = "get_weather") -> Answer:
    made = [{"type": "function", "function": {"name": name, "arguments": json.dumps(a)}} for a in arguments]
    return Answer("", json.dumps(made), "tool_calls")


PARALLEL = embedded().case("builtin-structured/own/parallel-tools")


@pytest.mark.parametrize(
    ("answer", "judged"),
    [
        (calls({"city": "Oslo"}, {"city": "Rome"}), Judged.PASSED),
        (calls({"city": "rome"}, {"city": "Oslo", "unit": "celsius"}), Judged.PASSED),
        (calls({"city": "Oslo"}, {"city": "Oslo"}), Judged.FAILED),
        (calls({"city": "Oslo"}), Judged.FAILED),
        (calls({"city": "Oslo"}, {"city": "Rome"}, {"city": "Rome"}), Judged.FAILED),
        (calls({"city": "Oslo", "unit": "fahrenheit"}, {"city": "Rome"}), Judged.FAILED),
        (calls({"city": "Oslo", "day": "today"}, {"city": "Rome"}), Judged.FAILED),
        (calls({"city": 1}, {"city": "Rome"}), Judged.FAILED),
        (calls({"city": "Oslo"}, {"city": "Rome"}, name="weather"), Judged.FAILED),
        (calls("Oslo", "Rome"), Judged.FAILED),
        (Answer("Oslo, Rome"), Judged.FAILED),
        (Answer("", "{", "tool_calls"), Judged.FAILED),
        (Answer("", '[{"function": {"name": ["get_weather"], "arguments": "{}"}}]', "tool_calls"), Judged.FAILED),
    ],
)
def test_tool_calls(answer: Answer, judged: Judged) -> None:
    assert PARALLEL is not None
    assert score_structured(PARALLEL, answer).outcome is judged


@pytest.mark.parametrize(
    ("kind", "accepted", "given", "judged"),
    [
        ("integer", [10], 10, Judged.PASSED),
        ("integer", [10], 10.0, Judged.FAILED),
        ("integer", [1], True, Judged.FAILED),
        ("number", [10.0], 10, Judged.PASSED),
        ("number", [10], 10.0, Judged.PASSED),
        ("string", ["O'Hara"], 'o"hara', Judged.PASSED),
        ("string", ["Oslo"], "'Oslo'", Judged.FAILED),
        ("string", ["April 1, 2024"], "april 1 2024", Judged.PASSED),
        ("array", [["Oslo", "Rome"]], ["oslo", "ROME"], Judged.PASSED),
        ("array", [["Oslo", "Rome"]], ["Rome", "Oslo"], Judged.FAILED),
        ("array", [[["Oslo"]]], [["Oslo"]], Judged.PASSED),
        ("array", [[["Oslo"]]], [["oslo"]], Judged.FAILED),
        ("array", [[{"city": ["Oslo", ""]}]], [{"city": "oslo"}], Judged.PASSED),
        ("object", [{"city": ["Oslo"]}], {"city": "oslo"}, Judged.PASSED),
        ("object", [{"city": [["Oslo"]]}], {"city": ["oslo"]}, Judged.FAILED),
    ],
)
def test_arguments_are_compared_as_the_function_calling_leaderboard_does(
    kind: str, accepted: list[Any], given: Any, judged: Judged
) -> None:
    """Each outcome is the one of the leaderboard's own checker (bfcl-eval 2026.3.23)."""
    parameters = {"type": "object", "properties": {"a": {"type": kind}}}
    tools = ({"type": "function", "function": {"name": "get_weather", "parameters": parameters}},)
    wanted = {"calls": [{"get_weather": {"a": accepted}}]}
    assert score_structured(case(tools=tools, answer=wanted), calls({"a": given})).outcome is judged


def test_a_call_that_fits_two_wanted_ones_is_left_to_the_one_that_needs_it() -> None:
    tools = ({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}},)
    wanted = {"calls": [{"get_weather": {"city": ["Oslo", "Rome"]}}, {"get_weather": {"city": ["Oslo"]}}]}
    for answer, judged in (
        (calls({"city": "Oslo"}, {"city": "Rome"}), Judged.PASSED),
        (calls({"city": "Rome"}, {"city": "Rome"}), Judged.FAILED),
    ):
        assert score_structured(case(tools=tools, answer=wanted), answer).outcome is judged


def test_many_calls_that_fit_each_other_are_matched_without_trying_all_orders() -> None:
    tools = ({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}},)
    wanted = {"calls": [{"get_weather": {"city": ["Oslo", "Rome"]}}] * 39 + [{"get_weather": {"city": ["Oslo"]}}]}
    for first, judged in (("Oslo", Judged.PASSED), ("Rome", Judged.FAILED)):
        answer = calls({"city": first}, *[{"city": "Rome"}] * 39)
        assert score_structured(case(tools=tools, answer=wanted), answer).outcome is judged


def test_every_embedded_case_has_a_scorer() -> None:
    """No case of the corpus falls through: an empty answer fails, one that the token limit ended is called capped."""
    for one in embedded().cases:
        for answer, judged in ((Answer(""), Judged.FAILED), (Answer("", finish_reason="length"), Judged.CAPPED)):
            verdicts: list[Verdict] = scoring.score(one, answer, scoring.score_text, never)
            assert verdicts and {v.outcome for v in verdicts} <= {judged, Judged.INELIGIBLE}, one.id
