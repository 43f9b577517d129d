"""What all startups of a campaign must share, as each host of it has it: code, libraries, files, kind of device."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from campaigns.errors import IdentityMismatch
from campaigns.plan import CampaignPlan
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.trees import CONTROL_PLANE, DATA_PLANE, tree_sha256
from orchestrator.hosts.software import versions
from orchestrator.servers import commanded

_SHOWN = 12  # characters of a hash


@dataclass(frozen=True)
class Ground:
    """What all startups of a campaign must share, as a host has it."""

    host: str
    device_names: tuple[str, ...]
    code_sha256: str
    versions: Mapping[str, str]
    files: Mapping[str, str]  # of a server that a command line starts, by content

    @classmethod
    def here(cls, device_names: tuple[str, ...], plan: CampaignPlan, path: str | None) -> Ground:
        """`path` is the PATH that servers will have."""
        code = tree_sha256(ROOT, (*CONTROL_PLANE, *DATA_PLANE))
        files = commanded.named(commanded.files_of(plan, path))
        files |= {f"tree {arm.tree}": commanded.tree_of(arm) for arm in (plan.control, plan.candidate) if arm.tree}
        return cls(socket.gethostname(), device_names, code, versions(), files)

    def require_like(self, other: Ground) -> None:
        """IdentityMismatch that names both hosts where startups here would not be those of there."""
        if self.code_sha256 != other.code_sha256:
            raise IdentityMismatch(
                f"{self.host} has other code ({self.code_sha256[:12]}) than {other.host} ({other.code_sha256[:12]}), "
                "though it was sent there: take one of them out of the cluster"
            )
        self._require_same("", self.versions, other, other.versions)
        self._require_same("sha256 of ", self.files, other, other.files)
        if self.device_names != other.device_names:
            theirs, ours = (", ".join(names) for names in (other.device_names, self.device_names))
            raise IdentityMismatch(
                f"{self.host} has {ours} and {other.host} has {theirs}: a campaign is of one kind of device; take one "
                "of them out of the cluster, or name devices by lease.uuids"
            )

    def _require_same(self, what: str, mine: Mapping[str, str], other: Ground, its: Mapping[str, str]) -> None:
        for name in sorted(mine.keys() | its.keys()):
            ours, theirs = (each.get(name, "none")[:_SHOWN] for each in (mine, its))
            if mine.get(name) != its.get(name):
                raise IdentityMismatch(
                    f"{self.host} has {what}{name.removeprefix('server.file.')} {ours} and {other.host} has {theirs}: "
                    "bring both to the same, or take one of them out of the cluster"
                )
