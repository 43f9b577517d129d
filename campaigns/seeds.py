"""Which seed a request is sent with: a pure function of the plan, so that a resumed campaign sends the same ones.

A warm-up has a seed that no measured request has: the first measured request of a prompt and seed then meets a server
that is warm and has not seen it, and what the server remembers shows between that one and its repeats.
"""

from __future__ import annotations

import hashlib

from campaigns.plan import CampaignPlan, PairKey, Seeds

_BITS = 31  # what every server takes for a seed


def measured_seed(plan: CampaignPlan, key: PairKey) -> int:
    """Of both requests of a pair. A fresh one is the same in every startup, so that restarts can be compared."""
    if plan.seeds is Seeds.FIXED:
        return key.seed
    return _drawn(plan, key, f"pair {key.repeat}")


def warmup_seed(plan: CampaignPlan, key: PairKey, turn: int) -> int:
    return _drawn(plan, key, f"warm-up {turn}")


def _drawn(plan: CampaignPlan, key: PairKey, what: str) -> int:
    digest = hashlib.sha256(f"{plan.seed}\0{key.fixture}\0{key.seed}\0{what}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> (32 - _BITS)
