"""GatedDeltaNet state: a pool of recurrent slots and convolution lines, and the slot table of one request.

Verification writes one recurrent state per row into the request's slots, eight or sixteen. The accepted count is the
next *selector*, from 1: the following verification starts from `slot_table[selector - 1]` and from the convolution
window that begins at column `selector - 1`. Slots outside the table are never written; slots are not cleared when they
are handed out, because prefill starts from zero and never reads them. Knows no attention cache and no tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import gdn
from runtime.config import TargetConfig
from runtime.errors import CapacityError


@dataclass
class RequestState:
    """What one request owns: `slots` (rows of the recurrent pool), `line` (row of the convolution pool), `selector`."""

    slots: tuple[int, ...]
    line: int
    slot_table: Tensor
    selector_device: Tensor
    selector: int = 0

    def select(self, selector: int) -> None:
        """Start the next step from the state after `selector` rows; mirrored on the device for kernels."""
        assert 1 <= selector <= len(self.slots), f"selector {selector} outside 1..{len(self.slots)}"
        self.selector = selector
        self.selector_device.fill_(selector)

    def of_layer(self, pool: "StatePool", layer: int) -> gdn.State:
        """The operands through which verification reads and writes this request's state in one layer."""
        return gdn.State(pool.conv[layer][self.line], pool.recurrent[layer], self.slot_table, self.selector_device)


class StatePool:
    """Per GDN layer recurrent states [slots, Hv, Dk, Dv] FP32 and windows [lines, C, width - 1 + rows - 1]."""

    def __init__(
        self, config: TargetConfig, device: torch.device, dtype: torch.dtype, rows: int = 8, num_lines: int = 2
    ) -> None:
        self.rows, self.history = rows, config.linear_conv_kernel_dim - 1
        shape = (config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim)
        columns = self.history + rows - 1
        layers = config.linear_layers
        self.recurrent = {i: torch.zeros(rows * num_lines, *shape, device=device) for i in layers}
        self.conv = {i: torch.zeros(num_lines, config.conv_dim, columns, device=device, dtype=dtype) for i in layers}
        # One table and one selector per line, at fixed addresses: a captured graph reads them there.
        self._tables = torch.zeros(num_lines, rows, dtype=torch.int32, device=device)
        self._selectors = torch.zeros(num_lines, 1, dtype=torch.int32, device=device)
        self._free_slots, self._free_lines = list(range(rows * num_lines)), list(range(num_lines))
        self.device = device

    def acquire(self) -> RequestState:
        """A slot per row, least recently used first, and the line of the last owner, contents as they were left.

        Captured graphs belong to a line, so that requests that follow one another share theirs.
        """
        if len(self._free_slots) < self.rows or not self._free_lines:
            raise CapacityError("every state slot is taken; one request runs at a time")
        slots = tuple(self._free_slots[: self.rows])
        del self._free_slots[: self.rows]
        line = self._free_lines.pop(0)
        self._tables[line] = torch.tensor(slots, dtype=torch.int32)
        return RequestState(slots, line, self._tables[line], self._selectors[line])

    def release(self, state: RequestState) -> None:
        self._free_slots.extend(state.slots)
        self._free_lines.insert(0, state.line)

    def taken(self) -> str:
        """What is not free; empty between two requests."""
        missing = self.rows * len(self._tables) - len(self._free_slots)
        return f"{missing} state slots were not given back" if missing else ""

    def copy(self, source: RequestState, target: RequestState) -> None:
        """Make `target` continue exactly as `source` would, byte for byte, in its own slots."""
        for layer, pool in self.recurrent.items():
            pool[list(target.slots)] = pool[list(source.slots)]
            self.conv[layer][target.line] = self.conv[layer][source.line]
        if source.selector:
            target.select(source.selector)

    def saved(self, state: RequestState, device: torch.device) -> list[Tensor]:
        """The state after a prompt, on `device`: of each layer the recurrent state and the convolution window."""
        slot, line = state.slots[0], state.line
        return [
            part.to(device, copy=True) for i in self.recurrent for part in (self.recurrent[i][slot], self.conv[i][line])
        ]

    def restore(self, state: RequestState, saved: list[Tensor]) -> None:
        """`state` begins where the one that was saved did."""
        held = iter(saved)
        for layer in self.recurrent:
            self.recurrent[layer][state.slots[0]] = next(held).to(self.device)
            self.conv[layer][state.line] = next(held).to(self.device)
        state.select(1)


def state_bytes(config: TargetConfig, rows: int, num_lines: int, dtype: torch.dtype) -> int:
    """Device bytes of a StatePool of that shape."""
    slot = config.value_dim * config.linear_key_head_dim * 4
    columns = config.linear_conv_kernel_dim - 1 + rows - 1
    line = config.conv_dim * columns * dtype.itemsize
    return len(config.linear_layers) * num_lines * (rows * slot + line)
