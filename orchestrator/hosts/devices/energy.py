"""What a request cost in energy: the difference of the devices' own counters, or their power over time.

All that the leased devices drew between the two readings counts, their idle draw too, whoever caused it. Counters move
in steps (tens of milliseconds), power is itself a mean over such a time: a figure is for sums over many requests or for
long ones. The choice is that of Zeus (Chung et al., https://ml.energy/zeus): the counter where there is one, else the
integral of power samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from campaigns.records import DeviceSample, EnergySource, Request
from orchestrator.hosts.devices.device import Inventory

_LEAST_SAMPLES = 2  # of each device while the request ran


def counted_mj(inventory: Inventory, uuids: Sequence[str]) -> int | None:
    """What the counters of all these devices say together; None where one of them has none."""
    readings = [inventory.energy_mj(uuid) for uuid in uuids]
    known = [reading for reading in readings if reading is not None]
    return sum(known) if known and len(known) == len(readings) else None


def difference_mj(before: int | None, after: int | None) -> int | None:
    """None for a counter that went back: the driver was loaded anew."""
    return None if before is None or after is None or after < before else after - before


def with_power(request: Request, samples: Sequence[DeviceSample]) -> Request:
    """The request with the integral of its samples' power, where no counter told its energy."""
    if request.energy_mj is not None:
        return request
    energy_mj = integrated_mj(samples, request.send_ns, request.end_ns)
    source = None if energy_mj is None else EnergySource.POWER
    return dataclasses.replace(request, energy_mj=energy_mj, energy_source=source)


def integrated_mj(samples: Sequence[DeviceSample], begin_ns: int, end_ns: int) -> int | None:
    """Power of all sampled devices between two times, by trapezoids; at the ends it is interpolated or the nearest.

    None where a device did not tell its power, or was seen less than twice in between.
    """
    uuids = {sample.device_uuid for sample in samples}
    parts = [_of_device([s for s in samples if s.device_uuid == uuid], begin_ns, end_ns) for uuid in uuids]
    known = [part for part in parts if part is not None]
    return round(sum(known)) if known and len(known) == len(parts) else None


def _of_device(samples: Sequence[DeviceSample], begin_ns: int, end_ns: int) -> float | None:
    told = sorted((s.ns, s.power_mw) for s in samples if s.power_mw is not None)
    inside = [ns for ns, _ in told if begin_ns <= ns <= end_ns]
    if len(inside) < _LEAST_SAMPLES:
        return None
    times = np.array([begin_ns, *inside, end_ns], dtype=np.float64)
    power_mw = np.interp(times, [float(ns) for ns, _ in told], [float(mw) for _, mw in told])
    return float(np.trapezoid(power_mw, times)) * 1e-9
