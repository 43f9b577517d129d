"""How a server drafts, chosen on its command line, per arm and per request; and a checkpoint that has no drafter."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.http.requests.speculation import MaxDrafts, read_speculation
from runtime.text.generation import Speculation

ROOT = Path(__file__).resolve().parents[3]
CHECKPOINT = ROOT / "runtime/checkpoints/nano"
ASKED = {"prompt": "Ida has 5 pears and buys 4 more.", "max_tokens": 16, "temperature": 0, "ignore_eos": True}


# The embedded model copies it into its thoughts and again behind them.
SEVENS = {"role": "user", "content": f"Say this again: {', '.join(str(7 * i) for i in range(1, 21))}"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare") / "model"
    shutil.copytree(CHECKPOINT, folder, ignore=shutil.ignore_patterns("drafter"))
    return folder


def said(server: Any, **body: Any) -> tuple[str, list[tuple[str, int]]]:
    """The text, and the kind and drafts of every round."""
    reply = server.ask("POST", "/v1/completions", {**ASKED, "return_round_details": True, **body})
    assert reply.status == 200, reply.body
    rounds = reply.json["metrics"]["rounds"]
    return reply.json["choices"][0]["text"], [(entry["kind"], entry["drafted"]) for entry in rounds]


def drafted(server: Any, **body: Any) -> set[tuple[str, int]]:
    return set(said(server, **body)[1])


@pytest.mark.parametrize(
    "count", [n if n in (1, 3, 7) else pytest.param(n, marks=pytest.mark.acceptance) for n in range(1, 8)]
)
def test_a_request_chooses_how_many_drafts(server: Any, count: int) -> None:
    text, rounds = said(server, num_speculative_tokens=count)
    assert text == said(server)[0] and set(rounds) == {("spec", count)}


def test_a_request_chooses_the_kind(server: Any) -> None:
    text, rounds = said(server, speculation="none")
    assert set(rounds) == {("q1", 0)} and len(rounds) == 15
    assert text == said(server, speculation="dflash")[0] == said(server, speculation="lookup")[0]
    repeated = {"prompt": "seven red lamps and " * 12, "max_tokens": 20}
    plain, with_history = (len(said(server, speculation=kind, **repeated)[1]) for kind in ("dflash", "lookup"))
    assert with_history <= plain


@pytest.fixture
def restored(server: Any) -> Iterator[Any]:
    yield server
    server.ask("PUT", "/campaign/arm", {"name": "default", "schedules": {}})


def test_an_arm_chooses_for_requests_that_say_nothing(restored: Any) -> None:
    def select(**body: Any) -> Any:
        reply = restored.ask("PUT", "/campaign/arm", {"name": "a", "schedules": {}, **body})
        assert reply.status == 200, reply.body
        assert reply.json == restored.ask("GET", "/campaign/arm").json
        return reply.json

    assert select(speculation="none")["speculation"] == "none" and drafted(restored) == {("q1", 0)}
    assert drafted(restored, speculation="dflash", num_speculative_tokens=2) == {("spec", 2)}
    told = select(num_speculative_tokens=3)
    assert (told["speculation"], told["num_speculative_tokens"]) == ("dflash", 3), "nothing of the arm before is left"
    assert drafted(restored) == {("spec", 3)} and drafted(restored, speculation="none") == {("q1", 0)}
    assert select()["num_speculative_tokens"] == 7 and drafted(restored) == {("spec", 7)}


REFUSALS = {
    "unknown": ({"speculation": "eagle"}, "dflash, lookup, none"),
    "too-many": ({"num_speculative_tokens": 8}, "from 1 to 7"),
    "sixteen-rows": ({"speculation": "lookup", "num_speculative_tokens": 15}, "with --lookup-rows 16"),
    "none-at-all": ({"num_speculative_tokens": 0}, "from 1 to 7"),
    "contradiction": ({"speculation": "none", "num_speculative_tokens": 2}, "says nothing"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_makes_no_sense_is_refused_by_requests_and_arms(server: Any, case: str) -> None:
    body, words = REFUSALS[case]
    arm = {"name": "a", "schedules": {}}
    for reply in (
        server.ask("POST", "/v1/completions", {**ASKED, **body}),
        server.ask("PUT", "/campaign/arm", {**arm, **body}),
    ):
        assert reply.status == 400 and words in reply.json["error"]["message"], reply.body
    assert server.ask("GET", "/campaign/arm").json["name"] == "default"


def test_a_checkpoint_without_a_drafter_serves_undrafted(start: Any, server: Any, bare: Path) -> None:
    with start("--max-model-len=1024", model=bare) as alone:
        assert said(alone) == said(server, speculation="none")
        assert alone.ask("GET", "/campaign/arm").json["speculation"] == "none"
        identity = alone.ask("GET", "/campaign/identity").json
        assert (identity["draft_weights_sha256"], identity["block_size"]) == ("", 1)
        refused = alone.ask("POST", "/v1/completions", {**ASKED, "speculation": "dflash"})
        assert refused.status == 400 and "no drafter" in refused.json["error"]["message"]
        assert alone.ask("GET", "/metrics").status == 200


def test_the_command_line_chooses_for_arms_that_say_nothing(told: Any) -> None:
    assert drafted(told) == {("spec", 2)} and drafted(told, num_speculative_tokens=5) == {("spec", 5)}
    arm = {"name": "a", "schedules": {}, "speculation": "none"}
    assert told.ask("PUT", "/campaign/arm", arm).status == 200 and drafted(told) == {("q1", 0)}
    told.ask("PUT", "/campaign/arm", {"name": "b", "schedules": {}})
    assert drafted(told) == {("spec", 2)} and drafted(told, speculation="lookup") == {("spec", 2)}


def test_a_mode_that_is_named_alone_keeps_no_more_drafts_than_it_has() -> None:
    most, wide, plain = MaxDrafts(7, 15), Speculation("lookup", 15), Speculation("dflash", 7)
    assert read_speculation({"speculation": "dflash"}, wide, most) == plain
    assert read_speculation({"speculation": "lookup"}, plain, most) == Speculation("lookup", 7)
    assert read_speculation({}, wide, most) == read_speculation({"speculation": "lookup"}, wide, most) == wide


def test_sixteen_rows_are_for_those_who_ask(told: Any) -> None:
    """Request, arm, record and metrics of a second block; the answer is that of eight rows."""

    def rounds(**body: Any) -> tuple[list[int], list[dict[str, Any]]]:
        form = {"messages": [SEVENS], "temperature": 0, "return_round_details": True, "return_token_ids": True}
        reply = told.ask("POST", "/v1/chat/completions", {**form, **body})
        assert reply.status == 200, reply.body
        return reply.json["choices"][0]["token_ids"], reply.json["metrics"]["rounds"]

    def accepted() -> dict[int, float]:
        lines = told.ask("GET", "/metrics").body.decode().splitlines()
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total{"
        found = [line for line in lines if line.startswith(name)]
        return {int(line.split('position="')[1].split('"')[0]): float(line.split()[-1]) for line in found}

    before = accepted()
    tokens, narrow = rounds(speculation="lookup", num_speculative_tokens=7)
    assert {entry["rows"] for entry in narrow} == {8} and len(before) == 15
    again, wide = rounds(speculation="lookup", num_speculative_tokens=15)
    assert again == tokens and len(wide) < len(narrow)
    assert {(entry["rows"], entry["drafted"]) for entry in wide} >= {(8, 7), (16, 15)}
    every = narrow + wide
    counted = {at: accepted()[at] - before[at] for at in range(15)}
    assert counted == {at: sum(entry["accepted"] > at for entry in every) for at in range(15)} and counted[14] > 0

    arm = {"name": "a", "schedules": {}, "speculation": "lookup", "num_speculative_tokens": 15}
    selected = told.ask("PUT", "/campaign/arm", arm)
    assert selected.status == 200 and selected.json == arm == told.ask("GET", "/campaign/arm").json
    assert rounds()[1] and max(entry["rows"] for entry in rounds()[1]) == 16
    assert {entry["rows"] for entry in rounds(speculation="dflash")[1]} == {8}, "the drafter has no more"
    refused = told.ask("PUT", "/campaign/arm", {**arm, "speculation": "dflash"})
    assert refused.status == 400 and "from 1 to 7, not 15; up to 15 are for" in refused.json["error"]["message"]


@pytest.mark.acceptance
def test_every_token_of_sixteen_rows_is_transformers_best(told: Any, oracle_logits: Any) -> None:
    form = {"messages": [SEVENS], "temperature": 0, "return_token_ids": True, "return_round_details": True}
    drafting = {"speculation": "lookup", "num_speculative_tokens": 15}
    reply = told.ask("POST", "/v1/chat/completions", {**form, **drafting}).json
    tokens = reply["choices"][0]["token_ids"]
    assert max(entry["accepted"] for entry in reply["metrics"]["rounds"]) == 15
    for token, row in zip(tokens, oracle_logits(reply["prompt_token_ids"], tokens), strict=True):
        assert row[token] > row.max() - 1e-3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num-speculative-tokens=8"], "num_speculative_tokens must be an integer from 1 to 7, not 8"),
        pytest.param(
            ["--speculation=none", "--num-speculative-tokens=2"],
            "says nothing where speculation is none",
            marks=pytest.mark.acceptance,
        ),
    ],
)
def test_a_command_line_that_cannot_be_served(words: list[str], said: str) -> None:
    command = [sys.executable, "-m", "runtime.server", "--model", str(CHECKPOINT), "--port", "0", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and said in done.stderr
