"""Pydantic AI's agents over its OpenAI chat model."""

from typing import Literal

from common import BASE_URL, KEY, MODEL, ORDER, QUESTION, is_answer, is_order, run
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Order(BaseModel):
    item: Literal["lamp", "chair"]
    count: int = Field(ge=0, le=99)


def agent(**changes):
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=KEY))
    return Agent(model, **{"model_settings": {"seed": 4}, **changes})


def whole():
    is_answer(agent().run_sync(QUESTION).output)


async def stream():
    async with agent().run_stream(QUESTION) as result:
        texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    assert len(texts) > 1
    is_answer("".join(texts))


async def asynchronous():
    is_answer((await agent().run(QUESTION)).output)


def tools():
    is_order(agent(output_type=ToolOutput(Order)).run_sync(ORDER).output.model_dump())


def structured():
    is_order(agent(output_type=NativeOutput(Order)).run_sync(ORDER).output.model_dump())


def logprobs():
    settings = {"seed": 4, "openai_logprobs": True, "openai_top_logprobs": 2}
    answer = agent(model_settings=settings).run_sync(QUESTION)
    assert answer.response.provider_details["logprobs"]


def penalties():
    settings = {"seed": 4, "frequency_penalty": 0.01, "presence_penalty": 0.01, "logit_bias": {"7": -1}}
    is_answer(agent(model_settings=settings).run_sync(QUESTION).output)


def errors():
    try:
        agent(model_settings={"temperature": 9}).run_sync(QUESTION)
    except ModelHTTPError as error:
        assert error.status_code == 400 and "temperature" in str(error)
    else:
        raise AssertionError("temperature 9 was taken")


run(whole, stream, asynchronous, tools, structured, logprobs, penalties, errors)
