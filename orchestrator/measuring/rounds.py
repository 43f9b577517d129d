"""From a reply to its rounds: whose rounds they are, how many there were, and what each drafted and emitted. Pure.

Three may tell them: our engine's list, a foreign engine's list of the steps that verified a draft, or the client's
chunks where nothing contradicts that each is one round.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from campaigns.records import Round
from orchestrator.measuring.stream import Chunk, EngineRound, Reply


def rounds_of(reply: Reply, steps: int | None, kernel: bool) -> tuple[tuple[Round, ...], int | None, int]:
    """(rows, R, q1 steps). R counts speculative rounds: the engine's, else the client's where its chunks are rounds."""
    client = [
        _client_round(before, chunk, index, kernel)
        for index, (before, chunk) in enumerate(pairwise(reply.chunks), start=1)
    ]
    usable = bool(reply.chunks) and client_counts_rounds(reply, steps)
    listed = _listed(reply)
    if listed is not None and usable:
        counted = zip(client, listed, strict=True)
        return tuple(replace(row, accepted=a, drafted=d, emitted=e) for row, (a, d, e) in counted), len(client), 0
    if listed is not None:  # chunks were merged: where the first is, the rounds in it are not told from those behind
        return tuple(client), len(listed) if reply.chunks and num_tokens(reply.chunks[0]) == 1 else None, 0
    if reply.engine is None or reply.engine.rounds is None:
        return tuple(client), len(client) if usable else _counted(reply, steps), 0
    engine = reply.engine.rounds
    num_q1 = sum(entry.kind == "q1" for entry in engine)
    if usable:
        rows = [_with_engine(row, entry) for row, entry in zip(client, engine, strict=True)]
    else:
        rows = [_with_engine(Round(index), entry) for index, entry in enumerate(engine, start=1)]
        rows += [_moved(row, len(engine)) for row in client]
    return tuple(rows), len(engine) - num_q1, num_q1


def client_counts_rounds(reply: Reply, steps: int | None) -> bool:
    """Whether each chunk after the first is one round, as far as anyone can tell.

    The engine's own count decides, be it a list of rounds or a counter. Without one, more chunks than tokens prove that
    a chunk is not a round, and so do chunks that all came at once; fewer chunks than rounds go unseen.
    """
    num_client = len(reply.chunks) - 1
    if (listed := _listed(reply)) is not None:
        return num_client == len(listed)
    if reply.engine is not None and reply.engine.rounds is not None:
        return num_client == len(reply.engine.rounds)
    if num_client > 0 and not _takes_time(reply):
        return False
    if steps is not None:
        return num_client == steps
    limit = reply.usage.completion_tokens if reply.usage else None
    return limit is None or num_client < limit


def _listed(reply: Reply) -> list[tuple[int, int, int]] | None:
    """(accepted, drafted, emitted) of each round, where a foreign engine listed every one; its steps without a draft
    have no place in its list.
    """
    said, completion = reply.speculation, reply.usage.completion_tokens if reply.usage else None
    if said is None or completion is None or not said.is_whole(completion) or _engine_lists(reply):
        return None
    return list(zip(said.accepted or (), said.drafted or (), said.emitted(completion) or (), strict=True))


def _counted(reply: Reply, steps: int | None) -> int | None:
    """The server's count of the rounds between the first chunk and the last, where it can be no other.

    Merging loses chunks, and a step emits at least one token: a count outside these bounds is not this request's. A
    first chunk of several tokens swallowed rounds itself: how many of the counted ones follow it cannot be told.
    """
    completion = reply.usage.completion_tokens if reply.usage else None
    if steps is None or completion is None or not _takes_time(reply) or num_tokens(reply.chunks[0]) != 1:
        return None
    return steps if len(reply.chunks) - 1 <= steps < completion else None


def counts(reply: Reply, name: str) -> list[int | None] | None:
    """One column of the engine's rounds, or of the steps that a foreign one lists; None where it reported neither."""
    rounds = reply.engine.rounds if reply.engine else None
    if rounds is not None:
        return [getattr(entry, name) for entry in rounds]
    completion = reply.usage.completion_tokens if reply.usage else None
    if reply.speculation is None or completion is None:
        return None
    said = reply.speculation
    listed = {"accepted": said.accepted, "drafted": said.drafted, "emitted": said.emitted(completion)}[name]
    return None if listed is None else list(listed)


def emitted_tokens(reply: Reply) -> int | None:
    """Tokens of the prefill (one) and of the engine's rounds; None where the engine does not count them."""
    emitted = counts(reply, "emitted") if _engine_lists(reply) else None
    known = [count for count in emitted or () if count is not None]
    return None if emitted is None or len(known) < len(emitted) else 1 + sum(known)


def _engine_lists(reply: Reply) -> bool:
    return reply.engine is not None and reply.engine.rounds is not None


def _takes_time(reply: Reply) -> bool:
    return bool(reply.chunks) and reply.chunks[-1].at_ns > reply.chunks[0].at_ns


def _client_round(before: Chunk, chunk: Chunk, index: int, kernel: bool) -> Round:
    return Round(
        index=index,
        client_ns=chunk.at_ns - before.at_ns,
        client_tokens=num_tokens(chunk),
        coalesced=chunk.coalesced,
        wake_ns=chunk.wake_ns if kernel else None,
    )


def _with_engine(row: Round, entry: EngineRound) -> Round:
    return replace(
        row,
        kind=entry.kind,
        engine_ns=entry.total_ns,
        draft_ns=entry.draft_ns,
        verify_ns=entry.verify_ns,
        sample_ns=entry.sample_ns,
        commit_ns=entry.commit_ns,
        rows=entry.rows,
        drafted=entry.drafted,
        accepted=entry.accepted,
        emitted=entry.emitted,
    )


def _moved(row: Round, offset: int) -> Round:
    return replace(row, index=offset + row.index)


def num_tokens(chunk: Chunk) -> int | None:
    return None if chunk.token_ids is None else len(chunk.token_ids)
