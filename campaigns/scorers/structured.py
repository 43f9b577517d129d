"""Structured answers: JSON that parses, fits its schema and says the right thing; tool calls with the right arguments.

An argument is right when it fits the tool's own schema and is one of the accepted values; texts are compared as the
function-calling leaderboard does, and an integer is written without a fraction. Parallel calls may come in any order.

A pattern can backtrack for ever, so `campaigns.scorers.worker` runs this in a process that can be ended.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from campaigns.corpora.case import Case
from campaigns.scorers.verdict import Answer, Judged, Unjudgeable, Verdict

MAX_DIGITS = 4300  # of an integer; Python itself reads no more
_IGNORED = re.compile(r"[ ,./\-_*^]")


def score_structured(case: Case, answer: Answer) -> Verdict:
    if answer.capped:
        return Verdict(case.dataset, Judged.CAPPED)
    try:
        complaint = _tool_complaint(case, answer) if case.tools else _json_complaint(case, answer)
    except Unjudgeable as error:
        return Verdict(case.dataset, Judged.ERROR, {"reason": str(error)})
    outcome = Judged.FAILED if complaint else Judged.PASSED
    return Verdict(case.dataset, outcome, _checked_afterwards(case) | ({"reason": complaint} if complaint else {}))


def _checked_afterwards(case: Case) -> dict[str, Any]:
    """What the server was not asked to follow, for the report to count."""
    features = case.answer.get("checked_afterwards") if isinstance(case.answer, Mapping) else None
    return {"checked_afterwards": features} if features else {}


def _json_complaint(case: Case, answer: Answer) -> str:
    """Why the answer is wrong; empty when it is right."""
    from campaigns.scorers.schema import schema_complaint  # what only who judges such answers need pay

    try:
        document = _strict_json(answer.final_text)
    except ValueError as error:
        return f"no JSON document: {error}"
    form: Mapping[str, Any] = case.response_format or {}
    if form.get("type") == "json_object" and not isinstance(document, dict):
        return f"a JSON object was asked for, this is {type(document).__name__}"
    if "json_schema" in form:
        schema = case.answer.get("schema", form["json_schema"]["schema"])  # the whole one, where less was sent
        if complaint := schema_complaint(schema, document):
            return complaint
    if "value" not in case.answer or _same_json(case.answer["value"], document):
        return ""
    return f"the document says {answer.final_text.strip()[:200]}"


def _strict_json(text: str) -> Any:
    """JSON of the standard: no NaN, no key twice; and no number or depth that a reader may refuse."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_repeats,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_fraction,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _fraction(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is beyond a double")
    return value


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return dict(pairs)


def _same_json(wanted: Any, found: Any) -> bool:
    """Equal as JSON: true is no 1; objects have no order."""
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(_same_json(wanted[key], found[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_same_json, wanted, found))
    return bool(wanted == found)


def _tool_complaint(case: Case, answer: Answer) -> str:
    from campaigns.scorers.schema import schema_complaint

    try:
        calls = [_call(call) for call in json.loads(answer.tool_calls_json or "[]")]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return f"the tool calls cannot be read: {error}"
    parameters = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in case.tools}
    for name, arguments in calls:
        if name not in parameters:
            return f"there is no tool {name!r}"
        if complaint := schema_complaint(parameters[name], arguments, whole_integers=True):
            return f"{name}: {complaint}"
    return _match_all(case.answer["calls"], calls)


def _call(call: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    function = call["function"]
    if not isinstance(function["name"], str):
        raise TypeError(f"the name {function['name']} is no text")
    arguments = _strict_json(function["arguments"] or "{}")
    if not isinstance(arguments, dict):
        raise ValueError(f"arguments of {function['name']} are {type(arguments).__name__}, not an object")
    return function["name"], arguments


def _match_all(wanted: Sequence[Mapping[str, Any]], calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    if len(wanted) != len(calls):
        return f"{len(calls)} calls, {len(wanted)} were wanted"
    return "" if _matched(wanted, calls) else f"not the wanted calls with accepted arguments: {json.dumps(calls)[:200]}"


def _matched(wanted: Sequence[Mapping[str, Any]], calls: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
    """Whether every wanted call can have a call of its own: bipartite matching by augmenting paths."""
    owners: dict[int, int] = {}  # call -> the wanted one that has it

    def find(one: int, seen: set[int]) -> bool:
        for number, call in enumerate(calls):
            if number not in seen and _answers(wanted[one], call):
                seen.add(number)
                if number not in owners or find(owners[number], seen):
                    owners[number] = one
                    return True
        return False

    return all(find(one, set()) for one in range(len(wanted)))


def _answers(wanted: Mapping[str, Any], call: tuple[str, Mapping[str, Any]]) -> bool:
    ((name, accepted),) = wanted.items()
    return call[0] == name and _fits(accepted, call[1], _accepts)


def _fits(
    accepted: Mapping[str, Sequence[Any]], arguments: Mapping[str, Any], accepts: Callable[[Any, Any], bool]
) -> bool:
    """Accepted values per argument; an empty text among them allows the argument to be left out."""
    if arguments.keys() - accepted.keys():
        return False
    return all(
        any(accepts(option, arguments[name]) for option in options) if name in arguments else "" in options
        for name, options in accepted.items()
    )


def _accepts(option: Any, value: Any) -> bool:
    """As an argument; the leaderboard looks into lists and objects one level deep."""
    if isinstance(option, list) and isinstance(value, list):
        return len(option) == len(value) and all(map(_accepts_inside, option, value))
    return _accepts_inside(option, value)


def _accepts_inside(option: Any, value: Any) -> bool:
    """As an item or a field: a text loosely, an object by its fields, all else exactly."""
    if isinstance(option, str) and isinstance(value, str):
        return _loosely(option) == _loosely(value)
    if isinstance(option, Mapping) and isinstance(value, Mapping):
        return _fits(option, value, _accepts_inside)
    return _same_json(option, value)


def _loosely(text: str) -> str:
    """The leaderboard's `standardize_string`."""
    return _IGNORED.sub("", text).lower().replace("'", '"')
