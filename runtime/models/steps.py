"""How tokens reach the tokens before them: whole sequences, prompt chunks, and the few rows of a verification.

A step owns positions and memory for one forward; the decoder asks it to rotate, to attend and to run the recurrence.
Steps know layouts and nothing about sampling. The page table and all lengths a kernel needs live on the device; the
host copies of them are what the caller already knew.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import attention, gdn, prefill_attention, prefill_gdn, rotary
from kernels.prefill_gdn.delta import chunked_delta_rule, convolve, gates
from runtime.memory.cache import PagedCache
from runtime.memory.state import RequestState, StatePool
from runtime.models.layers import Rotary
from runtime.operators import Operators


@dataclass(frozen=True)
class Memory:
    """What the target remembers: paged K/V of its full layers, state slots of its linear layers."""

    cache: PagedCache
    pool: StatePool


class Asking(Protocol):
    """What every module that asks a step says of itself: its layer, and where its operator is called."""

    layer: int
    operators: Operators
    site: str


class Attention(Asking, Protocol):
    scale: float
    problems: dict[Hashable, attention.Problem]


class GatedDeltaNet(Asking, Protocol):
    operands: gdn.Layer
    problems: dict[Hashable, gdn.Problem]

    def split_heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...


class Step(Protocol):
    table: rotary.Table

    def store(self, layer: int) -> rotary.Store | None:
        """Where this forward's K and V go, if they are remembered; `attention` then gets none."""

    def attention(self, module: Attention, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor: ...

    def recurrence(self, module: GatedDeltaNet, qkv: Tensor, a: Tensor, b: Tensor) -> Tensor: ...


class SequenceStep:
    """Whole sequences [B, T, ..] that begin at position 0; nothing is remembered. Differentiable."""

    def __init__(self, rotary: Rotary, positions: Tensor) -> None:
        self.table = rotary.table(positions)

    def store(self, layer: int) -> None:
        return None

    def attention(self, module: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(-3, -2) for x in (q, k, v))
        grouped = q.shape[-3] != k.shape[-3]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=module.scale, enable_gqa=grouped)
        return out.transpose(-3, -2)

    def recurrence(self, module: GatedDeltaNet, qkv: Tensor, a: Tensor, b: Tensor) -> Tensor:
        history = qkv.new_zeros(qkv.shape[0], module.operands.conv_weight.shape[1] - 1, qkv.shape[2])
        q, k, v = module.split_heads(convolve(history, qkv, module.operands.conv_weight))
        g, beta = gates(a, b, module.operands.a_log, module.operands.dt_bias)
        return chunked_delta_rule(q, k, v, g, beta, None)[0].to(qkv.dtype)


class PrefillStep:
    """One chunk [T, ..] of a prompt beginning at position `start`; leaves the state after it in slot 0, selector 1.

    The first chunk starts from zero, whatever the request's recycled slots contain, also when it is one token long.
    """

    def __init__(self, rotary: Rotary, start: int, length: int, memory: Memory, state: RequestState) -> None:
        positions = torch.arange(start, start + length, device=memory.pool.device)
        self.table = rotary.table(positions)
        self.start, self.end = start, start + length
        self.cache, self.pool, self.state = memory.cache, memory.pool, state
        self.slots = self.cache.slots(positions)

    def store(self, layer: int) -> rotary.Store:
        return self.cache.store(layer, self.slots)

    def attention(self, module: Attention, q: Tensor, k: None, v: None) -> Tensor:
        keys, values = self.cache.read(module.layer, self.end, q.dtype)
        problem = prefill_attention.problem_of(q, keys)
        return module.operators.run(
            f"{module.site}.prefill", prefill_attention.OP, problem, q, keys, values, module.scale
        )

    def recurrence(self, module: GatedDeltaNet, qkv: Tensor, a: Tensor, b: Tensor) -> Tensor:
        recurrent, line = self.pool.recurrent[module.layer], self.pool.conv[module.layer][self.state.line]
        width, slot = self.pool.history, self.state.slots[0]
        if self.start == 0:
            history, before = torch.zeros_like(line[:, :width].T), torch.zeros_like(recurrent[slot])
        else:
            history, before = line[:, :width].T.clone(), recurrent[slot]
        line[:, :width] = torch.cat((history, qkv[-width:]))[-width:].T
        problem = prefill_gdn.problem_of(qkv, module.operands, before)
        operands = (qkv, a, b, module.operands, history, before)
        out, recurrent[slot] = module.operators.run(f"{module.site}.prefill", prefill_gdn.OP, problem, *operands)
        return out


class VerifyStep:
    """A few rows at consecutive `positions` [R]; starts from the selected state and writes one state per row.

    Positions, row lengths, page table, slot table and selector are read on the device alone, so that a captured graph
    stays right when they change. `pages` is how many of the page table's attention is shown; the rows must lie in them.
    """

    def __init__(
        self, table: rotary.Table, positions: Tensor, memory: Memory, state: RequestState, pages: int | None = None
    ) -> None:
        assert state.selector, "verification before prefill: no state is selected"
        self.table = table
        self.cache, self.pool, self.state = memory.cache, memory.pool, state
        self.pages = self.cache.page_table[:pages]
        self.slots = self.cache.slots(positions)
        self.row_lengths = (positions + 1).int()

    def store(self, layer: int) -> rotary.Store:
        return self.cache.store(layer, self.slots)

    def attention(self, module: Attention, q: Tensor, k: None, v: None) -> Tensor:
        pages = (self.cache.k[module.layer], self.cache.v[module.layer], self.pages)
        key = (q.shape[0], q.stride(), pages[0].dtype, pages[0].shape, len(pages[2]))
        problem = module.problems.get(key)
        if problem is None:
            problem = module.problems[key] = attention.problem_of(q, *pages)
        return module.operators.run(module.site, attention.OP, problem, q, *pages, self.row_lengths, module.scale)

    def recurrence(self, module: GatedDeltaNet, qkv: Tensor, a: Tensor, b: Tensor) -> Tensor:
        state = self.state.of_layer(self.pool, module.layer)
        key = (qkv.shape[0], qkv.stride(), a.stride(), b.stride())
        problem = module.problems.get(key)
        if problem is None:
            problem = module.problems[key] = gdn.problem_of(qkv, a, b, module.operands, state)
        return module.operators.run(module.site, gdn.OP, problem, qkv, a, b, module.operands, state)
