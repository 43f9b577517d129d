"""Structured cases: one JSON object, JSON under a schema, one tool call, parallel tool calls.

Three sources: folders of the Berkeley function-calling leaderboard (questions beside `possible_answer/`), folders of
JSON schemas with valid and invalid instances, and JSON lines of our own (id, kind, messages, tools, response_format,
answer). A kind that no source has comes from the embedded corpus; the caller sees to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.corpora.case import Case, compact_json
from campaigns.corpora.readers.schema_features import loosened
from campaigns.corpora.source import Source
from campaigns.corpora.templates import render
from campaigns.errors import UsageError

KINDS = ("json-object", "json-schema", "one-tool", "parallel-tools")
Pools = dict[str, list[Case]]
# Questions of the leaderboard (v4) that no call can answer: nothing that is accepted fits the tool's own schema.
UNANSWERABLE = {
    "live_simple_71-35-0": "the enumeration of an array's items stands at the array",
    "live_simple_106-63-0": "a required argument has no accepted value",
    "live_simple_112-68-0": "a required argument has no accepted value",
}
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def read(paths: Sequence[Path], templates: Mapping[str, str], name: str = "structured") -> Pools:
    """Cases by kind; as everywhere, files stand in the order of their hashes and records in that of their file."""
    pools: Pools = {kind: [] for kind in KINDS}
    for path in paths:
        for kind, case in _read_one(path, templates, name):
            pools[kind].append(case)
    return {kind: sorted(pool, key=lambda c: (c.source_sha256, c.record_index)) for kind, pool in pools.items()}


def _read_one(path: Path, templates: Mapping[str, str], name: str) -> Iterable[tuple[str, Case]]:
    if not path.is_dir():
        return _own(Source.open(path), name)
    if (path / "possible_answer").is_dir():
        return _function_calling(path, name)
    files = sorted(path.glob("*.json")) or sorted(path.glob("*/*.json"))
    if not files:
        raise UsageError(f"{path}: neither a folder with possible_answer/ nor one of JSON schemas")
    return _schemas(files, templates, name)


def _own(source: Source, name: str) -> Iterable[tuple[str, Case]]:
    for index in range(len(source.records)):
        label, kind, messages, answer = source.need(index, id=str, kind=str, messages=list, answer=dict)
        if kind not in KINDS:
            raise source.wrong(index, f"kind {kind!r} is none of {', '.join(KINDS)}")
        tools, form = source.records[index].get("tools", ()), source.records[index].get("response_format")
        tools = tuple(tools) if isinstance(tools, list) else ()
        case = Case(f"{name}/{label}", name, source.sha256, index, tuple(messages), tools, form, answer)
        if not _answerable(kind, case):
            raise source.wrong(index, f"it lacks something that kind {kind} needs")
        yield kind, case


def _answerable(kind: str, case: Case) -> bool:
    """Whether everything is there that the request and the scorer of this kind rely on."""
    form: Any = case.response_format
    try:
        if not case.messages or not all({"role", "content"} <= message.keys() for message in case.messages):
            return False
        if kind in ("one-tool", "parallel-tools"):
            named, calls = [tool["function"]["name"] for tool in case.tools], [dict(c) for c in case.answer["calls"]]
            return bool(named) and bool(calls) and all(calls)
        if kind == "json-schema":
            return isinstance(form["json_schema"]["schema"], dict)
        return bool(form["type"] == "json_object")
    except (KeyError, TypeError, AttributeError, ValueError):
        return False


def _schemas(files: Sequence[Path], templates: Mapping[str, str], name: str) -> Iterable[tuple[str, Case]]:
    for path in files:
        source = Source.open(path)
        (schema,) = source.need(0, schema=dict)
        sent = loosened(schema)
        message = {"role": "user", "content": render(templates, "json-schema", schema=compact_json(schema))}
        form = {"type": "json_schema", "json_schema": {"name": "document", "strict": True, "schema": sent.schema}}
        checked = {"schema": schema, "checked_afterwards": sorted(sent.features)} if sent.features else {}
        yield "json-schema", Case(f"{name}/{path.stem}", name, source.sha256, 0, (message,), (), form, checked)


def _function_calling(folder: Path, name: str) -> Iterable[tuple[str, Case]]:
    for path in sorted(folder.glob("*.json")):
        source, answers = Source.open(path), Source.open(folder / "possible_answer" / path.name)
        truth = dict(answers.need(index, id=str, ground_truth=list) for index in range(len(answers.records)))
        for index in range(len(source.records)):
            try:
                kind, case = _question(source, index, truth, name)
            except (KeyError, TypeError, AttributeError, IndexError) as error:
                raise source.wrong(index, f"it is no question with functions ({error!r})") from error
            if kind:
                yield kind, case


def _question(source: Source, index: int, truth: Mapping[str, Any], name: str) -> tuple[str, Case]:
    label, turns, functions = source.need(index, id=str, question=list, function=list)
    if label not in truth:
        raise source.wrong(index, f"possible_answer/ has no answer for {label}")
    calls = [{_wire_name(function): values for function, values in call.items()} for call in truth[label]]
    kind = _kind(len(functions), len(calls)) if len(turns) == 1 and label not in UNANSWERABLE else ""
    tools = tuple(_tool(function) for function in functions)
    messages = tuple(turns[0])
    return kind, Case(f"{name}/{label}", name, source.sha256, index, messages, tools, answer={"calls": calls})


def by_kind(cases: Iterable[Case]) -> Pools:
    """Structured cases of a frozen corpus, by what they ask for."""
    pools: Pools = {kind: [] for kind in KINDS}
    for case in cases:
        if case.tools:
            pools[_kind(len(case.tools), len(case.answer["calls"])) or "one-tool"].append(case)
        elif case.response_format:
            pools["json-schema" if "json_schema" in case.response_format else "json-object"].append(case)
    return pools


def _kind(num_functions: int, num_calls: int) -> str:
    """Choosing one of several tools is none of the four kinds."""
    if num_calls > 1:
        return "parallel-tools"
    return "one-tool" if num_functions == num_calls == 1 else ""


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    parameters = _json_schema(function["parameters"])
    described = {"name": _wire_name(function["name"]), "description": function.get("description", "")}
    return {"type": "function", "function": {**described, "parameters": parameters}}


def _wire_name(name: str) -> str:
    """Tool names on the wire have no dots."""
    return name.replace(".", "_")


def _json_schema(node: Any) -> Any:
    """The leaderboard's types in JSON Schema's words, key order kept."""
    if isinstance(node, list):
        return [_json_schema(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {key: _keyword(key, value) for key, value in node.items() if (key, value) != ("type", "any")}


def _keyword(key: str, value: Any) -> Any:
    if key == "properties" and isinstance(value, Mapping):
        return {name: _json_schema(sub) for name, sub in value.items()}
    if key == "type" and isinstance(value, str):
        return _TYPES.get(value, value)
    return value if key in ("default", "enum", "description") else _json_schema(value)
