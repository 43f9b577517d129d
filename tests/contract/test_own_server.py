"""The client and our own server, each with its own reading of docs/wire.md, over a real socket."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from campaigns.errors import ServerFailed
from campaigns.exactness.compare import compare
from campaigns.hashes import token_sha256
from campaigns.plan import Arm, Fixture, PairKey, Phase, Role, Sampling, ServerPlan
from campaigns.records import Exactness, Request
from orchestrator.checkouts.places import CONF, ROOT
from orchestrator.measuring.client import Call, Client
from orchestrator.measuring.observe import Context, observe
from orchestrator.measuring.stream import read
from orchestrator.preparation.prompts import Checkpoint
from orchestrator.servers.adapters import Ask, discover, open_adapter

MODEL = ROOT / yaml.safe_load((CONF / "server" / "embedded.yaml").read_text())["model"]
CHAT = Fixture("sum", json.dumps({"messages": [{"role": "user", "content": "What is 17 + 25?"}]}), (1,))
ARMS = (Arm("narrow", (("projection", "columns-32"),)), Arm("wide", (("projection", "columns-128"),)))
PUBLIC = Sampling()
MAX_TOKENS = 32
DRAFTING = (Arm("drafts-3", speculation="dflash", num_speculative_tokens=3), Arm("alone", speculation="none"))
ADAPTER = open_adapter("dflash2")


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder: Path = tmp_path_factory.mktemp("server")
    launch = ADAPTER.launch(ServerPlan("dflash2", model=str(MODEL)), ARMS, port, folder)
    assert launch is not None
    with (folder / "log").open("w") as log, subprocess.Popen(launch.argv, cwd=folder, stdout=log, stderr=log) as server:
        try:
            _await_ready(f"http://127.0.0.1:{port}/health", server, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _await_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(log.read_text()[-3000:])


def served_name(base_url: str) -> str:
    with urllib.request.urlopen(f"{base_url}/v1/models") as answer:
        return str(json.load(answer)["data"][0]["id"])


def ask(
    base_url: str,
    client: Client,
    fixture: Fixture,
    arm: Arm,
    role: Role = Role.CONTROL,
    seed: int = 1,
    sampling: Sampling = PUBLIC,
) -> Request:
    ADAPTER.select(base_url, arm)
    before = ADAPTER.counters(base_url)
    path, body = ADAPTER.body(Ask(fixture, seed, MAX_TOKENS, sampling, served_name(base_url)))
    exchange = client.call(Call(base_url, path, body, 60.0))
    after = ADAPTER.counters(base_url)
    assert before is not None and after is not None
    hits = {name: count - before.get(name, 0) for name, count in after.items()}
    context = Context(
        "c", 0, 0, PairKey(0, fixture.id, seed, 0), 0, role, arm.name, Phase.MEASURE, 0, 0, MAX_TOKENS, hits
    )
    return observe(exchange, read(exchange.events), context)


def test_every_identity_holds(base_url: str, client: Client) -> None:
    request = ask(base_url, client, CHAT, ARMS[0])
    assert (request.admissible, request.error) == (True, "")
    assert request.n_rounds and len(request.rounds) == request.n_rounds + request.n_q1_steps
    assert [row.client_tokens for row in request.rounds] == [row.emitted for row in request.rounds]
    assert request.engine_decode_ns and request.engine_decode_ns >= sum(row.engine_ns or 0 for row in request.rounds)
    assert request.cached_tokens == 0


def test_server_saw_the_prompt_that_was_counted_before_the_lease(base_url: str, client: Client) -> None:
    checkpoint = Checkpoint.open(MODEL)
    assert checkpoint is not None
    ids = checkpoint.ids(CHAT)
    assert ADAPTER.tokenize(base_url, CHAT, "") == ids
    request = ask(base_url, client, CHAT, ARMS[0])
    assert request.prompt_sha256 == token_sha256(ids)
    assert request.prompt_tokens == len(ids)


def test_arms_agree_and_take_their_own_schedule(base_url: str, client: Client) -> None:
    control, candidate = (ask(base_url, client, CHAT, arm, role) for arm, role in zip(ARMS, Role, strict=True))
    pair = compare(control, candidate, Exactness.ACCEPTANCE)
    assert pair.admissible and pair.exactness >= Exactness.ACCEPTANCE
    for request, arm, other in ((control, *ARMS), (candidate, *reversed(ARMS))):
        [(operator, schedule)], [(_, foreign)] = arm.schedules, other.schedules
        assert request.counters[f"{operator}/{schedule}"] > 0
        assert request.counters.get(f"{operator}/{foreign}", 0) == 0


def test_seed_decides(base_url: str, client: Client) -> None:
    fixture = replace(CHAT, body=json.dumps({"messages": [{"role": "user", "content": "Tell me something."}]}))
    answers = {ask(base_url, client, fixture, ARMS[0], seed=seed).token_sha256 for seed in (1, 1, 2, 3)}
    assert 2 <= len(answers) <= 3


def test_prompt_of_ids(base_url: str, client: Client) -> None:
    ids = ADAPTER.tokenize(base_url, CHAT, "")
    assert ids is not None
    text = Fixture("ids", json.dumps({"prompt": list(ids)}), (1,), chat=False)
    assert ask(base_url, client, text, ARMS[0]).token_sha256 == ask(base_url, client, CHAT, ARMS[0]).token_sha256


def test_unknown_schedule_is_refused_by_name(base_url: str) -> None:
    with pytest.raises(ServerFailed, match="no-such-schedule"):
        ADAPTER.select(base_url, Arm("wrong", (("projection", "no-such-schedule"),)))


def test_an_arm_without_drafts_says_the_same_tokens_one_by_one(base_url: str, client: Client) -> None:
    greedy = Sampling(temperature=0.0)
    drafted, alone = (ask(base_url, client, CHAT, arm, sampling=greedy) for arm in DRAFTING)
    assert drafted.token_sha256 == alone.token_sha256
    assert drafted.n_rounds and (alone.n_rounds, alone.n_q1_steps) == (0, alone.completion_tokens - 1)


def test_nothing_is_missing(base_url: str) -> None:
    assert discover(ADAPTER, base_url, CHAT, "").missing() == ()
