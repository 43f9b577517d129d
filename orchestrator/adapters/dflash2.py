"""Our own server, `python -m runtime.server`, with its campaign routes (docs/wire.md). Knows it by HTTP alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from campaigns.errors import ServerFailed, UsageError
from campaigns.plan import Arm, ServerPlan
from orchestrator.adapters.command import model_path
from orchestrator.adapters.control import ask_json
from orchestrator.adapters.face import Launch
from orchestrator.adapters.openai import OpenAIServer


class Dflash2Server(OpenAIServer):
    name = "dflash2"
    switches = True
    strict = True
    request_fields: ClassVar[Mapping[str, Any]] = {"return_token_ids": True, "return_round_details": True}

    def launch(self, plan: ServerPlan, arms: tuple[Arm, ...], port: int, workdir: Path) -> Launch | None:
        first = arms[0]
        for arm in arms:
            if (arm.env, arm.args) != (first.env, first.args):
                raise UsageError(
                    f"arms {first.name} and {arm.name} differ in env or args, which one server cannot follow: "
                    "use startup=co_resident or startup=sequential"
                )
        command = (sys.executable, "-m", "runtime.server", "--model", model_path(plan.model), "--port", str(port))
        return Launch((*command, *plan.args, *first.args), {**dict(plan.env), **dict(first.env)})

    def select(self, base_url: str, arm: Arm) -> None:
        wanted = {"name": arm.name, "schedules": dict(arm.schedules)}
        for answer in (ask_json(base_url, "PUT", "/campaign/arm", wanted), ask_json(base_url, "GET", "/campaign/arm")):
            if (
                answer is None
                or answer.get("name") != arm.name
                or not _contains(answer["schedules"], wanted["schedules"])
            ):
                raise ServerFailed(f"the server was told to be {wanted} and reads back {answer}")

    def counters(self, base_url: str) -> dict[str, int] | None:
        answer = ask_json(base_url, "GET", "/campaign/counters")
        if answer is None:
            return None
        hits: dict[str, int] = {}
        for entry in answer["counters"]:
            name = f"{entry['operator']}/{entry['schedule']}"
            hits[name] = hits.get(name, 0) + entry["hits"]
        return hits

    def identity(self, base_url: str) -> dict[str, Any]:
        return ask_json(base_url, "GET", "/campaign/identity") or {}


def _contains(read_back: Any, wanted: Any) -> bool:
    """Whether every schedule that was asked for is read back; the server may name its defaults beside them."""
    return isinstance(read_back, dict) and wanted.items() <= read_back.items()
