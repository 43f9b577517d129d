"""OpenAI's Agents SDK over its chat-completions model."""

from typing import Literal

import openai
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from common import BASE_URL, KEY, MODEL, ORDER, QUESTION, WEATHER, is_answer, is_order, run
from pydantic import BaseModel, Field

set_tracing_disabled(True)


class Order(BaseModel):
    item: Literal["lamp", "chair"]
    count: int = Field(ge=0, le=99)


@function_tool
def get_weather(city: Literal["Oslo", "Rome"]) -> str:
    """Weather of one city."""
    return f"sunny in {city}"


def agent(settings=None, **changes):
    client = openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)
    settings = ModelSettings(**{"extra_body": {"seed": 4}, **(settings or {})})
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
    return Agent(name="clerk", model=model, model_settings=settings, **changes)


def whole():
    is_answer(Runner.run_sync(agent(), QUESTION).final_output)


async def asynchronous():
    is_answer((await Runner.run(agent(), QUESTION)).final_output)


async def stream():
    result = Runner.run_streamed(agent(), QUESTION)
    kinds = [event.type async for event in result.stream_events()]
    assert kinds.count("raw_response_event") > 2
    is_answer(result.final_output)


async def tools():
    clerk = agent({"tool_choice": "required"}, tools=[get_weather], tool_use_behavior="stop_on_first_tool")
    assert (await Runner.run(clerk, WEATHER)).final_output in ("sunny in Oslo", "sunny in Rome")


async def structured():
    is_order((await Runner.run(agent(output_type=Order), ORDER)).final_output.model_dump())


async def penalties():
    asked = {"frequency_penalty": 0.01, "presence_penalty": 0.01}
    is_answer((await Runner.run(agent(asked), QUESTION)).final_output)


async def errors():
    try:
        await Runner.run(agent({"temperature": 9}), QUESTION)
    except openai.BadRequestError as error:
        assert "temperature" in error.message
    else:
        raise AssertionError("temperature 9 was taken")


run(whole, stream, asynchronous, tools, structured, penalties, errors)
