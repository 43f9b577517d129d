"""Every field that a client may know is honoured, refused or without effect on the answer; none is dropped unseen."""

import json
import math
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from tokenizers import Tokenizer
from torch import Tensor

from runtime.http import openapi
from runtime.http.requests import known
from runtime.http.requests.order import ModelCard, chat_order, completion_order
from runtime.text.generation import Speculation

CHECKPOINT = Path(__file__).resolve().parents[3] / "runtime/checkpoints/nano"
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Ida has 5 pears and buys 4 more. How many pears has she?"}]
# Every field of vLLM's two requests (vllm/entrypoints/openai, 002032ee), and what its documentation had before.
VLLM = """use_beam_search top_k min_p repetition_penalty length_penalty stop_token_ids include_stop_str_in_output
    ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens prompt_logprobs
    allowed_token_ids bad_words echo add_generation_prompt continue_final_message add_special_tokens documents
    chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs structured_outputs guided_json guided_regex
    guided_choice guided_grammar guided_whitespace_pattern guided_decoding_backend priority request_id
    return_tokens_as_token_ids return_token_ids cache_salt kv_transfer_params vllm_xargs logits_processors
    include_reasoning prompt_embeds watermarking truncation_side logprob_token_ids thinking_token_budget session_id
    routed_experts_prompt_start return_token_offsets return_prompt_text return_mm_kwargs ec_transfer_params
    repetition_detection stream_interval frequency_penalty presence_penalty logit_bias response_format seed stop
    stream stream_options temperature top_p user suffix n max_tokens model logprobs"""
VLLM_CHAT = ["messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"]
# One value that would change the answer, for each name that is refused; the rest follow from their type.
ASKING = {"n": 2, "best_of": 2, "modalities": ["audio"], "function_call": "auto", "truncation_side": "right"}
ASKING |= {"stream_interval": 2, "thinking_token_budget": 20, "routed_experts_prompt_start": 1}


def declared(*kinds: Any) -> set[str]:
    """The fields that TypedDicts declare, those of their bases included."""
    return set().union(*(get_type_hints(kind) for kind in kinds))


def test_every_field_that_openais_package_and_vllm_declare_is_known() -> None:
    from openai.types import chat as of_chat  # half a second of imports
    from openai.types import completion_create_params as of_text

    params = of_chat.completion_create_params
    chat = declared(params.CompletionCreateParamsBase, params.CompletionCreateParamsStreaming)
    plain = declared(of_text.CompletionCreateParamsBase, of_text.CompletionCreateParamsStreaming)
    assert {"messages", "logit_bias", "stream", "n"} <= chat and {"prompt", "echo", "stream"} <= plain
    assert known.check(dict.fromkeys(chat), known.CHAT) == () == known.check(dict.fromkeys(plain), known.PLAIN)
    assert known.check(dict.fromkeys([*VLLM.split(), *VLLM_CHAT]), known.CHAT) == ()
    assert known.check(dict.fromkeys([*VLLM.split(), "prompt"]), known.PLAIN) == ()
    assert known.check({"frobnicate": 1, "user": "u"}, known.CHAT) == ("frobnicate",)


class Read(dict[str, Any]):
    """A body that notes the names that somebody looks for."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(body)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


@pytest.mark.parametrize(
    ("order", "path", "dialect", "body"),
    [(completion_order, PLAIN, known.PLAIN, {"prompt": "a"}), (chat_order, CHAT, known.CHAT, {"messages": HELLO})],
)
def test_every_field_that_is_honoured_is_looked_for_and_described(
    order: Any, path: str, dialect: frozenset[str], body: dict[str, Any]
) -> None:
    """vLLM's former `guided_*` are understood, and its newer names alone described."""
    asked, honoured = Read(body), known._GENERATION | dialect
    order(asked, ModelCard.read(CHECKPOINT, "nano", 512, Speculation(), 7))
    assert asked.names == honoured
    told = openapi.description("1")["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert told["properties"].keys() == {name for name in honoured if not name.startswith("guided_")}


def test_every_field_of_openais_stream_options_is_known(server: Any) -> None:
    from openai.types.chat import ChatCompletionStreamOptionsParam

    options = dict.fromkeys(declared(ChatCompletionStreamOptionsParam), False)
    assert len(options) >= 2
    assert server.stream(CHAT, messages=HELLO, max_tokens=1, stream_options=options).done
    asked = {"prompt": "a", "max_tokens": 1, "stream": True, "stream_options": {"include_usag": True}}
    reply = server.ask("POST", PLAIN, asked)
    assert reply.status == 400 and "include_usag" in reply.json["error"]["message"]


def test_what_cannot_be_done_is_refused_by_name(server: Any) -> None:
    for name, neutral in known._REFUSED.items():
        asking = ASKING.get(name, True if False in neutral else "x" if "" in neutral else 0.5 if neutral else "x")
        asking = False if True in neutral and name.startswith(("include", "spaces")) else asking
        for path, body in ((CHAT, {"messages": HELLO}), (PLAIN, {"prompt": "a"})):
            reply = server.ask("POST", path, {**body, "max_tokens": 1, name: asking})
            assert (reply.status, reply.json["error"]["param"]) == (400, name), reply.body
            assert known._INSTEAD.get(name, "") in reply.json["error"]["message"]
    neutral_values = {name: values[0] for name, values in known._REFUSED.items() if values}
    assert server.ask("POST", PLAIN, {"prompt": "a", "max_tokens": 1, **neutral_values}).status == 200
    assert known._INSTEAD.keys() <= known._REFUSED.keys()


def test_unknown_names_are_reported(server: Any) -> None:
    body = {"prompt": "a", "max_tokens": 1, "frobnicate": 1, 'g"ünther': 2}
    reply = server.ask("POST", PLAIN, body)
    assert reply.status == 200
    assert reply.headers["Warning"] == "299 dflash2 \"ignored unknown fields: 'frobnicate', 'g\\'\\u00fcnther'\""
    assert server.ask("POST", PLAIN, {"prompt": "a", "max_tokens": 1, "user": "me"}).headers["Warning"] is None


def said(server: Any, path: str = PLAIN, **body: Any) -> Any:
    prompt = {"messages": HELLO} if path == CHAT else {"prompt": "Ida has 5 pears."}
    reply = server.ask("POST", path, {**prompt, "max_tokens": 40, "temperature": 0, **body})
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]


FORMS = {
    "choice": ({"choice": ['yes "indeed"', "no/never"]}, r'yes "indeed"|no/never'),
    "regex": ({"regex": r"^(north|south)/\d{3}$"}, r"(north|south)/\d{3}"),
    "gbnf": ({"grammar": 'root ::= "go " [a-c] [a-c] "!"'}, r"go [a-c]{2}!"),
    "lark": ({"grammar": 'start: "left" | "right" NUMBER\nNUMBER: /[0-9]{1,2}/\n'}, r"left|right[0-9]{1,2}"),
    "json": ({"json": json.dumps({"enum": [12, 13]})}, r"12|13"),
    "json-object": ({"json_object": True}, r"(?s)\{.*"),
}


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("path", [PLAIN, CHAT])
@pytest.mark.parametrize("form", FORMS)
def test_forms(server: Any, form: str, path: str, temperature: int) -> None:
    asked, pattern = FORMS[form]
    bodies = [{"structured_outputs": asked}]
    if form not in ("json-object",):
        bodies.append({f"guided_{kind}": value for kind, value in asked.items()})
    for body in bodies:
        quiet = {"chat_template_kwargs": {"enable_thinking": False}} if path == CHAT else {}
        choice = said(server, path, temperature=temperature, seed=5, **body, **quiet)
        text = choice["message"]["content"] if path == CHAT else choice["text"]
        assert re.fullmatch(pattern, text), text


CLOSED = {"additionalProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {
    "flat": {"properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]},
    "empty": {"properties": {}},
    "array": {"properties": {"a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 4}}, "required": ["a"]},
    "array-of-objects": {
        "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}, "minItems": 2, "maxItems": 3}},
        "required": ["rows"],
        "$defs": {"row": {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], **CLOSED}},
    },
    "nested": {
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"], **CLOSED}}
    },
    "text": {"properties": {"name": {"type": "string", "maxLength": 12}}, "required": ["name"]},
    "number": {"properties": {"n": {"type": "integer", "minimum": 0, "maximum": 999}}, "required": ["n"]},
    "optional": {"properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}},
    "union": {"properties": {"a": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}, "required": ["a"]},
    "tuple": {"properties": {"a": {"type": "array", "prefixItems": [{"type": "boolean"}], "items": False}}},
}


# All ten take most of a minute.
QUICK = ("nested", "text")
TEN = [name if name in QUICK else pytest.param(name, marks=pytest.mark.acceptance) for name in SCHEMAS]


@pytest.mark.parametrize("name", TEN)
def test_a_schema_ends_and_white_space_is_bounded(server: Any, name: str) -> None:
    closed = {"type": "object", **CLOSED, **SCHEMAS[name]}
    form = {"type": "json_schema", "json_schema": {"name": name, "schema": closed}}
    answer = said(server, prompt="{\n\n\n\n", max_tokens=150, response_format=form)
    assert answer["finish_reason"] == "stop", answer["text"]
    assert isinstance(json.loads(answer["text"]), dict) and not re.search(r"\n\s*\n|  \n", answer["text"])


def test_white_space_is_compact_or_free_on_request(server: Any) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
    compact = said(server, structured_outputs={"json": schema, "disable_any_whitespace": True})["text"]
    assert re.fullmatch(r"\[(true|false),(true|false)\]", compact)
    free = said(server, prompt="[\n\n\n", guided_json=schema, guided_whitespace_pattern="[ \n]*")["text"]
    assert re.match(r"\[[ \n]{5}", free), free


def test_a_bad_word_never_comes_whatever_tokens_spell_it(server: Any) -> None:
    free = said(server, CHAT, max_tokens=120)["message"]
    text = (free["reasoning"] or "") + (free["content"] or "")
    words = sorted(set(re.findall(r"[a-z]{3,}", text)), key=len)[:4]
    assert words, text
    banned = said(server, CHAT, max_tokens=120, bad_words=words)["message"]
    without = (banned["reasoning"] or "") + (banned["content"] or "")
    assert without and not any(word in without for word in words), (words, without)


def test_only_allowed_tokens_come(server: Any) -> None:
    allowed = list(range(20, 60))
    ids = said(server, temperature=2, seed=1, allowed_token_ids=allowed, return_token_ids=True)["token_ids"]
    assert len(ids) == 40 and set(ids) <= set(allowed) and len(set(ids)) > 1


def test_min_tokens_put_the_end_off(server: Any) -> None:
    quiet = {"chat_template_kwargs": {"enable_thinking": False}, "return_token_ids": True}
    natural = said(server, CHAT, max_tokens=300, **quiet)
    count = len(natural["token_ids"])
    assert natural["finish_reason"] == "stop" and count < 250
    longer = said(server, CHAT, max_tokens=300, min_tokens=count + 9, **quiet)
    assert len(longer["token_ids"]) >= count + 9 and longer["token_ids"][: count - 1] == natural["token_ids"][:-1]


def test_where_text_and_prompt_are_cut(server: Any) -> None:
    whole = said(server)["text"]
    stop = whole[4:9]
    assert said(server, stop=stop)["text"] == whole[: whole.index(stop)]
    assert said(server, stop=stop, include_stop_str_in_output=True)["text"] == whole[: whole.index(stop) + 5]
    ids = said(server, prompt=[5, 6, 7, 8], truncate_prompt_tokens=3, return_token_ids=True)["prompt_token_ids"]
    assert ids == [6, 7, 8]
    quiet = {"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 300}
    told = said(server, CHAT, skip_special_tokens=False, **quiet)["message"]["content"]
    assert told == said(server, CHAT, **quiet)["message"]["content"] + "<|im_end|>"


@pytest.fixture(scope="module")
def reference(server: Any, oracle_logits: Any) -> tuple[list[int], list[int], Tensor]:
    """A sampled answer's prompt and ids, and transformers' logits of every one of its positions."""
    choice = said(server, temperature=0.8, top_k=5, top_p=0.9, seed=4, return_token_ids=True)
    prompt, ids = choice["prompt_token_ids"], choice["token_ids"]
    return prompt, ids, oracle_logits(prompt, ids)


SAMPLED = {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "seed": 4}


@pytest.mark.acceptance
def test_raw_logprobs_are_transformers_log_softmax(server: Any, reference: Any) -> None:
    _, ids, logits = reference
    told = said(server, **SAMPLED, logprobs=20, return_token_ids=True)
    assert told["token_ids"] == ids, "asking for log-probabilities changes no token"
    columns, expected = told["logprobs"], logits.double().log_softmax(-1)
    assert columns["token_logprobs"] == pytest.approx([float(expected[i, t]) for i, t in enumerate(ids)], abs=1e-3)
    assert [len(top) for top in columns["top_logprobs"]] == [len(set(top)) for top in columns["top_logprobs"]]
    for row, top in zip(expected, columns["top_logprobs"], strict=False):
        assert sorted(top.values())[-1] == pytest.approx(float(row.max()), abs=1e-3)
        assert len(top) in (20, 21)
    spelled = "".join(columns["tokens"])
    assert spelled.removesuffix("<|im_end|>") == said(server, **SAMPLED)["text"], "an end that was drawn has its column"
    assert columns["text_offset"][-1] == len(spelled) - len(columns["tokens"][-1])


@pytest.mark.acceptance
def test_processed_logprobs_are_of_the_law_that_was_drawn_from(server: Any, reference: Any) -> None:
    _, ids, logits = reference
    asked = {"logprobs": 20, "logprobs_mode": "processed_logprobs", "return_tokens_as_token_ids": True}
    columns = said(server, **SAMPLED, **asked)["logprobs"]
    for token, logprob, top, row in zip(
        ids, columns["token_logprobs"], columns["top_logprobs"], logits.double(), strict=False
    ):
        law = nucleus(row.tolist())
        assert {int(name.removeprefix("token_id:")): math.exp(p) for name, p in top.items()} == pytest.approx(
            law, abs=1e-3
        )
        assert math.exp(logprob) == pytest.approx(law[token], abs=1e-3)


def nucleus(logits: list[float]) -> dict[int, float]:
    """Temperature 0.8, the best 5, of them the shortest prefix that holds 0.9, in plain Python."""
    best = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:5]
    weights = [math.exp((logits[i] - logits[best[0]]) / 0.8) for i in best]
    law, held = {}, 0.0
    for token, weight in zip(best, weights, strict=True):
        if held >= 0.9:
            break
        law[token] = weight / sum(weights)
        held += law[token]
    return {token: p / sum(law.values()) for token, p in law.items()}


def test_logprobs_of_a_chat_stream_and_whole(server: Any) -> None:
    body = {"messages": HELLO, "max_tokens": 30, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    whole = server.ask("POST", CHAT, {**body, "return_token_ids": True}).json["choices"][0]
    entries = whole["logprobs"]["content"]
    assert len(entries) == len(whole["token_ids"]) == 30
    for entry in entries:
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"], "greedy draws the best"
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"] and len(entry["top_logprobs"]) == 2
    streamed = server.stream(CHAT, **body)
    assert [e for choice in streamed.choices if choice["logprobs"] for e in choice["logprobs"]["content"]] == entries
    plain = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).decode(whole["token_ids"])
    assert b"".join(bytes(entry["bytes"]) for entry in entries if entry["token"] != "</think>").decode() == plain


def test_logprobs_end_with_the_stop_string(server: Any) -> None:
    text = said(server)["text"]
    told = said(server, stop=text[9:12], logprobs=0, return_token_ids=True)
    assert len(told["logprobs"]["tokens"]) == len(told["token_ids"]) < 40


def test_the_models_created_time_is_a_time(server: Any) -> None:
    created = server.ask("GET", "/v1/models").json["data"][0]["created"]
    assert isinstance(created, int) and created > 1_700_000_000
