"""The OpenAPI description that the server gives of itself at `/openapi.json`.

It says what bodies may hold; what they must mean is checked in `runtime.http.requests.order`. Knows no running server.
"""

from __future__ import annotations

from typing import Any

from runtime.speculation.modes import MODES

Schema = dict[str, Any]


def _object(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _between(kind: str, low: float, high: float) -> Schema:
    return {"type": kind, "minimum": low, "maximum": high}


STRING, BOOLEAN, IDS = {"type": "string"}, {"type": "boolean"}, _array({"type": "integer", "minimum": 0})
STRINGS = {"oneOf": [STRING, _array({"type": "string", "minLength": 1})]}
FUNCTION = _object({"name": STRING, "description": STRING, "parameters": {"type": "object"}}, ("name",))
TOOL = _object({"type": {"const": "function"}, "function": FUNCTION}, ("type", "function"))
ROLES = {"enum": ["system", "developer", "user", "assistant", "tool"]}
MESSAGE = _object({"role": ROLES, "content": STRING, "tool_calls": _array({"type": "object"})}, ("role",))
MESSAGES = {**_array(MESSAGE), "minItems": 1}
FORMAT = _object(
    {"type": {"enum": ["text", "json_object", "json_schema"]}, "json_schema": {"type": "object"}}, ("type",)
)
CHOICE = {"oneOf": [{"enum": ["none", "auto", "required"]}, TOOL]}
SPECULATION = {"enum": list(MODES)}
GENERATION: Schema = {
    "model": STRING,
    "max_tokens": _between("integer", 1, 1 << 18),
    "temperature": _between("number", 0, 2),
    "top_k": {"type": "integer", "minimum": -1},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "min_p": _between("number", 0, 1),
    "seed": _between("integer", -(1 << 63), (1 << 63) - 1),
    "presence_penalty": _between("number", -2, 2),
    "frequency_penalty": _between("number", -2, 2),
    "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 100},
    "logit_bias": {"type": "object", "additionalProperties": _between("number", -100, 100)},
    "stop": STRINGS,
    "stop_token_ids": IDS,
    "ignore_eos": BOOLEAN,
    "stream": BOOLEAN,
    "stream_options": _object({"include_usage": BOOLEAN, "continuous_usage_stats": BOOLEAN}),
    "min_tokens": {"type": "integer", "minimum": 0},
    "allowed_token_ids": {**IDS, "minItems": 1},
    "bad_words": STRINGS,
    "include_stop_str_in_output": BOOLEAN,
    "skip_special_tokens": BOOLEAN,
    "add_special_tokens": BOOLEAN,
    "truncate_prompt_tokens": {"type": "integer", "minimum": 1},
    "structured_outputs": {"type": "object"},
    "response_format": FORMAT,
    "logprobs_mode": {"enum": ["raw_logprobs", "processed_logprobs"]},
    "return_tokens_as_token_ids": BOOLEAN,
    "speculation": SPECULATION,
    "num_speculative_tokens": _between("integer", 1, 15),
    "return_token_ids": BOOLEAN,
    "return_round_details": BOOLEAN,
    "profile": BOOLEAN,
}
TEMPLATED: Schema = {"messages": MESSAGES, "tools": _array(TOOL), "chat_template_kwargs": {"type": "object"}}
CHAT: Schema = {
    **GENERATION,
    **TEMPLATED,
    "max_completion_tokens": _between("integer", 1, 1 << 18),
    "tool_choice": CHOICE,
    "parallel_tool_calls": BOOLEAN,
    "logprobs": BOOLEAN,
    "top_logprobs": _between("integer", 0, 20),
    "reasoning_effort": STRING,
    "add_generation_prompt": BOOLEAN,
    "continue_final_message": BOOLEAN,
}
ERROR = _object(
    {
        "error": _object(
            {"message": STRING, "type": STRING, "param": {}, "code": {}}, ("message", "type", "param", "code")
        )
    },
    ("error",),
)
ARM = _object(
    {
        "name": STRING,
        "schedules": {"type": "object", "additionalProperties": STRING},
        "speculation": SPECULATION,
        "num_speculative_tokens": _between("integer", 1, 15),
    },
    ("name", "schedules"),
)
PROMPT = {"oneOf": [STRING, IDS]}
COMPLETION: Schema = {**GENERATION, "prompt": PROMPT, "logprobs": _between("integer", 0, 20)}

# path, method, summary, body
_ROUTES: tuple[tuple[str, str, str, Schema | None], ...] = (
    ("/v1/completions", "post", "Continue a prompt", _object(COMPLETION, ("prompt",))),
    ("/v1/chat/completions", "post", "Answer a conversation", _object(CHAT, ("messages",))),
    ("/v1/models", "get", "The served model", None),
    ("/tokenize", "post", "Text or a conversation to ids", _object({"prompt": STRING, **TEMPLATED})),
    ("/detokenize", "post", "Ids to text", _object({"tokens": IDS}, ("tokens",))),
    ("/health", "get", "200 once a request can be served", None),
    ("/metrics", "get", "Prometheus metrics", None),
    ("/campaign/identity", "get", "Hashes, mapped libraries, processes", None),
    ("/campaign/arm", "get", "The selected schedules", None),
    ("/campaign/arm", "put", "Select schedules", ARM),
    ("/campaign/counters", "get", "Runs and refusals of each schedule since start", None),
)


def description(version: str) -> Schema:
    paths: dict[str, Schema] = {}
    for path, method, summary, body in _ROUTES:
        paths.setdefault(path, {})[method] = _operation(summary, body)
    return {"openapi": "3.1.0", "info": {"title": "DFlash2 server", "version": version}, "paths": paths}


def _operation(summary: str, body: Schema | None) -> Schema:
    refusal = {"description": "refused", "content": {"application/json": {"schema": ERROR}}}
    operation: Schema = {"summary": summary, "responses": {"200": {"description": "done"}, "4XX": refusal}}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation
