"""Any OpenAI-compatible server that a command line starts: `server.command`, a template with {port} {model} {workdir}.

An arm is a server life: its `args` are appended to the command, its `env` is laid over `server.env`, its `tree` is what
{tree} means in the command and in the environment, so that two checkouts can be compared. One life can
serve both arms only where they ask for the same, as in an A/A campaign.

vLLM may put the tokens of several engine steps into one chunk when its front end falls behind. Its own counters say how
many steps there were; they count for the whole server, which here answers nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.errors import ServerFailed, UsageError
from campaigns.nearest import alike
from campaigns.plan import Arm, ServerPlan
from campaigns.routes import ACCEPTED, DECODE_STEPS, DRAFTED, DRAFTS
from orchestrator.checkouts.places import ROOT
from orchestrator.servers.adapters.control import ask_json, ask_metrics
from orchestrator.servers.adapters.face import Launch
from orchestrator.servers.adapters.openai import OpenAIServer
from orchestrator.servers.fields import MOST_NS

# Names of ours for counters of vLLM's. Each decode step of a request is one observation of its inter-token latency.
_COUNTERS = {
    DECODE_STEPS: "vllm:inter_token_latency_seconds_count",
    DRAFTS: "vllm:spec_decode_num_drafts_total",
    DRAFTED: "vllm:spec_decode_num_draft_tokens_total",
    ACCEPTED: "vllm:spec_decode_num_accepted_tokens_total",
}
_VERSIONS = ("/version", "/server_info", "/get_server_info")
_FILLED = ("port", "model", "workdir", "tree")
_BRACED = re.compile(r"(?<![${])\{(\w+)\}(?!\})")


class CommandServer(OpenAIServer):
    name = "command"
    unscheduled = "arm@campaign.control=default and arm@campaign.candidate=default, or arms of env and args"

    def launch(self, plan: ServerPlan, arms: tuple[Arm, ...], port: int, workdir: Path) -> Launch | None:
        if not plan.command:
            raise UsageError(
                "server.command is empty: give the command line as a list, with {port} where the port goes"
            )
        _check_template((*plan.command, *plan.args, *(word for arm in arms for word in arm.args)), plan)
        arm = self.one_arm(arms)
        template = (*plan.command, *plan.args, *arm.args)
        env = filled_env(plan, arm)
        _check_tree((*template, *dict((*plan.env, *arm.env)).values()), arm)
        values = {"port": str(port), "model": model_path(plan.model), "workdir": str(workdir), "tree": arm.tree}
        return Launch(tuple(_filled(word, values) for word in template), env)

    def counters(self, base_url: str) -> dict[str, int] | None:
        found = ask_metrics(base_url)
        counts = {ours: found[theirs] for ours, theirs in _COUNTERS.items() if theirs in found}
        return {ours: int(count) for ours, count in counts.items() if 0 <= count <= MOST_NS} or None

    def identity(self, base_url: str) -> dict[str, Any]:
        """The version that vLLM tells at /version and SGLang at /server_info; a small server may drop either call."""
        for route in _VERSIONS:
            try:
                answer = ask_json(base_url, "GET", route)
            except ServerFailed:
                continue
            if isinstance(answer, dict) and isinstance(version := answer.get("version"), str) and version:
                return {"version": version}
        return {}

    def one_arm(self, arms: tuple[Arm, ...]) -> Arm:
        """The arm that this server life is. Schedules mean nothing to a server that is not ours."""
        for arm in arms:
            if arm.choices:
                what = "schedules" if arm.schedules else "speculation"
                raise UsageError(
                    f"arm {arm.name} names {what}, and server.adapter={self.name} has none to choose: take "
                    f"{self.unscheduled}"
                )
            if arm.life != arms[0].life:
                raise UsageError(
                    f"arms {arms[0].name} and {arm.name} differ in env, args or tree, which one server cannot follow: "
                    "use startup=co_resident or startup=sequential"
                )
        return arms[0]


def _check_template(words: Sequence[str], plan: ServerPlan) -> None:
    """What would start a server that nobody can ask. Other braces are the command's own, JSON or a template."""
    for word in words:
        for name in _BRACED.findall(word):
            if name not in _FILLED and (meant := alike(name.lower(), _FILLED)):
                raise UsageError(
                    f"server.command: nothing is filled in for {{{name}}} in {word}; did you mean {{{meant}}}?"
                )
    text = " ".join(words)
    if "{port}" not in text:
        command = " ".join(plan.command)
        raise UsageError(f"server.command={command}: no {{port}} in it; write it where the server takes its port")
    if "{model}" in text and not plan.model:
        raise UsageError("server.model is empty and server.command wants {model}: name the model, as server.model=…")


def _check_tree(words: Sequence[str], arm: Arm) -> None:
    """A tree that no word names would leave both arms the same code, under two names."""
    named = any("{tree}" in word for word in words)
    if named and not arm.tree:
        raise UsageError(
            f"arm {arm.name} has no tree and the server's words want {{tree}}: name it, as campaign.control.tree=/path"
        )
    if arm.tree and not named:
        raise UsageError(
            f"arm {arm.name}: tree={arm.tree}, and no word of the server names it: write {{tree}} where its code is, "
            "as server.command=[python,'{tree}/serve.py','{port}'] or server.env={PYTHONPATH: '{tree}'}"
        )


def filled_env(plan: ServerPlan, arm: Arm) -> dict[str, str]:
    """The server's variables with the arm's over them."""
    values = {"tree": arm.tree} if arm.tree else {}
    return {name: _filled(value, values) for name, value in (*plan.env, *arm.env)}


def _filled(word: str, values: Mapping[str, str]) -> str:
    """Braces of JSON arguments stay: only these names are replaced."""
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def model_path(model: str) -> str:
    """An absolute folder where `model` names one (servers run in folders of their own), else the name as it is."""
    folder = ROOT / model
    return str(folder) if model and folder.is_dir() else model
