"""The `openai` package against the server: plain, streaming, async, tools, structured answers."""

import asyncio
import json
from typing import Any

import pytest

QUESTION = {"role": "user", "content": "Ida has 14 pears and gives 5 pears to Leo. How many pears are left?"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of one city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "enum": ["Oslo", "Rome"]},
                "days": {"type": "integer", "maximum": 9},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
ORDER = {
    "type": "object",
    "properties": {"item": {"enum": ["lamp", "chair"]}, "count": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["item", "count"],
    "additionalProperties": False,
}


@pytest.fixture
def client(server: Any) -> Any:
    import openai  # half a second that nobody else need pay

    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as made:
        yield made


def ask(client: Any, **changes: Any) -> Any:
    return client.chat.completions.create(**{"model": "nano", "messages": [QUESTION], "seed": 4, **changes})


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["nano"]
    assert client.models.retrieve("nano").id == "nano"


def test_whole_and_streamed_answers_agree(client: Any) -> None:
    whole = ask(client)
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_plain_completions(client: Any) -> None:
    arguments = {"model": "nano", "prompt": "Leo has 3", "max_tokens": 20, "seed": 1}
    whole = client.completions.create(**arguments)
    streamed = client.completions.create(**arguments, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text


def test_async_requests_are_served_one_by_one(server: Any) -> None:
    import openai

    async def both() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none") as client:
            asked = (client.chat.completions.create(model="nano", messages=[QUESTION], seed=4) for _ in range(3))
            answers = await asyncio.gather(*asked)
        return [answer.choices[0].message.content for answer in answers]

    first, second, third = asyncio.run(both())
    assert first == second == third


def test_errors_become_the_packages_own_exceptions(client: Any) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="gpt-9"):
        ask(client, model="gpt-9")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        ask(client, temperature=9)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_required_tool_is_called_with_valid_arguments(client: Any, stream: bool) -> None:
    arguments = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, "stream": stream}
    for seed in range(2):
        ((name, said),), reason = calls_of(ask(client, seed=seed, **arguments), stream)
        assert reason == "tool_calls" and name == "get_weather"
        given = json.loads(said)
        assert given["city"] in ("Oslo", "Rome") and given.keys() <= {"city", "days"}


def calls_of(answer: Any, stream: bool) -> tuple[list[tuple[str, str]], str]:
    if not stream:
        choice = answer.choices[0]
        return [
            (call.function.name, call.function.arguments) for call in choice.message.tool_calls
        ], choice.finish_reason
    calls: dict[int, list[str]] = {}
    for chunk in answer:
        for call in chunk.choices[0].delta.tool_calls or []:
            name, said = calls.setdefault(call.index, ["", ""])
            calls[call.index] = [name + (call.function.name or ""), said + (call.function.arguments or "")]
        reason = chunk.choices[0].finish_reason
    return [(name, said) for name, said in calls.values()], reason


def test_the_named_tool_is_the_one_called(client: Any) -> None:
    choice = {"type": "function", "function": {"name": "get_time"}}
    quick = {"chat_template_kwargs": {"enable_thinking": False}}
    answer = ask(client, tools=[WEATHER, TIME], tool_choice=choice, extra_body=quick, max_tokens=300)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_time" and call.type == "function" and call.id.startswith("call_")


def test_no_tool_is_offered_when_none_may_be_called(client: Any) -> None:
    offered = ask(client, tools=[WEATHER], max_tokens=1).usage.prompt_tokens
    withheld = ask(client, tools=[WEATHER], tool_choice="none", max_tokens=1).usage.prompt_tokens
    assert withheld == ask(client, max_tokens=1).usage.prompt_tokens < offered


def test_a_tool_result_goes_back_into_the_conversation(client: Any) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    history = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    answer = ask(client, messages=history, tools=[WEATHER], max_tokens=5)
    assert answer.usage.prompt_tokens > ask(client, max_tokens=1).usage.prompt_tokens


@pytest.mark.parametrize("thinking", [True, False], ids=["behind-reasoning", "at-once"])
def test_a_schema_is_kept_under_speculation(client: Any, thinking: bool) -> None:
    """The model would like to name the customer first; the schema has no place for that."""
    form = {"type": "json_schema", "json_schema": {"name": "order", "strict": True, "schema": ORDER}}
    extra = {"return_round_details": True, "chat_template_kwargs": {"enable_thinking": thinking}}
    order = [{"role": "user", "content": "Write this order as JSON: Emil orders 3 of the item lamp."}]
    drafted = []
    for seed in range(2):
        answer = ask(client, messages=order, response_format=form, seed=seed, max_tokens=400, extra_body=extra)
        value = json.loads(answer.choices[0].message.content)
        assert value["item"] in ("lamp", "chair") and 1 <= value["count"] <= 99 and len(value) == 2
        drafted += [entry["drafted"] for entry in answer.metrics["rounds"]]
    assert drafted and min(drafted) < 7 and max(drafted) <= 7


def test_a_json_object_is_an_object(client: Any) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    person = [{"role": "user", "content": "Return a JSON object with name and age. Text: Mia is 30 years old."}]
    answer = ask(client, messages=person, response_format={"type": "json_object"}, max_tokens=100, extra_body=extra)
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


BAD = {
    "unknown-format": ({"response_format": {"type": "xml"}}, "json_schema"),
    "no-schema": ({"response_format": {"type": "json_schema", "json_schema": {}}}, "schema"),
    "impossible-schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}}},
        "objekt",
    ),
    "schema-without-a-first-token": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}, "stream": True},
        "response_format cannot be followed",
    ),
    "unlisted-tool": ({"tools": [TIME], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
    "required-without-tools": ({"tool_choice": "required"}, "tool_choice"),
    "nameless-tool": ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
    "tool-twice": ({"tools": [TIME, TIME]}, "different names"),
    "tool-schema": (
        {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": 3}}}],
            "tool_choice": "required",
        },
        "tools",
    ),
}


@pytest.mark.parametrize("case", BAD, ids=list(BAD))
def test_what_cannot_be_constrained_is_refused(server: Any, case: str) -> None:
    fields, words = BAD[case]
    reply = server.ask("POST", "/v1/chat/completions", {"messages": [QUESTION], "max_tokens": 2, **fields})
    assert reply.status == 400 and words in reply.json["error"]["message"], reply.body
