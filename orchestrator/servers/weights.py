"""Where a host has the weights: at the model's own place, or below a folder of `server.model_root`, by content.

Hosts keep weights in different places. The driver finds them by name and hashes them; every other host looks for that
hash, the folder of the same name first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from campaigns.errors import IdentityMismatch
from campaigns.plan import ServerPlan
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.trees import files_below, tree_sha256

_OTHER = "another size"
_DEEP = 3  # folders below a root


def named(model: str, roots: tuple[str, ...]) -> Path:
    """The folder that `model` means on this host; where none is there, the one beside this code."""
    places = (ROOT / model, *(Path(root) / model for root in roots))
    return next((place for place in places if place.is_dir()), places[0])


def found(plan: ServerPlan, host: str) -> str:
    """The model as a server on this host is told it: a folder with the driver's weights, or the name as it is."""
    if not plan.model_sha256:
        return plan.model
    seen: dict[str, str] = {}
    for folder in _candidates(plan):
        if size_bytes(folder) != plan.model_bytes:
            seen[str(folder)] = _OTHER  # large weights are not read for nothing
            continue
        seen[str(folder)] = tree_sha256(folder, ["."])
        if seen[str(folder)] == plan.model_sha256:
            return str(folder)
    there = "; ".join(f"{path} has {sha256[:12]}" for path, sha256 in seen.items()) or "no checkpoint of that name"
    roots = ", ".join(plan.model_root)
    raise IdentityMismatch(
        f"{host} has no weights with sha256 {plan.model_sha256[:12]}, which this driver's host has in {plan.model} "
        f"({there}{f'; looked below {roots}' if roots else ''}): copy them there, or name their folder in "
        "server.model_root"
    )


def size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in files_below(folder))


def _candidates(plan: ServerPlan) -> Iterator[Path]:
    """Those of the same name first: weights are large, and each is hashed."""
    own = Path(plan.model)
    if own.is_dir():
        yield own
    below = [folder for root in plan.model_root for folder in _checkpoints(Path(root))]
    yield from sorted((folder for folder in below if folder != own), key=lambda folder: folder.name != own.name)


def _checkpoints(root: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(root):
        if "config.json" in files:
            yield Path(name)
            folders.clear()
        if len(Path(name).relative_to(root).parts) >= _DEEP:
            folders.clear()
