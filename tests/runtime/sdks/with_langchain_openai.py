"""langchain-openai's chat model."""

from typing import Literal

import openai
from common import BASE_URL, KEY, MODEL, ORDER, QUESTION, WEATHER, is_answer, is_order, run
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Order(BaseModel):
    """One order."""

    item: Literal["lamp", "chair"]
    count: int = Field(ge=0, le=99)


@tool
def get_weather(city: Literal["Oslo", "Rome"]) -> str:
    """Weather of one city."""
    return "sunny"


def model(**changes):
    return ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key=KEY, max_retries=0, **{"seed": 4, **changes})


def whole():
    is_answer(model().invoke(QUESTION).content)


def stream():
    chunks = list(model(stream_usage=True).stream(QUESTION))
    is_answer("".join(chunk.content for chunk in chunks))
    assert any(chunk.usage_metadata for chunk in chunks)


async def asynchronous():
    is_answer((await model().ainvoke(QUESTION)).content)


def tools():
    for call in model().bind_tools([get_weather], tool_choice="required").invoke(WEATHER).tool_calls:
        assert call["name"] == "get_weather" and call["args"]["city"] in ("Oslo", "Rome")


def structured():
    for method in ("json_schema", "function_calling"):
        is_order(model().with_structured_output(Order, method=method).invoke(ORDER).model_dump())


def logprobs():
    said = model(logprobs=True, top_logprobs=2).invoke(QUESTION).response_metadata["logprobs"]["content"]
    assert said and len(said[0]["top_logprobs"]) == 2


def penalties():
    asked = {"frequency_penalty": 0.01, "presence_penalty": 0.01, "logit_bias": {7: -1}}
    is_answer(model(**asked).invoke(QUESTION).content)


def errors():
    try:
        model(temperature=9).invoke(QUESTION)
    except openai.BadRequestError as error:
        assert "temperature" in str(error)
    else:
        raise AssertionError("temperature 9 was taken")


run(whole, stream, asynchronous, tools, structured, logprobs, penalties, errors)
