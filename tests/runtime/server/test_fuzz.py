"""Bodies drawn from the served OpenAPI description, and bodies that break it: never a 500, always its error shape."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What the schema allows, kept small."""
    if "oneOf" in schema:
        return st.one_of(*map(values, schema["oneOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    match schema.get("type"):
        case "string":
            return st.text(min_size=schema.get("minLength", 0), max_size=12)
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -9), min(schema.get("maximum", 2600), 2600))
        case "number":
            return st.floats(schema.get("minimum", 0.01), schema.get("maximum", 1.0))
        case "array":
            return st.lists(values(schema["items"]), min_size=schema.get("minItems", 0), max_size=3)
        case "object" if "properties" in schema:
            return objects(schema)
        case "object":
            return st.dictionaries(st.text(max_size=6), ANYTHING, max_size=2)
    return ANYTHING


def objects(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Right objects; in one of three, one field holds anything at all."""
    fields = {name: values(sub) for name, sub in schema["properties"].items()}
    required = {name: fields[name] for name in schema.get("required", ())}
    optional = {name: value for name, value in fields.items() if name not in required}
    right = st.fixed_dictionaries(required, optional=optional)
    names = st.sampled_from(sorted(fields))
    spoilt = st.tuples(right, names, ANYTHING).map(lambda parts: parts[0] | {parts[1]: parts[2]})
    return st.one_of(right, right, spoilt)


def bodies(server: Any) -> list[tuple[str, str, dict[str, Any]]]:
    paths = server.ask("GET", "/openapi.json").json["paths"]
    return [
        (path, method.upper(), operation["requestBody"]["content"]["application/json"]["schema"])
        for path, operations in paths.items()
        for method, operation in operations.items()
        if "requestBody" in operation
    ]


def check(server: Any, method: str, path: str, body: Any) -> None:
    reply = server.ask(method, path, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert reply.status < 500, (path, body, reply.body)
    if reply.status >= 400:
        assert set(reply.json["error"]) == {"message", "type", "param", "code"}, (path, body)
    elif b"data: " in reply.body:
        assert b'"server_error"' not in reply.body, (path, body, reply.body)


def test_every_described_route_exists(server: Any) -> None:
    paths = server.ask("GET", "/openapi.json").json["paths"]
    for path, operations in paths.items():
        for method in operations:
            assert server.ask(method.upper(), path, b"{}" if method != "get" else None).status not in (404, 405, 500)


@pytest.mark.acceptance
def test_described_and_spoilt_bodies_never_break_the_server(server: Any) -> None:
    routes = bodies(server)
    assert {path for path, _, _ in routes} >= {"/v1/completions", "/v1/chat/completions", "/tokenize", "/campaign/arm"}
    drawn = st.one_of(*[st.tuples(st.just(m), st.just(p), values(schema)) for p, m, schema in routes])

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(drawn)
    def run(request: tuple[str, str, Any]) -> None:
        method, path, body = request
        if isinstance(body, dict) and "completions" in path:
            body = {**body, "max_tokens": 3, "max_completion_tokens": 3}
        check(server, method, path, body)

    run()
    server.ask("PUT", "/campaign/arm", {"name": "default", "schedules": {}})
    assert "Traceback" not in server.log.read_text()
    assert server.ask("GET", "/health").status == 200


@pytest.mark.acceptance
def test_random_bytes_never_break_the_server(server: Any) -> None:
    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from([path for path, _, _ in bodies(server) if path != "/campaign/arm"]), st.binary(max_size=200))
    def run(path: str, raw: bytes) -> None:
        check(server, "POST", path, raw)

    run()
    assert "Traceback" not in server.log.read_text()
