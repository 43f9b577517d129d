"""LiteLLM, as proxies and agents call a server that speaks OpenAI's protocol."""

import json

import litellm
from common import BASE_URL, KEY, MODEL, ORDER, QUESTION, SCHEMA, WEATHER, is_answer, is_order, run

TARGET = {"model": f"openai/{MODEL}", "api_base": BASE_URL, "api_key": KEY, "max_retries": 0}


def ask(content=QUESTION, **changes):
    return litellm.completion(**TARGET, **{"messages": [{"role": "user", "content": content}], "seed": 4, **changes})


def whole():
    is_answer(ask().choices[0].message.content)


def stream():
    is_answer("".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True)))


async def asynchronous():
    answer = await litellm.acompletion(**TARGET, messages=[{"role": "user", "content": QUESTION}], seed=4)
    is_answer(answer.choices[0].message.content)


def tools():
    function = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}}}
    answer = ask(WEATHER, tools=[{"type": "function", "function": function}], tool_choice="required")
    for call in answer.choices[0].message.tool_calls:
        assert call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments), dict)


def structured():
    form = {"type": "json_schema", "json_schema": {"name": "order", "strict": True, "schema": SCHEMA}}
    is_order(json.loads(ask(ORDER, response_format=form).choices[0].message.content))


def logprobs():
    assert len(ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content[0].top_logprobs) == 2


def penalties():
    is_answer(ask(frequency_penalty=0.01, presence_penalty=0.01, logit_bias={"7": -1}).choices[0].message.content)


def errors():
    try:
        ask(temperature=9)
    except litellm.BadRequestError as error:
        assert "temperature" in str(error)
    else:
        raise AssertionError("temperature 9 was taken")


run(whole, stream, asynchronous, tools, structured, logprobs, penalties, errors)
