"""Bad input: OpenAI's error shape, the right status, one sentence, and a server that goes on."""

import contextlib
import http.client
import json
import re
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from runtime.http.errors import TYPES

ROOT = Path(__file__).resolve().parents[3]
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]
BAD_BODIES = {
    "not-json": (PLAIN, b"{", 400, "JSON"),
    "not-an-object": (PLAIN, b"[]", 400, "object"),
    "deep-nesting": (PLAIN, b'{"prompt":' + b"[" * 50000 + b"]" * 40000, 400, ""),
    "not-utf8": (PLAIN, b'{"prompt": "\xff"}', 400, "JSON"),
    "half-surrogate": (PLAIN, b'{"prompt": "\\ud800"}', 400, "surrogate"),
    "no-prompt": (PLAIN, {}, 400, "prompt"),
    "empty-prompt": (PLAIN, {"prompt": ""}, 400, "empty"),
    "id-beyond-vocabulary": (PLAIN, {"prompt": [5, 2560]}, 400, "2560"),
    "boolean-id": (PLAIN, {"prompt": [True]}, 400, "true"),
    "two-prompts": (PLAIN, {"prompt": ["a", "b"]}, 400, "batches are not supported"),
    "prompt-too-long": (PLAIN, {"prompt": [5] * 1024}, 400, "1024"),
    "no-room": (PLAIN, {"prompt": [5] * 1000, "max_tokens": 100}, 400, "max_tokens=100"),
    "zero-tokens": (PLAIN, {"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
    "hot": (PLAIN, {"prompt": "a", "temperature": 3}, 400, "temperature"),
    "nan": (PLAIN, b'{"prompt": "a", "temperature": NaN}', 400, "temperature"),
    "more-than-a-float-holds": (PLAIN, {"prompt": "a", "temperature": 10**400}, 400, "temperature"),
    "top-p-zero": (PLAIN, {"prompt": "a", "top_p": 0}, 400, "top_p"),
    "top-k-text": (PLAIN, {"prompt": "a", "top_k": "20"}, 400, "top_k"),
    "seed-too-large": (PLAIN, {"prompt": "a", "seed": 2**64}, 400, "seed"),
    "two-answers": (PLAIN, {"prompt": "a", "n": 2}, 400, "n=2"),
    "too-many-logprobs": (PLAIN, {"prompt": "a", "logprobs": 21}, 400, "from 0 to 20"),
    "logprobs-of-a-chat": (PLAIN, {"prompt": "a", "logprobs": True}, 400, "logprobs must be an integer"),
    "alternatives-of-nothing": (CHAT, {"messages": HELLO, "top_logprobs": 3}, 400, "logprobs=true"),
    "unknown-logprobs": (PLAIN, {"prompt": "a", "logprobs": 1, "logprobs_mode": "raw_logits"}, 400, "raw_logprobs or"),
    "nothing-allowed": (PLAIN, {"prompt": "a", "allowed_token_ids": []}, 400, "allowed_token_ids is empty"),
    "long-bad-word": (PLAIN, {"prompt": "a", "bad_words": ["a" * 257]}, 400, "bad_words"),
    "two-forms": (PLAIN, {"prompt": "a", "guided_regex": "a", "guided_choice": ["b"]}, 400, "one form"),
    "form-and-format": (
        CHAT,
        {"messages": HELLO, "structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        400,
        "one form",
    ),
    "no-choice": (PLAIN, {"prompt": "a", "guided_choice": []}, 400, "choices"),
    "broken-regex": (PLAIN, {"prompt": "a", "guided_regex": "a("}, 400, "cannot be followed"),
    "broken-grammar": (PLAIN, {"prompt": "a", "guided_grammar": "root ::= ("}, 400, "no grammar"),
    "schema-that-is-no-json": (PLAIN, {"prompt": "a", "guided_json": "{"}, 400, "not JSON"),
    "structural-tag": (PLAIN, {"prompt": "a", "structured_outputs": {"structural_tag": "{}"}}, 400, "structural_tag"),
    "min-tokens-of-a-form": (PLAIN, {"prompt": "a", "guided_regex": "a", "min_tokens": 3}, 400, "together"),
    "messages-of-a-chat": (PLAIN, {"prompt": "a", "messages": HELLO}, 400, "/v1/chat/completions"),
    "prompt-of-a-completion": (CHAT, {"messages": HELLO, "prompt": "a"}, 400, "/v1/completions"),
    "effort": (CHAT, {"messages": HELLO, "reasoning_effort": "high"}, 400, "reasoning_effort"),
    "penalty": (PLAIN, {"prompt": "a", "frequency_penalty": 2.5}, 400, "frequency_penalty"),
    "no-repetition": (PLAIN, {"prompt": "a", "repetition_penalty": 0}, 400, "repetition_penalty must be above 0"),
    "bias-list": (PLAIN, {"prompt": "a", "logit_bias": [1]}, 400, "logit_bias must be an object"),
    "bias-of-a-word": (PLAIN, {"prompt": "a", "logit_bias": {"the": 1}}, 400, "token ids from 0 to 2559, not 'the'"),
    "bias-beyond-vocabulary": (PLAIN, {"prompt": "a", "logit_bias": {"2560": 1}}, 400, "2560"),
    "bias-of-a-long-number": (PLAIN, {"prompt": "a", "logit_bias": {"9" * 5000: 1}}, 400, "logit_bias"),
    "bias-too-large": (PLAIN, {"prompt": "a", "logit_bias": {"5": 101}}, 400, "between -100 and 100"),
    "prompt-logprobs": (PLAIN, {"prompt": "a", "prompt_logprobs": 1}, 400, "send logprobs"),
    "structural-tag-format": (
        CHAT,
        {"messages": HELLO, "response_format": {"type": "structural_tag", "structures": [], "triggers": []}},
        400,
        "structural_tag",
    ),
    "nothing-to-continue": (
        CHAT,
        {"messages": [{"role": "assistant"}], "continue_final_message": True},
        400,
        "text to continue",
    ),
    "continued-and-begun": (
        CHAT,
        {"messages": HELLO, "continue_final_message": True, "add_generation_prompt": True},
        400,
        "add_generation_prompt",
    ),
    "continued-completion": (PLAIN, {"prompt": "a", "continue_final_message": True}, 400, "/v1/chat/completions"),
    "empty-stop": (PLAIN, {"prompt": "a", "stop": [""]}, 400, "stop"),
    "options-without-stream": (PLAIN, {"prompt": "a", "stream_options": {"include_usage": True}}, 400, "stream=true"),
    "other-model": (PLAIN, {"prompt": "a", "model": "gpt"}, 404, "gpt"),
    "no-messages": (CHAT, {}, 400, "messages"),
    "unknown-role": (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, 400, "role"),
    "image-part": (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "text parts"),
    "reserved-template-word": (CHAT, {"messages": HELLO, "chat_template_kwargs": {"messages": []}}, 400, "may not set"),
    "tokenize-nothing": ("/tokenize", {}, 400, "prompt or messages"),
    "detokenize-text": ("/detokenize", {"tokens": "abc"}, 400, "tokens"),
    "too-large": (PLAIN, b" " * 100001, 413, "100000"),
}


@pytest.mark.parametrize("case", BAD_BODIES, ids=list(BAD_BODIES))
def test_bad_bodies(server: Any, case: str) -> None:
    path, body, status, words = BAD_BODIES[case]
    reply = server.ask("POST", path, body)
    assert reply.status == status, reply.body
    error = reply.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert words in error["message"] and "\n" not in error["message"]
    assert server.ask("GET", "/health").status == 200


def test_other_requests_go_on_while_a_long_text_is_tokenised(start: Any) -> None:
    """A megabyte takes a second or more, and its thread holds neither the event loop nor the interpreter."""
    with start("--max-model-len=64") as server:
        asked = threading.Thread(target=server.ask, args=("POST", "/tokenize", {"prompt": "ab " * 400_000}))
        began = time.monotonic()
        asked.start()
        answered = [began]
        while asked.is_alive():
            assert server.ask("GET", "/health").status == 200
            answered.append(time.monotonic())
        waited = max(later - earlier for earlier, later in pairwise(answered))
        assert waited < (answered[-1] - began) / 2


def test_unknown_routes_and_methods(server: Any) -> None:
    lists = "/openapi.json lists the routes"
    for method, path, status, remedy in (("GET", "/v1/nothing", 404, lists), ("GET", PLAIN, 405, "use POST")):
        reply = server.ask(method, path)
        assert reply.status == status and reply.json["error"]["message"].endswith(f"; {remedy}")
    assert server.ask("DELETE", "/campaign/arm").status == 405


def test_the_contract_lists_every_status_with_its_type() -> None:
    table = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", (ROOT / "docs/wire.md").read_text(), re.MULTILINE)
    assert {int(status): kind for status, kind in table} == TYPES


def test_no_bad_request_left_a_trace_in_the_log(server: Any) -> None:
    server.ask("POST", PLAIN, b"{")
    assert "Traceback" not in server.log.read_text()


def test_a_client_that_leaves_frees_the_engine(server: Any) -> None:
    """900 tokens would take far longer than the rounds that pass before the engine hears of it."""
    forever = {"prompt": "a b c", "max_tokens": 900, "ignore_eos": True, "seed": 1}
    events = server.events(PLAIN, **forever)
    next(events)
    events.close()
    began = time.monotonic()
    assert server.ask("POST", PLAIN, {"prompt": "a", "max_tokens": 2}).status == 200
    with_stream = time.monotonic() - began
    leave_without_streaming(server, forever)
    assert server.ask("POST", PLAIN, {"prompt": "a", "max_tokens": 2}).status == 200
    metrics = server.ask("GET", "/metrics").body.decode()
    aborted = next(line for line in metrics.splitlines() if 'request_success_total{finished_reason="abort"' in line)
    assert float(aborted.split()[-1]) >= 2, with_stream


def until(server: Any, what: str, count: int) -> None:
    """That many requests are `running` or `waiting`; fails by the test's own time limit."""
    while samples(server)[f"vllm:num_requests_{what}"] != count:
        time.sleep(0.02)


def leave_without_streaming(server: Any, body: dict[str, Any]) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        connection.request("POST", PLAIN, json.dumps(body))
        until(server, "running", 1)


def test_a_full_queue_answers_429(server: Any) -> None:
    """One runs, two wait (the fixture's limit), the next is turned away; the waiting ones are served in order."""
    events = server.events(PLAIN, prompt="a", max_tokens=900, ignore_eos=True)
    next(events)
    order: list[str] = []
    waiting = [threading.Thread(target=ask_and_note, args=(server, name, order)) for name in ("first", "second")]
    for n, thread in enumerate(waiting, 1):
        thread.start()
        until(server, "waiting", n)
    refused = server.ask("POST", PLAIN, {"prompt": "a", "max_tokens": 1})
    assert refused.status == 429 and refused.json["error"]["type"] == "rate_limit_error"
    events.close()
    for thread in waiting:
        thread.join()
    assert order == ["first", "second"]


def ask_and_note(server: Any, name: str, order: list[str]) -> None:
    if server.ask("POST", PLAIN, {"prompt": "a", "max_tokens": 1}).status == 200:
        order.append(name)


def test_metrics_count_what_the_stream_said(server: Any) -> None:
    before = samples(server)
    body = {"prompt": "Ida has 5 pears.", "max_tokens": 30, "seed": 2, "ignore_eos": True, "return_round_details": True}
    rounds = server.ask("POST", PLAIN, body).json["metrics"]["rounds"]
    after = samples(server)
    gained = {name: after[name] - before.get(name, 0) for name in after}
    spec = [entry for entry in rounds if entry["kind"] == "spec"]
    assert gained["vllm:spec_decode_num_drafts_total"] == len(spec)
    assert gained["vllm:spec_decode_num_draft_tokens_total"] == sum(entry["drafted"] for entry in spec)
    assert gained["vllm:spec_decode_num_accepted_tokens_total"] == sum(entry["accepted"] for entry in spec)
    by_position = [gained[f"vllm:spec_decode_num_accepted_tokens_per_pos_total/{i}"] for i in range(7)]
    assert sum(by_position) == sum(entry["accepted"] for entry in spec)
    assert by_position == sorted(by_position, reverse=True)
    assert gained["vllm:generation_tokens_total"] == 30
    assert gained["vllm:request_decode_time_seconds_count"] == 1
    assert gained["vllm:request_decode_time_seconds_sum"] > 0 < gained["vllm:request_prefill_time_seconds_sum"]


def samples(server: Any) -> dict[str, float]:
    found = {}
    for line in server.ask("GET", "/metrics").body.decode().splitlines():
        name, _, value = line.rpartition(" ")
        if not name or line.startswith("#") or "le=" in name:
            continue
        position = name.partition('position="')[2].partition('"')[0]
        found[name.partition("{")[0] + (f"/{position}" if position else "")] = float(value)
    return found
