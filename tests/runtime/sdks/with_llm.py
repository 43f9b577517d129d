"""The `llm` command line, with the server as one of its extra models."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import BASE_URL, KEY, MODEL, ORDER, QUESTION, SCHEMA, WEATHER, is_answer, is_order, run

FOLDER = tempfile.TemporaryDirectory()
(Path(FOLDER.name) / "extra-openai-models.yaml").write_text(
    f"- model_id: {MODEL}\n  model_name: {MODEL}\n  api_base: {BASE_URL}\n  supports_schema: true\n"
    "  supports_tools: true\n"
)
TOOL = "def get_time() -> str:\n    'The time.'\n    return 'noon'\n"


def said(*words):
    environment = {**os.environ, "LLM_USER_PATH": FOLDER.name, "OPENAI_API_KEY": KEY}
    program = Path(sys.executable).with_name("llm")
    command = [program, "prompt", "-m", MODEL, "--no-log", "--key", KEY, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def whole():
    is_answer(said(QUESTION, "--no-stream", "-o", "seed", "4"))


def stream():
    is_answer(said(QUESTION, "-o", "seed", "4"))


def structured():
    is_order(json.loads(said(ORDER, "--schema", json.dumps(SCHEMA), "-o", "seed", "4")))


def tools():
    """The model may answer, or call it until the client ends that; what is offered is taken either way."""
    try:
        assert said(WEATHER, "--functions", TOOL, "-o", "seed", "4")
    except AssertionError as error:
        assert "Chain limit of 5 exceeded" in str(error)


def penalties():
    asked = {"frequency_penalty": "0.01", "presence_penalty": "0.01", "logit_bias": '{"7": -1}', "seed": "4"}
    is_answer(said(QUESTION, *(word for pair in asked.items() for word in ("-o", *pair))))


def errors():
    try:
        said(QUESTION, "-o", "max_tokens", "100000000")
    except AssertionError as error:
        assert "max_tokens" in str(error)
    else:
        raise AssertionError("a hundred million tokens were taken")


run(whole, stream, tools, structured, penalties, errors)
