"""What is known of the neighbours of a campaign's startups: the newest probe of as many on such devices, or none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from campaigns.records import Campaign
from results.store.reader import Reader

GATE = "neighbours"


def subject(per_host: int) -> str:
    return f"lease.per_host={per_host}"


def neighbours(reader: Reader, campaign: Campaign, plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Sentences of a report; none for a campaign whose startups had their hosts to themselves."""
    per_host = int(plan["lease"].get("per_host", 1))
    if per_host == 1:
        return ()
    told = f"up to {per_host} startups at a time worked on one host (lease.per_host)"
    line = _newest(reader, campaign, per_host)
    if line is None:
        probe = f"campaign probe neighbours lease.per_host={per_host}"
        return (f"{told}; no probe on such devices says what they do to each other: {probe}",)
    low, high = line["ci_pct"] or (None, None)
    interval = "no interval" if low is None else f"95 % {low:+.2f} to {high:+.2f} %"
    return (
        f"{told}; a probe of {line['utc'][:10]} over {line['n_turns']} turns on such devices found times "
        f"{line['slower_pct']:+.2f} % beside neighbours ({interval}) and pairs of equal arms "
        f"{line['pair_sd_beside_pct']:.2g} % apart instead of {line['pair_sd_alone_pct']:.2g} % (standard deviations)",
    )


def _newest(reader: Reader, campaign: Campaign, per_host: int) -> dict[str, Any] | None:
    same = {"devices": campaign.fingerprint.get("host.device_names"), "cpu": campaign.fingerprint.get("host.cpu")}
    found = [
        {**line, "utc": probe.utc}
        for probe in sorted(reader.probes(), key=lambda probe: probe.utc)
        if probe.gate == GATE and probe.subject == subject(per_host)
        if {name: (line := json.loads(probe.line_json)).get(name) for name in same} == same
    ]
    return found[-1] if found else None
