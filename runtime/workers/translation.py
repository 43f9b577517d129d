"""Between two spellings: an order of the protocol to the request of an engine, an event of the engine to a step.

Knows both sides' fields; neither channels nor processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

from runtime.text.generation import NO_PENALTIES, Generation, Step


def engine_request(order: Generation, cancelled: Callable[[], bool], gate: Any) -> Any:
    from runtime.engine.sequence import GenerateRequest
    from runtime.speculation.logprobs import LogprobsOrder
    from runtime.speculation.penalties import Penalties
    from runtime.speculation.sampling import SamplingParams

    asked = None if order.logprobs is None else LogprobsOrder(order.logprobs, order.logprobs_of_sampled_law)
    return GenerateRequest(
        prompt_ids=order.prompt_ids,
        sampling=SamplingParams(**asdict(order.sampling)),
        max_tokens=order.max_tokens,
        eos_ids=order.eos_ids,
        gate=gate,
        cancelled=cancelled,
        logprobs=asked,
        speculation=order.speculation.mode,
        num_speculative_tokens=order.speculation.num_tokens or None,
        penalties=None if order.penalties == NO_PENALTIES else Penalties(**asdict(order.penalties)),
    )


def as_step(event: Any, finish_reason: str | None) -> Step:
    """A step of an engine's `Prefill` or `RoundRecord`."""
    said = {"logprobs": event.logprobs, "finish_reason": finish_reason}
    if not hasattr(event, "rows"):
        times = {"total_ns": event.prefill_ns, "ended_ns": event.ended_ns}
        return Step("prefill", tuple(event.token_ids), cached_tokens=event.cached_tokens, **times, **said)
    names = {field.name for field in fields(Step)} - {*said, "profile", "cached_tokens"}
    return Step(**{name: getattr(event, name) for name in names}, **said)


def finish_reason(order: Generation, token_ids: Sequence[int], num_tokens: int) -> str | None:
    if token_ids and token_ids[-1] in order.eos_ids:
        return "stop"
    return "length" if num_tokens == order.max_tokens else None
