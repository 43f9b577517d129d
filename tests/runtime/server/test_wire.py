"""The contract of docs/wire.md, against a live server."""

from typing import Any

import pytest

QUESTION = "Hugo fills 4 boxes with 9 coins each. Ida takes 6 coins away. How many coins are left?"
SAMPLING = {"temperature": 1.0, "top_k": 20, "top_p": 0.95, "seed": 5}
DETAILS = {"return_token_ids": True, "return_round_details": True, "stream_options": {"include_usage": True}}


def chat(server: Any, **changes: Any) -> Any:
    body = {"messages": [{"role": "user", "content": QUESTION}], **SAMPLING, **DETAILS, **changes}
    return server.stream("/v1/chat/completions", **body)


def completion(server: Any, **changes: Any) -> Any:
    return server.stream("/v1/completions", **{"prompt": QUESTION, "max_tokens": 40, **SAMPLING, **DETAILS, **changes})


def test_health_models_and_limits(server: Any) -> None:
    assert server.ask("GET", "/health").status == 200
    (model,) = server.ask("GET", "/v1/models").json["data"]
    assert (model["id"], model["max_model_len"]) == ("nano", 1024)
    assert server.ask("GET", "/v1/models/nano").json["id"] == "nano"
    assert server.ask("GET", "/v1/models/other").status == 404


def test_tokenize_gives_the_ids_that_the_engine_sees(server: Any) -> None:
    counted = server.ask("POST", "/tokenize", {"prompt": QUESTION}).json
    assert counted["count"] == len(counted["tokens"]) and counted["max_model_len"] == 1024
    assert completion(server, max_tokens=1).choices[0]["prompt_token_ids"] == counted["tokens"]
    assert server.ask("POST", "/detokenize", {"tokens": counted["tokens"]}).json == {"prompt": QUESTION}
    messages = {"messages": [{"role": "user", "content": QUESTION}]}
    rendered = server.ask("POST", "/tokenize", messages).json["tokens"]
    assert chat(server, max_tokens=1).chunks[0]["prompt_token_ids"] == rendered
    named_like_a_parameter = {**messages, "chat_template_kwargs": {"self": 1}}
    assert server.ask("POST", "/tokenize", named_like_a_parameter).json["tokens"] == rendered
    quiet = {**messages, "chat_template_kwargs": {"enable_thinking": False}}
    assert server.ask("POST", "/tokenize", quiet).json["tokens"] != rendered


def test_one_chunk_is_one_round(server: Any) -> None:
    stream = completion(server)
    assert stream.done
    contents, metrics, usage = stream.choices, stream.last["metrics"], stream.last["usage"]
    assert stream.last["choices"] == []
    assert len(contents[0]["token_ids"]) == 1 and "prompt_token_ids" in contents[0]
    assert all("prompt_token_ids" not in choice for choice in contents[1:])
    assert [len(choice["token_ids"]) for choice in contents[1:]] == [r["emitted"] for r in metrics["rounds"]]
    assert usage["completion_tokens"] == len(stream.token_ids)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert [c["finish_reason"] for c in contents[:-1]] == [None] * (len(contents) - 1)
    assert contents[-1]["finish_reason"] in ("stop", "length")


def test_usage_so_far_in_every_chunk_on_request(server: Any) -> None:
    """As in vLLM; GuideLLM asks for it."""
    for path, body in (
        ("/v1/completions", {"prompt": QUESTION}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}),
    ):
        asked = {**body, "max_tokens": 20, "seed": 1, "return_token_ids": True}
        stream = server.stream(path, **asked, stream_options={"include_usage": True, "continuous_usage_stats": True})
        counted = 0
        for chunk in stream.chunks[:-1]:
            counted += len(chunk["choices"][0].get("token_ids", []))
            assert chunk["usage"]["completion_tokens"] == counted
        assert stream.last["usage"] == stream.chunks[-2]["usage"] and counted > 1
        quiet = server.stream(path, **asked, stream_options={"include_usage": True})
        assert all("usage" not in chunk for chunk in quiet.chunks[:-1]) and quiet.last["usage"] == stream.last["usage"]


def test_round_details_add_up(server: Any) -> None:
    metrics = chat(server).last["metrics"]
    for entry in metrics["rounds"]:
        parts = sum(entry[name] for name in ("draft_ns", "verify_ns", "sample_ns", "commit_ns"))
        assert 0 < parts <= entry["total_ns"]
        assert entry["kind"] == "q1" or (entry["rows"], entry["drafted"]) == (8, 7)
        assert 0 <= entry["emitted"] <= entry["accepted"] + 1
    assert sum(entry["total_ns"] for entry in metrics["rounds"]) <= metrics["decode_ns"]
    assert metrics["num_q1_steps"] == sum(entry["kind"] == "q1" for entry in metrics["rounds"])
    assert metrics["prefill_ns"] > 0 and metrics["queue_ns"] >= 0


def test_chat_opens_with_its_role_and_splits_reasoning(server: Any) -> None:
    stream = chat(server)
    assert stream.choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "token_ids" not in stream.choices[0]
    deltas = [choice["delta"] for choice in stream.choices[1:]]
    content = "".join(delta.get("content", "") for delta in deltas)
    reasoning = "".join(delta.get("reasoning", "") for delta in deltas)
    assert stream.choices[-1]["finish_reason"] == "stop"
    assert "boxed" in content and "=" in reasoning and "think>" not in content + reasoning
    whole = server.ask(
        "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}], **SAMPLING}
    )
    message = whole.json["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == (content, reasoning)


def test_same_seed_same_tokens_other_seed_other_tokens(server: Any) -> None:
    once, again, other = completion(server), completion(server), completion(server, seed=6)
    assert once.token_ids == again.token_ids != other.token_ids
    accepted = [[r["accepted"] for r in stream.last["metrics"]["rounds"]] for stream in (once, again)]
    assert accepted[0] == accepted[1]


def test_max_tokens_is_an_exact_cap_and_ignore_eos_passes_it_by(server: Any) -> None:
    capped = chat(server, max_tokens=9)
    assert len(capped.token_ids) == 9 and capped.choices[-1]["finish_reason"] == "length"
    long = chat(server, max_tokens=150, ignore_eos=True)
    assert len(long.token_ids) == 150 and long.choices[-1]["finish_reason"] == "length"


def test_stop_string_cuts_text_and_ids(server: Any) -> None:
    free = completion(server)
    text = "".join(choice["text"] for choice in free.choices)
    stop = text[12:15]
    stream = completion(server, stop=[stop])
    said = "".join(choice["text"] for choice in stream.choices)
    assert said == text[: text.index(stop)]
    assert stream.choices[-1]["finish_reason"] == "stop"
    assert stream.token_ids == free.token_ids[: len(stream.token_ids)]
    assert stream.last["usage"]["completion_tokens"] == len(stream.token_ids)


def test_details_are_given_on_request_only(server: Any) -> None:
    body = {"prompt": QUESTION, "max_tokens": 3, **SAMPLING}
    plain = server.stream("/v1/completions", **body)
    assert all(chunk["choices"] for chunk in plain.chunks) and "token_ids" not in plain.choices[0]
    whole = server.ask("POST", "/v1/completions", body).json
    assert "metrics" not in whole and "token_ids" not in whole["choices"][0]
    detailed = server.ask("POST", "/v1/completions", {**body, "return_token_ids": True, "return_round_details": True})
    assert len(detailed.json["choices"][0]["token_ids"]) == 3 and detailed.json["metrics"]["rounds"]


def test_a_token_id_prompt_is_taken_as_it_is(server: Any) -> None:
    ids = server.ask("POST", "/tokenize", {"prompt": QUESTION}).json["tokens"]
    assert completion(server, prompt=ids).token_ids == completion(server).token_ids


@pytest.mark.parametrize("near", [0, 1, 5])
def test_capacity_is_reached_exactly(server: Any, near: int) -> None:
    """Prompts that leave one to six tokens of room: narrow rounds and q1 steps at the end of the context."""
    prompt = [17] * (1024 - 1 - near)
    stream = completion(server, prompt=prompt, max_tokens=1 + near, ignore_eos=True)
    assert len(stream.token_ids) == 1 + near
    refused = server.ask("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 2 + near})
    assert refused.status == 400 and "1024" in refused.json["error"]["message"]
