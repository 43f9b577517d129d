"""Any OpenAI-compatible server that a command line starts: `server.command`, a template with {port} {model} {workdir}.

An arm is a server life: its `args` are appended to the command, its `env` is laid over `server.env`. One life can
serve both arms only where they ask for the same, as in an A/A campaign.
"""

from __future__ import annotations

from pathlib import Path

from campaigns.errors import UsageError
from campaigns.plan import Arm, ServerPlan
from orchestrator.adapters.face import Launch
from orchestrator.adapters.openai import OpenAIServer
from orchestrator.identity import ROOT


class CommandServer(OpenAIServer):
    name = "command"

    def launch(self, plan: ServerPlan, arms: tuple[Arm, ...], port: int, workdir: Path) -> Launch | None:
        if not plan.command:
            raise UsageError(
                "server.command is empty: give the command line as a list, with {port} where the port goes"
            )
        arm = self.one_arm(arms)
        words = [_filled(word, plan, port, workdir) for word in (*plan.command, *plan.args, *arm.args)]
        return Launch(tuple(words), {**dict(plan.env), **dict(arm.env)})

    def one_arm(self, arms: tuple[Arm, ...]) -> Arm:
        """The arm that this server life is. Schedules mean nothing to a server that is not ours."""
        for arm in arms:
            if arm.schedules:
                raise UsageError(f"arm {arm.name}: a {self.name} server has no schedules to choose; use env and args")
            if (arm.env, arm.args) != (arms[0].env, arms[0].args):
                raise UsageError(
                    f"arms {arms[0].name} and {arm.name} differ in env or args, which one server cannot follow: "
                    "use startup=co_resident or startup=sequential"
                )
        return arms[0]


def _filled(word: str, plan: ServerPlan, port: int, workdir: Path) -> str:
    """Braces of JSON arguments stay: only the three names are replaced."""
    values = {"{port}": str(port), "{model}": model_path(plan.model), "{workdir}": str(workdir)}
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def model_path(model: str) -> str:
    """An absolute folder where `model` names one (servers run in folders of their own), else the name as it is."""
    folder = ROOT / model
    return str(folder) if model and folder.is_dir() else model
