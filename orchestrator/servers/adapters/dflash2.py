"""Our own server, `python -m runtime.server`, with its campaign routes (docs/wire.md). Knows it by HTTP alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from campaigns.errors import ServerFailed, UsageError
from campaigns.plan import Arm, ServerPlan
from campaigns.routes import hits_name, refusal_name
from orchestrator.checkouts.places import MARK, ROOT
from orchestrator.servers import fields
from orchestrator.servers.adapters.command import filled_env, model_path
from orchestrator.servers.adapters.control import Session, ask_json, ask_object, said
from orchestrator.servers.adapters.face import Launch
from orchestrator.servers.adapters.openai import OpenAIServer
from orchestrator.servers.fields import Object


class Dflash2Server(OpenAIServer):
    name = "dflash2"
    switches = True
    tells = frozenset({"libraries"})
    strict = True
    request_fields: ClassVar[Mapping[str, Any]] = {"return_token_ids": True, "return_round_details": True}
    restores_prompts = True
    profile_fields: ClassVar[Mapping[str, Any] | None] = {"profile": True}

    def __init__(self) -> None:
        self._session = Session()

    def launch(self, plan: ServerPlan, arms: tuple[Arm, ...], port: int, workdir: Path) -> Launch | None:
        first = arms[0]
        for arm in arms:
            if arm.life != first.life:
                raise UsageError(
                    f"arms {first.name} and {arm.name} differ in env, args or tree, which one server cannot follow: "
                    "use startup=co_resident or startup=sequential"
                )
        command = (sys.executable, "-m", "runtime.server", "--model", model_path(plan.model), "--port", str(port))
        traces = ("--trace-dir", str(workdir)) if plan.traces else ()
        prompts = ("--prompt-state", plan.prompt_state) if plan.prompt_state else ()
        return Launch((*command, *traces, *prompts, *plan.args, *first.args), _environment(plan, first))

    def select(self, base_url: str, arm: Arm) -> None:
        wanted: dict[str, Any] = {"name": arm.name, "schedules": dict(arm.schedules)}
        if arm.speculation:
            wanted["speculation"] = arm.speculation
        if arm.num_speculative_tokens is not None:
            wanted["num_speculative_tokens"] = arm.num_speculative_tokens
        for method, body in (("PUT", wanted), ("GET", None)):
            answer = ask_json(base_url, method, "/campaign/arm", body, self._session)
            if not _reads_back(answer, wanted):
                raise ServerFailed(f"the server was told to be {wanted} and reads back {answer}")

    def counters(self, base_url: str) -> dict[str, int] | None:
        answer = ask_object(base_url, "/campaign/counters", self._session)
        return None if answer is None else said("/campaign/counters", lambda: _totals(answer))

    def identity(self, base_url: str) -> dict[str, Any]:
        answer = ask_object(base_url, "/campaign/identity") or {}
        said("/campaign/identity", lambda: _check_identity(answer))
        return dict(answer)


def _environment(plan: ServerPlan, arm: Arm) -> dict[str, str]:
    """`python -m runtime.server` runs the code of the arm's tree, or what was sent here, before what is installed."""
    env = filled_env(plan, arm)
    tree = arm.tree or (str(ROOT) if (ROOT / MARK).is_file() else "")
    return {**env, "PYTHONPATH": ":".join(filter(None, (tree, env.get("PYTHONPATH"))))} if tree else env


def flag_value(words: Sequence[str], flag: str) -> str | None:
    """What our server takes for `flag`: the last `--flag VALUE` or `--flag=VALUE`; None where there is none."""
    found = None
    for word, following in zip(words, (*words[1:], None), strict=False):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.removeprefix(f"{flag}=")
    return found


def _totals(answer: Object) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for entry in fields.mappings(answer, "counters") or ():
        totals[hits_name(_name(entry, "operator"), _name(entry, "schedule"))] += _count(entry, "hits")
    for entry in fields.mappings(answer, "refusals") or ():
        name = refusal_name(_name(entry, "operator"), _name(entry, "schedule"), _name(entry, "reason"))
        totals[name] += _count(entry, "calls")
    return dict(totals)


def _name(entry: Object, name: str) -> str:
    return fields.text(entry, name) or ""


def _count(entry: Object, name: str) -> int:
    return fields.whole(entry, name, fields.MOST_NS) or 0


def _check_identity(answer: Object) -> None:
    """What the control plane reads of it."""
    for library in fields.mappings(answer, "libraries") or ():
        fields.text(library, "path")
        fields.text(library, "sha256")
        fields.whole(library, "rank", fields.MOST_PER_ROUND)
    made = fields.mapping(answer, "made_weights")
    if made is not None:
        fields.text(made, "sha256")
        fields.whole(made, "accepted", fields.MOST_PER_ROUND)


def _reads_back(answer: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether the arm is the one that was asked for; the server may name its defaults beside the arm's schedules."""
    if not isinstance(answer, dict):
        return False
    plain = {name: value for name, value in wanted.items() if name != "schedules"}
    schedules = answer.get("schedules", {})
    same = isinstance(schedules, dict) and wanted["schedules"].items() <= schedules.items()
    return same and plain.items() <= answer.items()
