"""What makes two results comparable.

A fingerprint is a flat mapping of names to text. Equal fingerprints may stand side by side; else the differing keys
are shown. It holds what decides numbers (weights, code, devices, sampling, arms), not what merely identifies a run
(paths, times, user). `orchestrator.preparation.identity` gathers the values; this module only says which of them count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from campaigns.plan import Arm, CampaignPlan, Seeds

METHODOLOGY_VERSION = 3  # raised whenever a number could come out differently from the same rows


@dataclass(frozen=True)
class Build:
    """Hashes of everything that was built or frozen before the campaign began; empty text where there is none."""

    control_plane_sha256: str
    runtime_sha256: str
    weights_sha256: str
    draft_weights_sha256: str
    tokenizer_sha256: str
    corpus_sha256: str
    prompts_sha256: str


@dataclass(frozen=True)
class Host:
    device_names: tuple[str, ...]
    driver: str
    cpu: str
    python: str
    torch: str


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, so that its hash means something."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(plan: CampaignPlan, build: Build, host: Host, files: Mapping[str, str]) -> dict[str, str]:
    """Flat and ordered by name; every value is text.

    `files` are those of the server by content, `server.file.NAME` -> SHA-256; the words of `plan` then name no paths,
    and an arm's `tree` is the hash of what lies in it.
    """
    parts: dict[str, Any] = {
        **asdict(build),
        **files,
        **{f"host.{name}": value for name, value in asdict(host).items()},
        **{f"sampling.{name}": value for name, value in asdict(plan.sampling).items()},
        "methodology_version": METHODOLOGY_VERSION,
        "arm.control": arm_facts(plan.control),
        "arm.candidate": arm_facts(plan.candidate),
        "server.adapter": plan.server.adapter,
        "server.command": plan.server.command,
        "server.args": plan.server.args,
        "server.env": plan.server.env,
        "order": plan.order,
        "startup_mode": plan.startup_mode,
        "warmups": plan.warmups,
        "keep_alive": plan.client.keep_alive,
        **({"profile": True} if plan.profile else {}),
        **({"server.proxy": plan.server.proxy} if plan.server.proxy else {}),
        **({"server.request_fields": plan.server.request_fields} if plan.server.request_fields else {}),
        **({"seeds": plan.seeds} if plan.seeds is not Seeds.FIXED else {}),
        **({"server.prompt_state": plan.server.prompt_state} if plan.server.prompt_state else {}),
        # Times taken beside neighbours are other times than those of a startup that had its host to itself.
        **({"lease.per_host": str(plan.lease.per_host)} if plan.lease.per_host > 1 else {}),
    }
    return {name: value if isinstance(value, str) else canonical_json(value) for name, value in sorted(parts.items())}


def arm_facts(arm: Arm) -> dict[str, Any]:
    """Without the tree where it has none: such arms are those of campaigns from before arms could have one."""
    return {name: value for name, value in asdict(arm).items() if value or name != "tree"}


def differing_keys(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """Names whose values differ or that only one side has."""
    return tuple(sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name)))
