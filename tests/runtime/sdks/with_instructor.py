"""Instructor: models filled in through forced tools and through schemas."""

from typing import Literal

import instructor
import openai
from common import BASE_URL, KEY, MODEL, ORDER, is_order, run
from pydantic import BaseModel, Field

MESSAGES = [{"role": "user", "content": ORDER}]


class Order(BaseModel):
    item: Literal["lamp", "chair"]
    count: int = Field(ge=0, le=99)


def filled(mode, client=None):
    made = instructor.from_openai(client or openai.OpenAI(base_url=BASE_URL, api_key=KEY), mode=mode)
    return made.create(model=MODEL, messages=MESSAGES, response_model=Order, max_retries=0, seed=4)


def tools():
    is_order(filled(instructor.Mode.TOOLS).model_dump())


def structured():
    is_order(filled(instructor.Mode.JSON_SCHEMA).model_dump())


async def asynchronous():
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as client:
        is_order((await filled(instructor.Mode.JSON_SCHEMA, client)).model_dump())


def stream():
    made = instructor.from_openai(openai.OpenAI(base_url=BASE_URL, api_key=KEY), mode=instructor.Mode.JSON_SCHEMA)
    parts = list(made.create_partial(model=MODEL, messages=MESSAGES, response_model=Order, max_retries=0, seed=4))
    assert len(parts) > 1
    is_order(parts[-1].model_dump())


run(stream, asynchronous, tools, structured)
