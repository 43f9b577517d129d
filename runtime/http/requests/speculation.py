"""Speculation as requests, arms and the command line ask for it: `speculation` and `num_speculative_tokens`."""

from __future__ import annotations

from typing import Any, NamedTuple

from runtime.http.errors import bad
from runtime.http.requests import fields
from runtime.speculation.modes import MODES
from runtime.text.generation import Speculation

MOST_LOOKUP_DRAFTS = 15


class MaxDrafts(NamedTuple):
    """A round's: of the drafter (0 where there is none), and with those of the history."""

    drafter: int
    lookup: int

    def of(self, mode: str) -> int:
        return self.lookup if mode == "lookup" else self.drafter


def usual(most: MaxDrafts) -> Speculation:
    """Of a server that was told nothing: the whole block of the drafter, if there is one."""
    return Speculation("dflash", most.drafter) if most.drafter else Speculation()


def read_speculation(body: fields.Body, standing: Speculation, most: MaxDrafts) -> Speculation:
    """What `body` asks for, the rest as `standing`; a mode named alone brings no more drafts than the drafter has."""
    mode = fields.text(body, "speculation")
    if mode not in (None, *MODES):
        raise bad(f"speculation must be one of {', '.join(MODES)}, not {mode!r}", "speculation")
    mode = mode or standing.mode
    if mode != "none" and not most.drafter:
        raise bad(f"this checkpoint has no drafter/, so speculation={mode} cannot be served; use none", "speculation")
    if mode == "none":
        if body.get("num_speculative_tokens") is not None:
            raise bad("num_speculative_tokens says nothing where speculation is none", "num_speculative_tokens")
        return Speculation()
    count = _count(body, most.of(mode))
    standing_count = standing.num_tokens if mode == standing.mode else min(standing.num_tokens, most.drafter)
    return Speculation(mode, count or standing_count or most.drafter)


def _count(body: fields.Body, most: int) -> int | None:
    given = body.get("num_speculative_tokens")
    if type(given) is int and most < given <= MOST_LOOKUP_DRAFTS:
        where = f"up to {MOST_LOOKUP_DRAFTS} are for speculation lookup, of a server with --lookup-rows 16"
        raise bad(
            f"num_speculative_tokens must be an integer from 1 to {most}, not {given}; {where}",
            "num_speculative_tokens",
        )
    return fields.integer(body, "num_speculative_tokens", 1, most)


def spelled(speculation: Speculation) -> dict[str, Any]:
    """As an arm is read back; no count where nothing is drafted."""
    count = {"num_speculative_tokens": speculation.num_tokens} if speculation.mode != "none" else {}
    return {"speculation": speculation.mode, **count}
