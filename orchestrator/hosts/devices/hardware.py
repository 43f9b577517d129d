"""What device samples say about a request: joined by time, judged by fixed rules before anyone looks at the arms. Pure.

A hardware or thermal slowdown, and a process that is not the server's, exclude the request they touch. A power cap is
how these devices work under load and excludes nothing. Only devices that report event bits (GPUs) give a request its
clocks: those of a CPU host move all the time, and stay in the samples.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from functools import reduce
from operator import or_

from campaigns.reasons import Reason
from campaigns.records import DeviceSample, Request

# Bits of NVML's clock event reasons (nvml.h).
POWER_CAP = 0x04
SLOWDOWN = 0x08 | 0x20 | 0x40 | 0x80  # hardware, software thermal, hardware thermal, power brake


def with_samples(request: Request, samples: Sequence[DeviceSample]) -> Request:
    """The request with the clocks and event bits of the samples between its sending and its end, and its flags.

    A request so short that no sample fell into it keeps None: nobody looked.
    """
    during = [sample for sample in samples if request.send_ns <= sample.ns <= request.end_ns]
    judged = [sample for sample in during if sample.throttle_bits is not None]
    clocks = [sample.sm_clock_mhz for sample in judged if sample.sm_clock_mhz is not None]
    bits = [sample.throttle_bits for sample in judged if sample.throttle_bits is not None]
    found = tuple(_reasons(during))
    return dataclasses.replace(
        request,
        min_sm_clock_mhz=min(clocks, default=None),
        median_sm_clock_mhz=round(statistics.median(clocks)) if clocks else None,
        throttle_bits=reduce(or_, bits) if bits else None,
        reasons=request.reasons + tuple(reason for reason in found if reason not in request.reasons),
        admissible=request.admissible and not found,
    )


def _reasons(samples: Sequence[DeviceSample]) -> list[Reason]:
    found = []
    if any((sample.throttle_bits or 0) & SLOWDOWN for sample in samples):
        found.append(Reason.THROTTLE)
    if any(sample.foreign_pids for sample in samples):
        found.append(Reason.FOREIGN_PROCESS)
    return found
