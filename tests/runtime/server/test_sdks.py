"""Clients that nobody here wrote, each in an environment of its own, against the server: docs/server.md has the table.

Environments are made under build/peers where they are missing, half a minute each; what cannot be made is skipped.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "tests/runtime/sdks"
CAPABILITIES = ("whole", "stream", "asynchronous", "tools", "structured", "logprobs", "penalties", "errors")
# The package that the table names, and what it is installed as; the openai package is in this environment.
PACKAGES = {
    "openai": "",
    "litellm": "litellm==1.110.2",
    "langchain-openai": "langchain-openai==1.7.4",
    "instructor": "instructor==1.17.0",
    "pydantic-ai-slim": "pydantic-ai-slim[openai]==2.68.0",
    "openai-agents": "openai-agents==0.24.0",
    "llm": "llm==0.36",
}
# Neither reaches for the network.
ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1"}


def python_of(name: str, make_environment: Callable[..., Path]) -> Path:
    package = PACKAGES[name]
    return make_environment(name, package) / "python" if package else Path(sys.executable)


@pytest.mark.acceptance
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_clients_whole_row(server: Any, make_environment: Callable[..., Path], name: str) -> None:
    script = SCRIPTS / f"with_{name.removesuffix('-slim').replace('-', '_')}.py"
    command = [python_of(name, make_environment), script, f"http://127.0.0.1:{server.port}/v1"]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert not any(found.values()), "\n".join(f"{what}: {wrong}" for what, wrong in found.items() if wrong)
    assert set(found) == capabilities_of_table()[name]
    assert "Traceback" not in server.log.read_text()


def capabilities_of_table() -> dict[str, set[str]]:
    """What the page promises: a client to the columns that its row ticks."""
    table = (ROOT / "docs/server.md").read_text().partition("\n## Clients\n")[2]
    header, _, *rows = re.findall(r"^\|.*\|$", table, re.MULTILINE)
    columns = [cell.strip() for cell in header.strip("|").split("|")]
    promised = {}
    for row in rows:
        client, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        promised[client.strip("`")] = {what for what, cell in zip(columns[1:], cells, strict=True) if cell == "yes"}
    return promised


def test_the_table_names_what_is_run() -> None:
    table = capabilities_of_table()
    assert table.keys() == PACKAGES.keys()
    assert set().union(*table.values()) == set(CAPABILITIES)
