"""Mutants of benchmarks/mutants.py that the contract lets pass and another gate finds: which gate, of what, and why.

python benchmarks/mutants.py --device cuda --only ID --plant DIR
cd DIR && python -m kernels.gate SCHEDULE --gate GATE
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """`gate` fails for `schedule`, of whose checks one contains `check`."""

    schedule: str
    gate: str
    check: str
    reason: str


BEYOND: dict[str, Found] = {
    "1a3984ab": Found(
        "accept/verdict", "sanitizer", "racecheck",
        "warps that have read what remains go on while others still read it; all need the same time for it",
    ),
    "0ed5193e": Found(
        "shortlist/codes", "sanitizer", "racecheck",
        "the 16 bytes behind an array are two transaction barriers', which hold more than a plain store changes",
    ),
}  # fmt: skip
