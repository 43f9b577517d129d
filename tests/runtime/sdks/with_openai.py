"""The openai package, which most others are built on; the reference row of the table."""

import json

import openai
from common import BASE_URL, KEY, MODEL, ORDER, QUESTION, SCHEMA, WEATHER, is_answer, is_order, run
from pydantic import BaseModel

client = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)
MESSAGES = [{"role": "user", "content": QUESTION}]


class Order(BaseModel):
    item: str
    count: int


def ask(**changes):
    return client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, "seed": 4, **changes})


def whole():
    is_answer(ask().choices[0].message.content)


def stream():
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    is_answer("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))
    assert chunks[-1].usage.completion_tokens > 0


async def asynchronous():
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as other:
        answer = await other.chat.completions.create(model=MODEL, messages=MESSAGES, seed=4)
    is_answer(answer.choices[0].message.content)


def tools():
    function = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}}}
    asked = [{"role": "user", "content": WEATHER}]
    answer = ask(messages=asked, tools=[{"type": "function", "function": function}], tool_choice="required")
    for call in answer.choices[0].message.tool_calls:
        assert call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments), dict)


def structured():
    asked = [{"role": "user", "content": ORDER}]
    schema = {"name": "order", "strict": True, "schema": SCHEMA}
    is_order(
        json.loads(
            ask(messages=asked, response_format={"type": "json_schema", "json_schema": schema})
            .choices[0]
            .message.content
        )
    )
    assert isinstance(
        client.chat.completions.parse(model=MODEL, messages=asked, response_format=Order).choices[0].message.parsed,
        Order,
    )


def logprobs():
    entries = ask(logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert entries and all(len(entry.top_logprobs) == 3 for entry in entries)


def penalties():
    is_answer(ask(frequency_penalty=0.01, presence_penalty=0.01, logit_bias={"7": -1}).choices[0].message.content)


def errors():
    try:
        ask(temperature=9)
    except openai.BadRequestError as error:
        assert "temperature" in error.message
    else:
        raise AssertionError("temperature 9 was taken")


run(whole, stream, asynchronous, tools, structured, logprobs, penalties, errors)
