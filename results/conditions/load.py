"""How busy the host was while its processors were leased. GPU hosts have a utilisation per device, and no load here."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from campaigns.records import CPU_UUID
from results.store.reader import Reader

_LOADS = text("""
SELECT load FROM device_sample WHERE campaign_id = :campaign AND device_uuid LIKE :cpu AND load IS NOT NULL
""")
_LARGEST = text("""
SELECT c.campaign_id, s.largest, c.provenance FROM campaign c JOIN (
    SELECT campaign_id, max(load) AS largest FROM device_sample WHERE device_uuid LIKE 'cpu-%' AND load IS NOT NULL
    GROUP BY campaign_id
) s ON s.campaign_id = c.campaign_id
""")


@dataclass(frozen=True)
class HostLoad:
    """Load averages over one minute: processes that run or want to, the server's own among them."""

    median: float
    largest: float
    num_cpus: int | None  # of the driver's host

    @property
    def waited(self) -> str:
        """Why times of this host are no support for a verdict; empty where no process had to wait for a processor."""
        if self.num_cpus is None or self.largest <= self.num_cpus:
            return ""
        return f"the load of the host reached {self.largest:.2f} on {self.num_cpus} CPUs"

    @property
    def line(self) -> str:
        cpus = "" if self.num_cpus is None else f" on {self.num_cpus} CPUs"
        mark = " ! more than there are: processes waited for one" if self.waited else ""
        return f"load of the host: median {self.median:.2f}, largest {self.largest:.2f}{cpus}{mark}"


def waits(reader: Reader) -> dict[str, str]:
    """`HostLoad.waited` of every campaign that was held up, by its id, in one question."""
    found = {}
    for name, largest, provenance in reader.connection.execute(_LARGEST):
        num_cpus = json.loads(provenance).get("host", {}).get("num_cpus")
        found[name] = HostLoad(largest, largest, num_cpus).waited
    return {name: why for name, why in found.items() if why}


def host_load(reader: Reader, campaign_id: str, provenance: Mapping[str, Any]) -> HostLoad | None:
    """None where no processor was sampled."""
    asked = {"campaign": campaign_id, "cpu": f"{CPU_UUID}%"}
    loads = list(reader.connection.scalars(_LOADS, asked))
    if not loads:
        return None
    return HostLoad(statistics.median(loads), max(loads), provenance.get("host", {}).get("num_cpus"))
