"""States after prompts, kept to be copied back bit for bit before the next request with the same prompt and schedules.

Off unless the server was told (`--prompt-state`): nothing of a request is ever reused by itself. What a prefill leaves
is a function of the prompt and of what computed it, so these two are the key. `shared` leaves the second to no
arm: every prompt is computed by the schedules that run unasked, once for all. Copies lie on the device where it has
room to spare, else in the host's memory; the least recently used is dropped. Knows memory and no model.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.memory.cache import DraftCache
from runtime.memory.state import RequestState
from runtime.models.steps import Memory

MOST = 8  # two arms on four prompts; a long prompt of a large model takes gigabytes
SPARE = 0.4  # of a device's memory, that copies on it leave free: prefill chunks are far below that
COMPUTED, SNAPSHOT, SHARED = "computed", "snapshot", "shared"
PROMPT_STATES = (COMPUTED, SNAPSHOT, SHARED)


@dataclass(frozen=True)
class PromptState:
    """All that a first token and the rounds behind it read: pages, states, draft window, the last row's logits."""

    length: int
    pages: list[Tensor]
    states: list[Tensor]
    window_length: int  # 0 for a request that drafts nothing
    window: list[Tensor]
    logits: Tensor


class PromptStates:
    """At most MOST of them, by key; none where `enabled` is false."""

    def __init__(self, memory: Memory, draft_cache: DraftCache | None, enabled: bool) -> None:
        self._memory, self._draft_cache, self._enabled = memory, draft_cache, enabled
        self._kept: OrderedDict[Hashable, PromptState] = OrderedDict()

    def restore(self, key: Hashable, state: RequestState) -> Tensor | None:
        """The logits [1, V] of the prompt's last row, with memory as it was behind them; None where it is not kept."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        self._memory.cache.restore(kept.length, kept.pages)
        self._memory.pool.restore(state, kept.states)
        if self._draft_cache is not None:
            self._draft_cache.restore(kept.window_length, kept.window)
        return kept.logits

    def keep(self, key: Hashable, state: RequestState, length: int, logits: Tensor) -> None:
        if not self._enabled:
            return
        place = self._place(self._memory.cache.size_bytes(length), logits.device)
        pages, states = self._memory.cache.saved(length, place), self._memory.pool.saved(state, place)
        window = (0, []) if self._draft_cache is None else (self._draft_cache.length, self._draft_cache.saved(place))
        self._kept[key] = PromptState(length, pages, states, *window, logits.clone())
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)

    @staticmethod
    def _place(size_bytes: int, device: torch.device) -> torch.device:
        """Where a copy of that size goes."""
        if device.type != "cuda":
            return device
        free, total = torch.cuda.mem_get_info(device)
        return device if free - size_bytes > SPARE * total else torch.device("cpu")
