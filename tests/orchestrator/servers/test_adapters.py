"""The contract that every adapter keeps, against a service that has, lacks or misuses each route."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import ServerFailed, UsageError
from campaigns.plan import Arm, Fixture, Sampling, ServerPlan
from campaigns.routes import refusal_name
from orchestrator.checkouts.places import ROOT
from orchestrator.servers import adapters
from orchestrator.servers.adapters import Adapter, Ask, discover, open_adapter
from orchestrator.servers.adapters.dflash2 import flag_value

Answer = tuple[int, Any] | Callable[[Any], tuple[int, Any]]
PLAIN = Arm("plain")
CHAT = Fixture("sum", '{"messages": [{"role": "user", "content": "1+1 ✓"}], "tools": [{"z": 1, "a": 2}]}', (1,))
TEXT = Fixture("text", '{"prompt": "1+1"}', (1,), chat=False)
IDS = Fixture("ids", '{"prompt": [5, 6]}', (1,), chat=False)
NAMES = tuple(kind.name for kind in adapters._ADAPTERS)


class Service:
    """Answers routes as told, everything else with 404; keeps what it was asked."""

    def __init__(self, routes: dict[str, Answer]) -> None:
        self.asked: list[tuple[str, Any]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                route = f"{self.command} {self.path}"
                service.asked.append((route, body))
                found = routes.get(route, (404, {"detail": "Not Found"}))
                status, value = found(body) if callable(found) else found
                payload = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def do_GET(self) -> None:
                self.answer()

            def do_POST(self) -> None:
                self.answer()

            def do_PUT(self) -> None:
                self.answer()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def routes(self) -> list[str]:
        return [route for route, _ in self.asked]


@pytest.fixture
def service() -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def start(routes: dict[str, Answer] | None = None) -> Service:
        started.append(Service(routes or {}))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture(params=NAMES)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return open_adapter(request.param)


# -- every adapter -----------------------------------------------------------------------------------------------------


def test_names_are_the_ones_in_the_configuration(adapter: Adapter) -> None:
    assert open_adapter(adapter.name).name == adapter.name


def test_unknown_adapter_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"server\.adapter=ollama: use one of dflash2, command, attach"):
        open_adapter("ollama")


def test_body_passes_the_fixture_on_byte_for_byte(adapter: Adapter) -> None:
    path, body = adapter.body(Ask(CHAT, 7, 99, Sampling(0.5, 4, 0.9, 0.1), "tiny"))
    assert path == "/v1/chat/completions"
    assert CHAT.body[1:-1].encode() in body
    asked = json.loads(body)
    assert list(asked["tools"][0]) == ["z", "a"]
    expected = {
        "model": "tiny",
        "seed": 7,
        "max_tokens": 99,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.9,
        "min_p": 0.1,
    }
    assert asked.items() >= expected.items()
    assert asked["stream"] is True
    assert asked["stream_options"] == {"include_usage": True}
    assert asked["return_token_ids"] is True
    assert ("return_round_details" in asked) == (adapter.name == "dflash2")


def test_a_profile_is_asked_for_where_the_server_has_one(adapter: Adapter) -> None:
    asked = json.loads(adapter.body(Ask(TEXT, 1, 8, Sampling(), "tiny", profile=True))[1])
    assert asked.get("profile", False) == (adapter.name == "dflash2") == (adapter.profile_fields is not None)
    assert "profile" not in json.loads(adapter.body(Ask(TEXT, 1, 8, Sampling(), "tiny"))[1])


def test_completions_go_to_completions(adapter: Adapter) -> None:
    path, body = adapter.body(Ask(IDS, 1, 8, Sampling(), "tiny"))
    assert (path, json.loads(body)["prompt"]) == ("/v1/completions", [5, 6])


def test_fixture_may_not_decide_what_the_campaign_decides(adapter: Adapter) -> None:
    fixture = replace(TEXT, body='{"prompt": "x", "seed": 3, "max_tokens": 4}')
    with pytest.raises(UsageError, match="fixture text: max_tokens, seed belongs to the campaign"):
        adapter.body(Ask(fixture, 1, 8, Sampling(), "tiny"))


def test_server_that_lacks_everything_is_measured_all_the_same(
    adapter: Adapter, service: Callable[..., Service]
) -> None:
    server = service()
    assert adapter.counters(server.url) is None
    assert adapter.identity(server.url) == {}
    assert adapter.tokenize(server.url, TEXT, "tiny") is None
    assert adapter.max_model_len(server.url) is None
    adapter.reset_cache(server.url)
    found = discover(adapter, server.url, TEXT, "tiny")
    assert found.missing() == ("identity", "counters", "tokenize", "max_model_len")


def test_server_that_answers_every_path_with_a_page(adapter: Adapter, service: Callable[..., Service]) -> None:
    routes = ["GET /v1/models", "POST /tokenize", "GET /campaign/counters", "GET /campaign/identity"]
    server = service(dict.fromkeys(routes, (200, b"<html>hello</html>")))
    assert adapter.max_model_len(server.url) is None
    assert adapter.tokenize(server.url, TEXT, "tiny") is None
    assert adapter.counters(server.url) is None
    assert adapter.identity(server.url) == {}


def test_server_that_does_not_answer(adapter: Adapter, service: Callable[..., Service]) -> None:
    server = service()
    server.stop()
    with pytest.raises(ServerFailed, match="does not answer GET /v1/models"):
        adapter.max_model_len(server.url)


def test_tokenize_asks_for_the_prompt_as_the_model_sees_it(adapter: Adapter, service: Callable[..., Service]) -> None:
    server = service({"POST /tokenize": (200, {"tokens": [1, 2, 3], "count": 3})})
    assert adapter.tokenize(server.url, CHAT, "tiny") == (1, 2, 3)
    _, asked = server.asked[0]
    assert asked == {"model": "tiny", "add_generation_prompt": True, **json.loads(CHAT.body)}
    assert adapter.tokenize(server.url, TEXT, "tiny") == (1, 2, 3)
    assert server.asked[1][1] == {"model": "tiny", "prompt": "1+1"}


def test_prompt_of_ids_needs_no_tokenizer(adapter: Adapter, service: Callable[..., Service]) -> None:
    server = service()
    assert adapter.tokenize(server.url, IDS, "tiny") == (5, 6)
    assert server.asked == []


def test_capacity_is_what_the_server_says(adapter: Adapter, service: Callable[..., Service]) -> None:
    assert adapter.max_model_len(service({"GET /v1/models": (200, {"data": [{"max_model_len": 128}]})}).url) == 128
    assert adapter.max_model_len(service({"GET /v1/models": (200, {"data": [{"id": "m"}]})}).url) is None
    assert adapter.max_model_len(service({"GET /v1/models": (200, {"data": []})}).url) is None


def test_routes_stand_below_the_base_path(adapter: Adapter, service: Callable[..., Service]) -> None:
    server = service({"GET /engine/v1/models": (200, {"data": [{"max_model_len": 64}]})})
    assert adapter.max_model_len(server.url + "/engine/") == 64


# -- other dialects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["command", "attach"])
@pytest.mark.parametrize(
    "answer", [(200, {"tokens": []}), (200, {"tokens": ["a"]}), (200, [1]), (422, {"detail": "content is required"})]
)
def test_tokenize_of_another_dialect_is_none_of_ours(
    name: str, answer: Answer, service: Callable[..., Service]
) -> None:
    assert open_adapter(name).tokenize(service({"POST /tokenize": answer}).url, TEXT, "tiny") is None


def test_our_own_server_may_not_refuse_to_tokenize(service: Callable[..., Service]) -> None:
    server = service({"POST /tokenize": (400, {"error": {"message": "no such template"}})})
    with pytest.raises(ServerFailed, match="POST /tokenize: HTTP 400: no such template"):
        open_adapter("dflash2").tokenize(server.url, CHAT, "tiny")


_METRICS = b"""# HELP vllm:inter_token_latency_seconds Inter-token latency.
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01"} 90.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="tiny"} 120.0
vllm:inter_token_latency_seconds_count{engine="1",model_name="tiny"} 7.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="tiny"} 1.5
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 33.0
vllm:spec_decode_num_accepted_tokens_created{engine="0"} 1.7e9
"""


@pytest.mark.parametrize("name", ["command", "attach"])
def test_counters_of_vllm(name: str, service: Callable[..., Service]) -> None:
    found = open_adapter(name).counters(service({"GET /metrics": (200, _METRICS)}).url)
    assert found == {"engine/decode-steps": 127, "speculation/accepted": 33}


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b"other_total 3\n"), (500, b"")])
def test_metrics_without_counters_of_ours(answer: Answer, service: Callable[..., Service]) -> None:
    assert open_adapter("command").counters(service({"GET /metrics": answer}).url) is None


# -- starting ----------------------------------------------------------------------------------------------------------


def test_command_is_filled_and_arms_are_laid_over_it(tmp_path: Path) -> None:
    plan = ServerPlan(
        "command",
        model="tiny/model",
        command=("serve", "{model}", "--port={port}", "--log", "{workdir}/log", '{"a": {"b": 1}}'),
        args=("--quiet",),
        env=(("A", "1"), ("B", "1")),
    )
    launch = open_adapter("command").launch(plan, (Arm("on", env=(("B", "2"),), args=("--spec", "{}")),), 81, tmp_path)
    assert launch is not None
    filled = ("serve", "tiny/model", "--port=81", "--log", f"{tmp_path}/log", '{"a": {"b": 1}}', "--quiet")
    assert launch.argv == (*filled, "--spec", "{}")
    assert launch.env == {"A": "1", "B": "2"}


def test_an_arms_tree_is_where_its_words_say_and_first_on_our_own_servers_path(tmp_path: Path) -> None:
    plan = ServerPlan("command", command=("serve", "{tree}/x", "{port}"), env=(("HOME", "{tree}/home"),))
    launch = open_adapter("command").launch(plan, (Arm("a", tree="/one"),), 80, tmp_path)
    assert launch is not None and launch.argv == ("serve", "/one/x", "80") and launch.env == {"HOME": "/one/home"}
    plan = ServerPlan("dflash2", model="runtime/checkpoints/nano", env=(("PYTHONPATH", "/more"),))
    launch = open_adapter("dflash2").launch(plan, (Arm("a", tree="/one"),), 80, tmp_path)
    assert launch is not None and launch.env == {"PYTHONPATH": "/one:/more"}
    with pytest.raises(UsageError, match="differ in env, args or tree"):
        open_adapter("dflash2").launch(plan, (Arm("a", tree="/one"), Arm("b", tree="/two")), 80, tmp_path)


def test_model_that_is_a_folder_becomes_absolute(tmp_path: Path) -> None:
    plan = ServerPlan("command", model="conf", command=("serve", "{model}", "{port}"))
    launch = open_adapter("command").launch(plan, (PLAIN,), 81, tmp_path)
    assert launch is not None
    assert launch.argv == ("serve", str(ROOT / "conf"), "81")


@pytest.mark.parametrize("name", ["command", "dflash2"])
def test_arms_that_one_server_cannot_be(name: str, tmp_path: Path) -> None:
    plan = ServerPlan(name, model="conf", command=("serve", "{port}"))
    arms = (PLAIN, Arm("other", args=("--fast",)))
    with pytest.raises(UsageError, match="startup=co_resident or startup=sequential"):
        open_adapter(name).launch(plan, arms, 81, tmp_path)
    assert open_adapter(name).launch(plan, arms[1:], 81, tmp_path) is not None


@pytest.mark.parametrize("name", ["command", "attach"])
def test_schedules_mean_nothing_to_a_foreign_server(name: str, tmp_path: Path) -> None:
    plan = ServerPlan(name, command=("serve", "{port}"), base_url="http://127.0.0.1:1")
    with pytest.raises(UsageError, match=f"arm fast names schedules, and server.adapter={name} has none"):
        open_adapter(name).launch(plan, (Arm("fast", schedules=(("projection", "tile"),)),), 81, tmp_path)
    with pytest.raises(UsageError, match=f"arm none names speculation, and server.adapter={name} has none"):
        open_adapter(name).launch(plan, (Arm("none", speculation="none"),), 81, tmp_path)


def test_attach_starts_nothing(tmp_path: Path) -> None:
    attach = open_adapter("attach")
    assert attach.launch(ServerPlan("attach", base_url="http://127.0.0.1:1"), (PLAIN, PLAIN), 81, tmp_path) is None
    with pytest.raises(UsageError, match=r"server\.base_url is empty"):
        attach.launch(ServerPlan("attach"), (PLAIN,), 81, tmp_path)
    with pytest.raises(UsageError, match="cannot reach a server that already runs"):
        attach.launch(ServerPlan("attach", base_url="http://x"), (Arm("on", args=("-x",)),), 81, tmp_path)


def test_command_needs_a_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"server\.command is empty"):
        open_adapter("command").launch(ServerPlan("command"), (PLAIN,), 81, tmp_path)


def test_own_server_starts_with_this_python(tmp_path: Path) -> None:
    plan = ServerPlan("dflash2", model="conf", args=("--threads", "1"))
    launch = open_adapter("dflash2").launch(plan, (PLAIN, PLAIN), 81, tmp_path)
    assert launch is not None
    own = (sys.executable, "-m", "runtime.server", "--model", str(ROOT / "conf"), "--port", "81")
    assert launch.argv == (*own, "--threads", "1")


# -- our campaign routes -----------------------------------------------------------------------------------------------

FAST = Arm("fast", schedules=(("projection", "columns-64"),))


def test_select_puts_the_arm_and_reads_it_back(service: Callable[..., Service]) -> None:
    state: dict[str, Any] = {}

    def put(body: Any) -> tuple[int, Any]:
        state.update(body)
        return 200, state

    server = service({"PUT /campaign/arm": put, "GET /campaign/arm": lambda _: (200, state)})
    open_adapter("dflash2").select(server.url, FAST)
    assert state == {"name": "fast", "schedules": {"projection": "columns-64"}}
    assert server.routes() == ["PUT /campaign/arm", "GET /campaign/arm"]


@pytest.mark.parametrize(
    "told", [{"speculation": "dflash"}, {"speculation": "none", "num_speculative_tokens": 4}, {}], ids=str
)
def test_server_that_drafts_otherwise(service: Callable[..., Service], told: dict[str, Any]) -> None:
    arm = Arm("a", speculation="none" if told else "lookup", num_speculative_tokens=3 if len(told) > 1 else None)
    server = service(
        {"PUT /campaign/arm": (200, {}), "GET /campaign/arm": (200, {"name": "a", "schedules": {}, **told})}
    )
    with pytest.raises(ServerFailed, match="reads back"):
        open_adapter("dflash2").select(server.url, arm)


@pytest.mark.parametrize(
    "live",
    [
        {"name": "fast", "schedules": {"projection": "other"}},
        {"name": "slow", "schedules": {"projection": "columns-64"}},
    ],
)
def test_server_that_ignores_the_switch(service: Callable[..., Service], live: dict[str, Any]) -> None:
    asked = {"name": "fast", "schedules": {"projection": "columns-64"}}
    server = service({"PUT /campaign/arm": (200, asked), "GET /campaign/arm": (200, live)})
    with pytest.raises(ServerFailed, match="reads back"):
        open_adapter("dflash2").select(server.url, FAST)


def test_server_that_refuses_or_lacks_the_switch(service: Callable[..., Service]) -> None:
    busy = service({"PUT /campaign/arm": (409, {"error": {"message": "a request runs"}})})
    with pytest.raises(ServerFailed, match="HTTP 409: a request runs"):
        open_adapter("dflash2").select(busy.url, FAST)
    with pytest.raises(ServerFailed, match="reads back None"):
        open_adapter("dflash2").select(service().url, FAST)


def test_counters_are_summed_over_ranks(service: Callable[..., Service]) -> None:
    hits = [(0, "projection", "a", 3), (1, "projection", "a", 4), (0, "attention", "b", 5)]
    entries = [dict(zip(("rank", "operator", "schedule", "hits"), hit, strict=True)) for hit in hits]
    server = service({"GET /campaign/counters": (200, {"counters": entries})})
    assert open_adapter("dflash2").counters(server.url) == {"projection/a": 7, "attention/b": 5}


def test_refusals_are_counters_with_a_reason(service: Callable[..., Service]) -> None:
    hit = {"rank": 0, "operator": "attention", "schedule": "b", "hits": 5}
    refused = [(0, "41 rows; 1 to 8", 3), (1, "41 rows; 1 to 8", 4), (0, "q is float64", 1)]
    rows = [{"rank": r, "operator": "attention", "schedule": "c", "reason": why, "calls": n} for r, why, n in refused]
    server = service({"GET /campaign/counters": (200, {"counters": [hit], "refusals": rows})})
    assert open_adapter("dflash2").counters(server.url) == {
        "attention/b": 5,
        refusal_name("attention", "c", "41 rows; 1 to 8"): 7,
        refusal_name("attention", "c", "q is float64"): 1,
    }


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("", None),
        ("--device cuda", "cuda"),
        ("--device=cuda --threads 2", "cuda"),
        ("--device=cuda --device cpu", "cpu"),
        ("--device-name cuda", None),
        ("--device", None),
    ],
)
def test_the_last_value_of_a_flag_holds(words: str, value: str | None) -> None:
    assert flag_value(words.split(), "--device") == value


def test_identity_is_passed_on(service: Callable[..., Service]) -> None:
    server = service({"GET /campaign/identity": (200, {"server": "dflash2"})})
    assert open_adapter("dflash2").identity(server.url) == {"server": "dflash2"}


def test_calls_between_requests_share_a_connection(wire: Any) -> None:
    arm = json.dumps({"name": "fast", "schedules": {"projection": "columns-64"}}).encode()
    counters = json.dumps({"counters": []}).encode()

    def answer(body: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    server, adapter = (
        wire.serve([answer(arm)], [answer(arm)], [answer(counters), wire.CLOSE], [answer(arm)]),
        open_adapter("dflash2"),
    )
    adapter.select(server.url, FAST)
    assert adapter.counters(server.url) == {}
    assert server.num_connections == 1
    adapter.select(server.url, FAST)  # the idle connection was closed: a new one, and no error
    assert (server.num_connections, len(server.requests)) == (2, 5)


# -- caches of an attached server --------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["/reset_prefix_cache", "/flush_cache"])
def test_attached_caches_are_emptied_by_the_route_that_works(service: Callable[..., Service], route: str) -> None:
    server, attach = service({f"POST {route}": (200, b"")}), open_adapter("attach")
    for _ in range(3):
        attach.reset_cache(server.url)
    assert server.routes().count(f"POST {route}") == 3
    assert len(server.asked) <= 4


def test_attached_server_without_a_route_is_asked_once(service: Callable[..., Service]) -> None:
    server, attach = service(), open_adapter("attach")
    for _ in range(3):
        attach.reset_cache(server.url)
    assert len(server.asked) == 2


def test_attached_server_that_drops_unknown_routes_is_measured(wire: Any) -> None:
    server, attach = wire.serve([wire.CLOSE]), open_adapter("attach")
    for _ in range(2):
        attach.reset_cache(server.url)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([1], "not an object"),
        ({"counters": {"0": 1}}, "counters"),
        ({"counters": [None]}, r"counters\[0\] is null"),
        ({"counters": [{"operator": "p", "schedule": "s", "hits": "12"}]}, "hits is '12'"),
        ({"counters": [{"operator": "p", "schedule": "s", "hits": -1}]}, "hits is -1"),
        ({"counters": [{"operator": 5, "schedule": "s", "hits": 1}]}, "operator is 5"),
    ],
)
def test_counters_of_another_shape_are_the_servers_fault(
    service: Callable[..., Service], answer: Any, told: str
) -> None:
    told_by = service({"GET /campaign/counters": (200, answer)})
    with pytest.raises(ServerFailed, match=told):
        open_adapter("dflash2").counters(told_by.url)


@pytest.mark.parametrize("answer", [["x"], {"libraries": "none"}, {"libraries": [None]}, {"made_weights": [1]}])
def test_an_identity_of_another_shape_is_the_servers_fault(service: Callable[..., Service], answer: Any) -> None:
    with pytest.raises(ServerFailed, match="/campaign/identity"):
        open_adapter("dflash2").identity(service({"GET /campaign/identity": (200, answer)}).url)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-4", "1e300"])
def test_metrics_that_are_no_counts_are_absent(service: Callable[..., Service], value: str) -> None:
    text = f"vllm:inter_token_latency_seconds_count {value}\nvllm:spec_decode_num_drafts_total 7\n"
    assert open_adapter("command").counters(service({"GET /metrics": (200, text.encode())}).url) == {
        "speculation/drafts": 7
    }


@pytest.mark.parametrize("answer", [[1], {"data": [None]}, {"data": "small"}, {"data": [{"max_model_len": "8"}]}])
def test_models_of_another_shape_say_no_length(service: Callable[..., Service], answer: Any) -> None:
    assert open_adapter("command").max_model_len(service({"GET /v1/models": (200, answer)}).url) is None


@pytest.mark.parametrize("tokens", [[1, 2**70], [1, -1], [1.0], ["1"], [True], "12", [None]])
def test_tokens_of_another_shape_are_none(service: Callable[..., Service], tokens: Any) -> None:
    told_by = service({"POST /tokenize": (200, {"tokens": tokens})})
    assert open_adapter("command").tokenize(told_by.url, TEXT, "m") is None


@pytest.mark.parametrize("route", ["/version", "/server_info", "/get_server_info"])
def test_a_foreign_server_tells_its_version(service: Callable[..., Service], route: str) -> None:
    """vLLM's route, and SGLang's, which tells much more; a text in the place of an object is no version."""
    server = service({f"GET {route}": (200, {"version": "0.32.0", "served": 1})})
    assert open_adapter("command").identity(server.url) == {"version": "0.32.0"}
    assert open_adapter("attach").identity(service({f"GET {route}": (200, ["0.32.0"])}).url) == {}
