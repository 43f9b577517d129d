"""What the two answers of a pair do not share, as phrases `what: control / candidate`. Pure.

`compare` says up to which level they agree; here a reader finds where to look. Everything is named, the first
difference of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from campaigns.exactness.compare import divergence
from campaigns.records import Request

_SHOWN = 24  # characters behind the first difference


def differing(control: Request, candidate: Request) -> tuple[str, ...]:
    both = (control, candidate)
    return (
        *_plain("prompt", *(request.prompt_sha256[:12] for request in both)),
        *_text("text", control.text, candidate.text),
        *_text("reasoning", control.reasoning_text, candidate.reasoning_text),
        *_text("tool calls", control.tool_calls_json, candidate.tool_calls_json),
        *_ids(control, candidate),
        *(f"{request.role}: {told}" for request in both if (told := _incomplete(request))),
        *_plain("finish reason", control.finish_reason, candidate.finish_reason),
        *_plain("tokens", control.completion_tokens, candidate.completion_tokens),
        *_rounds("accepted", control, candidate),
        *_rounds("drafted", control, candidate),
    )


def _plain(what: str, one: object, other: object) -> Iterator[str]:
    if one != other:
        yield f"{what}: {_said(one)} / {_said(other)}"


def _said(value: object) -> str:
    return "not told" if value in (None, "") else str(value)


def _text(what: str, one: str, other: str) -> Iterator[str]:
    if one != other:
        at = _first(one, other)
        yield f"{what} from character {at}: {_piece(one, at)} / {_piece(other, at)}"


def _piece(text: str, at: int) -> str:
    piece = text[at : at + _SHOWN]
    return f"{piece!r}{'…' if len(text) > at + _SHOWN else ''}" if piece else "nothing"


def _ids(control: Request, candidate: Request) -> Iterator[str]:
    index, ids = divergence(control.token_ids, candidate.token_ids)
    if ids is not None:
        one, other = ("the end" if i is None else str(i) for i in ids)
        yield f"ids from token {index}: {one} / {other}"


def _incomplete(request: Request) -> str:
    """Ids that prove nothing."""
    if request.token_ids is None:
        return "no token ids"
    if len(request.token_ids) != request.completion_tokens:
        return f"{len(request.token_ids)} ids but usage {_said(request.completion_tokens)}"
    return ""


def _rounds(name: str, control: Request, candidate: Request) -> Iterator[str]:
    """Counts of the engine's rounds, where both told them."""
    one, other = ([getattr(row, name) for row in request.rounds] for request in (control, candidate))
    if one != other and any(count is not None for count in one) and any(count is not None for count in other):
        at = _first(one, other)
        here, there = (_said(counts[at]) if at < len(counts) else "the end" for counts in (one, other))
        yield f"{name} from round {at + 1}: {here} / {there}"


def _first(one: Sequence[object], other: Sequence[object]) -> int:
    shorter = min(len(one), len(other))
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)
