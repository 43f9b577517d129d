"""What one round must move through a device's memory at least, from the tensors that are there.

Every projection's weight once, the head twice (drafts and verification), the drafter's window, and each GDN layer's
states: one read, one written for each row. Beside that the target's K and V for every token before. Activations,
tables and embeddings are left out, so that the bound stays one. Knows no bandwidth.
"""

from collections.abc import Iterator
from typing import Any

from kernels.projection import Weight
from runtime.engine.round import Decoder
from runtime.models.layers import Linear


def round_bytes(decoder: Decoder, rows: int) -> dict[str, int]:
    """`fixed` bytes of a round of `rows` rows on this device, and `per_token` more for a token of context."""
    target, drafter, window = decoder.target, decoder.drafter, decoder.draft_cache
    fixed = sum(weight_bytes(linear.weight) for linear in linears((target.layers, target.head)))
    if drafter is not None:
        parts = {name: part for name, part in vars(drafter).items() if name not in ("head", "embedding")}
        fixed += sum(weight_bytes(linear.weight) for linear in linears((parts, drafter.head)))
    if window is not None:
        fixed += sum(slots.numel() * slots.element_size() for slots in (*window.k, *window.v))
    fixed += sum((1 + rows) * pool[0].numel() * pool.element_size() for pool in decoder.memory.pool.recurrent.values())
    caches = (*decoder.memory.cache.k.values(), *decoder.memory.cache.v.values())
    return {"fixed": fixed, "per_token": sum(pages[0, 0].numel() * pages.element_size() for pages in caches)}


def weight_bytes(weight: Weight) -> int:
    return sum(part.numel() * part.element_size() for part in weight.parts)


def linears(part: Any) -> Iterator[Linear]:
    """Every projection below `part`, once for each place that calls it."""
    if isinstance(part, Linear):
        yield part
    elif isinstance(part, dict):
        yield from linears(tuple(part.values()))
    elif isinstance(part, (list, tuple)):
        for each in part:
            yield from linears(each)
    elif type(part).__module__.startswith("runtime.models"):
        yield from linears(vars(part))
