"""From one exchange to one fact: quantities, identities and typed reasons of a request (docs/wire.md). Pure.

Decides admissibility before anything knows what the other arm did. Hardware flags join later, by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from campaigns.hashes import counts_sha256, token_sha256
from campaigns.plan import SHARED, PairKey, Phase, Role
from campaigns.reasons import FLAGS, Reason
from campaigns.records import Request, Stamp
from campaigns.routes import DECODE_STEPS
from orchestrator.measuring.exchange import Exchange
from orchestrator.measuring.rounds import client_counts_rounds, counts, emitted_tokens, num_tokens, rounds_of
from orchestrator.measuring.stream import RESTORED, Chunk, Reply

_FLAGGED_SHARE = 0.1  # of chunks that share their arrival; an idle host's calibration sees none
_MOST_SHARE = 0.5  # beyond it the client saw batches and no rounds
_FEW_CHUNKS = 8


@dataclass(frozen=True)
class Context:
    """What the caller knows of a request before it is sent."""

    campaign_id: str
    startup: int
    startup_attempt: int
    key: PairKey
    block_attempt: int
    role: Role
    arm: str
    phase: Phase
    position: int
    order_in_pair: int | None
    max_tokens: int
    counters: Mapping[str, int] = field(default_factory=dict)
    prompt_state: str = ""  # how the plan wants states of prompts copied back
    profiled: bool = False  # ran under the server's profiler
    sent_seed: int | None = None


@dataclass(frozen=True)
class _Finding:
    reason: Reason
    message: str = ""
    flag: bool = False  # said of a request that counts all the same

    @property
    def excludes(self) -> bool:
        return not self.flag and self.reason not in FLAGS


def observe(exchange: Exchange, reply: Reply, context: Context) -> Request:
    steps = context.counters.get(DECODE_STEPS)
    findings = _findings(exchange, reply, steps, context.prompt_state)
    if context.profiled:
        findings.append(_Finding(Reason.PROFILED))
    kernel = exchange.stamp is Stamp.KERNEL
    counters = {**context.counters, **(reply.speculation.counters if reply.speculation else {})}
    rounds, n_rounds, n_q1_steps = rounds_of(reply, steps, kernel)
    chunks, usage, engine = reply.chunks, reply.usage, reply.engine
    ids, prompt_ids = reply.token_ids, reply.prompt_token_ids
    complete = ids is not None and not any(finding.reason is Reason.HASH_INCOMPLETE for finding in findings)
    return Request(
        campaign_id=context.campaign_id,
        startup=context.startup,
        startup_attempt=context.startup_attempt,
        key=context.key,
        block_attempt=context.block_attempt,
        role=context.role,
        arm=context.arm,
        phase=context.phase,
        position=context.position,
        order_in_pair=context.order_in_pair,
        prompt_sha256=token_sha256(prompt_ids) if prompt_ids else "",
        prompt_tokens=_prompt_tokens(reply),
        max_tokens=context.max_tokens,
        sched_ns=exchange.sched_ns,
        send_ns=exchange.send_ns,
        first_event_ns=reply.first_event_ns,
        first_content_ns=chunks[0].at_ns if chunks else None,
        last_content_ns=chunks[-1].at_ns if chunks else None,
        end_ns=exchange.end_ns,
        first_tokens=num_tokens(chunks[0]) if chunks else None,
        rounds=rounds,
        n_rounds=n_rounds,
        n_q1_steps=n_q1_steps,
        completion_tokens=usage.completion_tokens if usage else None,
        cached_tokens=usage.cached_tokens if usage else None,
        finish_reason=reply.finish_reason,
        text=reply.text,
        reasoning_text=reply.reasoning,
        tool_calls_json=reply.tool_calls_json,
        token_ids=ids,
        token_sha256=token_sha256(ids) if ids is not None and complete else None,
        emitted_sha256=counts_sha256(counts(reply, "emitted")),
        accepted_sha256=counts_sha256(counts(reply, "accepted")),
        drafted_sha256=counts_sha256(counts(reply, "drafted")),
        engine_queue_ns=engine.queue_ns if engine else None,
        engine_prefill_ns=engine.prefill_ns if engine else None,
        engine_decode_ns=engine.decode_ns if engine else None,
        counters=counters,
        admissible=not any(finding.excludes for finding in findings),
        reasons=tuple(dict.fromkeys(finding.reason for finding in findings)),
        error="; ".join(finding.message for finding in findings if finding.message),
        http_status=exchange.status,
        first_characters=_num_characters(chunks[0]) if chunks else None,
        stamp=exchange.stamp if exchange.events else None,
        first_wake_ns=chunks[0].wake_ns if chunks and kernel else None,
        last_wake_ns=chunks[-1].wake_ns if chunks and kernel else None,
        profile=engine.profile if engine and context.profiled else None,
        sent_seed=context.sent_seed,
    )


def _findings(exchange: Exchange, reply: Reply, steps: int | None, prompt_state: str) -> list[_Finding]:
    """Everything that is wrong or worth a flag. A request that failed is not also blamed for what it lacks."""
    if exchange.failure is not None and reply.failure is Reason.ERROR_EVENT:
        return [_Finding(Reason.ERROR_EVENT, reply.message)]  # the server said why before it went
    if exchange.failure is not None:
        return [_Finding(exchange.failure, exchange.message)]
    if reply.failure is not None:
        return [_Finding(reply.failure, reply.message)]
    return [*_identities(reply), *_reuse(reply, prompt_state), *_timing(exchange, reply), *_flags(reply, steps)]


def _timing(exchange: Exchange, reply: Reply) -> list[_Finding]:
    """Whether the client's clock says anything of this request; an engine's own needs none."""
    found = []
    if not reply.chunks:
        told = f"the answer ended ({reply.finish_reason}) without content: nothing of it can be timed"
        found.append(_Finding(Reason.EMPTY_ANSWER, told))
    elif reply.chunks[0].coalesced:
        sharing = sum(chunk.at_ns == reply.chunks[0].at_ns for chunk in reply.chunks)
        found.append(
            _Finding(
                Reason.FIRST_CHUNK_COALESCED,
                f"the first {sharing} content chunks arrived as one: the server, or what stands before it, held back "
                "the first, so that neither TTFT nor decode time is known (TCP_NODELAY, a flush for each event)",
                flag=_has_clock(reply),
            )
        )
    elif (share := coalesced_share(reply.chunks)) > _FLAGGED_SHARE and len(reply.chunks) >= _FEW_CHUNKS:
        found.append(
            _Finding(
                Reason.COALESCED_CHUNKS,
                "" if share <= _MOST_SHARE else f"{share:.0%} of the content chunks arrived with another",
                flag=share <= _MOST_SHARE or _has_clock(reply),
            )
        )
    if exchange.stamp is not Stamp.KERNEL:
        found.append(_Finding(Reason.CLIENT_STAMPS))
    return found


def coalesced_share(chunks: Sequence[Chunk]) -> float:
    """Of the content chunks those that shared their arrival."""
    return sum(chunk.coalesced for chunk in chunks) / len(chunks) if chunks else 0.0


def _has_clock(reply: Reply) -> bool:
    return reply.engine is not None and reply.engine.decode_ns is not None


def _identities(reply: Reply) -> list[_Finding]:
    usage = reply.usage
    if usage is None or usage.completion_tokens is None:
        missing = "the stream ended without usage behind its last content: ask for stream_options.include_usage"
        return [_Finding(Reason.USAGE_MISSING, missing)]
    found = []
    if reply.token_ids is not None and len(reply.token_ids) != usage.completion_tokens:
        found.append(
            _Finding(
                Reason.TOKEN_COUNT_MISMATCH,
                f"{len(reply.token_ids)} token ids but usage.completion_tokens {usage.completion_tokens}",
            )
        )
    elif reply.chunks and not usage.completion_tokens:
        told = f"usage.completion_tokens is 0, and {len(reply.chunks)} content chunks came"
        found.append(_Finding(Reason.TOKEN_COUNT_MISMATCH, told))
    said = reply.speculation
    if said is not None and said.accepted is not None and said.emitted(usage.completion_tokens) is None:
        found.append(
            _Finding(
                Reason.EMITTED_MISMATCH,
                f"the engine's steps accepted {said.num_accepted} drafts and emitted a token more in each of "
                f"{said.num_steps}, but usage.completion_tokens is {usage.completion_tokens}",
            )
        )
    emitted = emitted_tokens(reply)
    if emitted is not None and emitted != usage.completion_tokens:
        found.append(
            _Finding(
                Reason.EMITTED_MISMATCH,
                f"the prefill and the engine's rounds emitted {emitted} tokens but usage.completion_tokens is "
                f"{usage.completion_tokens}",
            )
        )
    return found


def _reuse(reply: Reply, prompt_state: str) -> list[_Finding]:
    """Of an earlier prompt: excludes, unless the plan wanted it and the server says that it copied the state back.

    A prompt that is shared is no arm's work, by whichever arm's request it was computed.
    """
    cached = reply.usage.cached_tokens if reply.usage else None
    if not cached:
        return [_Finding(Reason.PROMPT_RESTORED)] if prompt_state == SHARED else []
    if prompt_state and reply.engine is not None and reply.engine.prompt_state == RESTORED:
        return [_Finding(Reason.PROMPT_RESTORED)]
    return [_Finding(Reason.CACHE_HIT, f"{cached} prompt tokens came from the prefix cache")]


def _flags(reply: Reply, steps: int | None) -> list[_Finding]:
    found = []
    if reply.token_ids is None:
        found += [_Finding(Reason.IDS_UNAVAILABLE), _Finding(Reason.HASH_INCOMPLETE)]
    elif reply.usage is not None and len(reply.token_ids) != reply.usage.completion_tokens:
        found.append(_Finding(Reason.HASH_INCOMPLETE))
    if not client_counts_rounds(reply, steps):
        found.append(_Finding(Reason.CLIENT_ROUNDS_UNUSABLE))
    if reply.finish_reason == "length":
        found.append(_Finding(Reason.CAPPED))
    return found


def _num_characters(chunk: Chunk) -> int:
    """In every channel; of a tool call what it adds to the answer, not its random id."""
    return len(chunk.text) + len(chunk.reasoning) + sum(len(c.name) + len(c.arguments) for c in chunk.tool_calls)


def _prompt_tokens(reply: Reply) -> int | None:
    if reply.usage is not None and reply.usage.prompt_tokens is not None:
        return reply.usage.prompt_tokens
    return len(reply.prompt_token_ids) if reply.prompt_token_ids is not None else None
