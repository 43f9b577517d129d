"""By whose clock the client's times are told, and how late its process was: the host's scheduling noise."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from campaigns.judging.verdicts import counted
from campaigns.records import Stamp


@dataclass(frozen=True)
class ClientClock:
    """Of the measured requests whose stamps are known; wakes are of their first and last content chunks."""

    n_kernel: int
    n_client: int
    wake_median_us: float | None
    wake_largest_us: float | None

    @property
    def line(self) -> str:
        told = f"arrivals: the kernel's stamps in {counted(self.n_kernel, 'request')}"
        late = f", the client's own in {self.n_client}" if self.n_client else ""
        if self.wake_median_us is None:
            return told + late
        return (
            f"{told}{late}; the client's process had a first or last chunk {self.wake_median_us:.0f} us later (median; "
            f"largest {self.wake_largest_us:.0f} us), which is the host's scheduling and in no figure"
        )


def client_clock(measured: pd.DataFrame) -> ClientClock | None:
    """None where the store does not say."""
    known = measured[measured.stamp.notna()]
    if known.empty:
        return None
    wakes = pd.concat([known.first_wake_ns, known.last_wake_ns]).dropna() * 1e-3
    return ClientClock(
        n_kernel=int((known.stamp == Stamp.KERNEL.value).sum()),
        n_client=int((known.stamp == Stamp.CLIENT.value).sum()),
        wake_median_us=float(wakes.median()) if len(wakes) else None,
        wake_largest_us=float(wakes.max()) if len(wakes) else None,
    )
