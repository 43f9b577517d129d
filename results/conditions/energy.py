"""What told the energy of a campaign's requests, or why there is none: one sentence for a report."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from campaigns.records import CPU_UUID, EnergySource
from results.store.reader import Life

_TOLD = {
    EnergySource.COUNTER: "counters of NVML",
    EnergySource.POWER: "integrated samples of the power",
}


def energy_line(measured: pd.DataFrame, lives: Sequence[Life]) -> str:
    told = [words for source, words in _TOLD.items() if (measured.energy_source == source.value).any()]
    if not told:
        return f"energy: none, {_why(lives)}"
    unknown = int(measured.energy_mj.isna().sum())
    without = f"; unknown for {unknown} of {len(measured)} requests" if unknown else ""
    return (
        f"energy: {' and '.join(told)} of all leased devices, from sending to the end, prefill and idle draw "
        f"included{without}"
    )


def _why(lives: Sequence[Life]) -> str:
    uuids = {uuid for life in lives for uuid in life.startup.device_uuids}
    if uuids and all(uuid.startswith(CPU_UUID) for uuid in uuids):
        return "the device is this host's CPU, which is not asked for it"
    return "the devices told neither energy nor, often enough during a request, power"
