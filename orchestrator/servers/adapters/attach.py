"""A server that already runs at `server.base_url`: measured, never started and never stopped.

Its caches are its owner's; where it offers vLLM's or SGLang's route to empty them, that is used before each request,
and what it reports as cached decides whether a request counts.
"""

from __future__ import annotations

from pathlib import Path

from campaigns.errors import ServerFailed, UsageError
from campaigns.plan import Arm, ServerPlan
from orchestrator.servers.adapters.command import CommandServer
from orchestrator.servers.adapters.control import ask, check_url
from orchestrator.servers.adapters.face import Launch

_RESETS = ("/reset_prefix_cache", "/flush_cache")  # vLLM in developer mode; SGLang


class AttachedServer(CommandServer):
    name = "attach"
    unscheduled = "campaign.mode=aa with arm@campaign.control=default and arm@campaign.candidate=default"

    def __init__(self) -> None:
        self._resets: dict[str, str] = {}  # base URL to the route that works, empty when none does

    def launch(self, plan: ServerPlan, arms: tuple[Arm, ...], port: int, workdir: Path) -> Launch | None:
        if not plan.base_url:
            raise UsageError("server.base_url is empty: name the running server, as http://HOST:PORT")
        check_url(plan.base_url)
        arm = self.one_arm(arms)
        if any(arm.life):
            raise UsageError(f"arm {arm.name}: env, args and tree cannot reach a server that already runs; drop them")
        return None

    def reset_cache(self, base_url: str) -> None:
        known = self._resets.get(base_url)
        for route in _RESETS if known is None else (known,) if known else ():
            if _accepts(base_url, route):
                self._resets[base_url] = route
                return
        self._resets.setdefault(base_url, "")


def _accepts(base_url: str, route: str) -> bool:
    """A small server may drop the connection on a route that it does not know; a dead one shows in the next request."""
    try:
        return ask(base_url, "POST", route, {})[0] == 200
    except ServerFailed:
        return False
