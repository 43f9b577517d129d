"""What every SDK's script here is given and asks. Runs in the SDK's own environment: standard library alone.

A script is `python SCRIPT BASE_URL`; each function it hands to `run` is one capability, which fails by an exception.
"""

import asyncio
import inspect
import json
import sys
import traceback

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else ""
KEY, MODEL = "none", "nano"
QUESTION = "Ida has 14 pears and gives 5 pears to Leo. How many pears are left?"
ORDER = "Write this order as JSON: Emil orders 3 of the item lamp."
WEATHER = "What is the weather in Oslo?"
SCHEMA = {
    "type": "object",
    "properties": {"item": {"type": "string", "enum": ["lamp", "chair"]}, "count": {"type": "integer", "maximum": 99}},
    "required": ["item", "count"],
    "additionalProperties": False,
}


def run(*capabilities):
    """Print what each capability's function found, as JSON: its name to "" or to what went wrong."""
    found = {}
    for capability in capabilities:
        try:
            done = capability()
            if inspect.iscoroutine(done):
                asyncio.run(done)
        except Exception:
            found[capability.__name__] = traceback.format_exc()[-1500:]
        else:
            found[capability.__name__] = ""
    print(json.dumps(found))


def is_answer(text):
    assert isinstance(text, str) and "9" in text, text


def is_order(value):
    assert value["item"] in ("lamp", "chair") and 0 <= abs(value["count"]) <= 99, value
