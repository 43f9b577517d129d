"""Speculation as requests, arms and the command line ask for it: `speculation` and `num_speculative_tokens`."""

from __future__ import annotations

from typing import Any

from runtime.http.errors import bad
from runtime.http.requests import fields
from runtime.speculation.modes import MODES
from runtime.text.generation import Speculation


def usual(max_drafts: int) -> Speculation:
    """Of a server that was told nothing: the whole block of the drafter, if there is one."""
    return Speculation("dflash", max_drafts) if max_drafts else Speculation()


def read_speculation(body: fields.Body, standing: Speculation, max_drafts: int) -> Speculation:
    """What `body` asks for, the rest as `standing`. At most `max_drafts` a round; 0 where there is no drafter."""
    mode = fields.text(body, "speculation")
    if mode not in (None, *MODES):
        raise bad(f"speculation must be one of {', '.join(MODES)}, not {mode!r}", "speculation")
    mode = mode or standing.mode
    if mode != "none" and not max_drafts:
        raise bad(f"this checkpoint has no drafter/, so speculation={mode} cannot be served; use none", "speculation")
    if mode == "none":
        if body.get("num_speculative_tokens") is not None:
            raise bad("num_speculative_tokens says nothing where speculation is none", "num_speculative_tokens")
        return Speculation()
    count = fields.integer(body, "num_speculative_tokens", 1, max_drafts)
    return Speculation(mode, count or standing.num_tokens or max_drafts)


def spelled(speculation: Speculation) -> dict[str, Any]:
    """As an arm is read back; no count where nothing is drafted."""
    count = {"num_speculative_tokens": speculation.num_tokens} if speculation.mode != "none" else {}
    return {"speculation": speculation.mode, **count}
