"""How the schedules of an arm fared, told by the names in a request's counters.

`operator/schedule` counts its hits. The same name with a reason behind it counts the calls that named the schedule and
went to the operator's default instead. Everybody who asks whether an arm was what it is called asks here. Knows no
server; one that has no counters tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# The counter of a server that counts its decode steps but does not list them.
DECODE_STEPS = "engine/decode-steps"
# Of a server that counts its drafts: steps that verified one, tokens proposed, tokens accepted.
DRAFTS, DRAFTED, ACCEPTED = "speculation/drafts", "speculation/drafted", "speculation/accepted"

_REFUSED = " refused: "
_OF_PROMPTS = "prefill_"  # operators whose best schedule for the machine runs unasked


def hits_name(operator: str, schedule: str) -> str:
    return f"{operator}/{schedule}"


def refusal_name(operator: str, schedule: str, reason: str) -> str:
    return f"{operator}/{schedule}{_REFUSED}{reason}"


def is_refusal(name: str) -> bool:
    return _REFUSED in name


@dataclass(frozen=True)
class Route:
    """One schedule that an arm names: how often it ran, and why how many calls were refused."""

    name: str  # operator/schedule
    hits: int
    refusals: Mapping[str, int]  # reason -> calls

    @property
    def only_refused(self) -> bool:
        """Called, and never for itself. A schedule that nobody called is another matter."""
        return not self.hits and bool(self.refusals)

    def told(self) -> list[str]:
        """Every refusal as a phrase."""
        return [f"{self.name}{_REFUSED}{reason} ({_calls(calls)})" for reason, calls in self.refusals.items()]


def routes(schedules: Iterable[tuple[str, str]], counters: Mapping[str, int]) -> tuple[Route, ...]:
    """One route for each of the arm's (operator, schedule)."""
    return tuple(_route(hits_name(operator, schedule), counters) for operator, schedule in schedules)


def unasked(schedules: Iterable[tuple[str, str]], counters: Mapping[str, int]) -> tuple[Route, ...]:
    """What ran for prompts though the arm does not name it: a machine's libraries decide."""
    named = {hits_name(operator, schedule) for operator, schedule in schedules}
    ran = (name for name, hits in counters.items() if hits and name.startswith(_OF_PROMPTS) and not is_refusal(name))
    return tuple(Route(name, counters[name], {}) for name in sorted(set(ran) - named))


def _route(name: str, counters: Mapping[str, int]) -> Route:
    prefix = f"{name}{_REFUSED}"
    refusals = {key.removeprefix(prefix): calls for key, calls in counters.items() if key.startswith(prefix) and calls}
    return Route(name, counters.get(name, 0), refusals)


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"
