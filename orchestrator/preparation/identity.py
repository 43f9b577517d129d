"""Hashes and versions of everything that identifies a run, gathered before the lease.

The live server reports its own identity; this is what the launcher sees on disk. The two are compared in
`mismatches`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from campaigns.errors import UsageError
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.trees import CONTROL_PLANE, DATA_PLANE, file_sha256, tree_sha256
from orchestrator.hosts.software import versions

__all__ = ["CONTROL_PLANE", "DATA_PLANE", "file_sha256", "tree_sha256", "versions"]

TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)


def checkpoint_hashes(model: Path) -> dict[str, str]:
    """Hashes of a checkpoint folder: all weights, the drafter's alone, and the tokenizer's files."""
    if not (model / "config.json").is_file():
        raise UsageError(f"server.model={model}: no config.json there; name a folder with a checkpoint")
    if not list(model.glob("*.safetensors")) and not (model / "random_weights.json").is_file():
        raise UsageError(f"server.model={model}: no *.safetensors file there; the weights are missing")
    drafter = model / "drafter"
    present = [name for name in TOKENIZER_FILES if (model / name).is_file()]
    return {
        "weights_sha256": tree_sha256(model, ["."]),
        "draft_weights_sha256": tree_sha256(drafter, ["."]) if drafter.is_dir() else "",
        "tokenizer_sha256": tree_sha256(model, present) if present else "",
    }


def git_state(root: Path = ROOT) -> dict[str, str]:
    """Commit and SHA-256 of the uncommitted difference; empty where there is no repository."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=True).stdout

    try:
        commit = git("rev-parse", "HEAD").decode().strip()
        dirty = git("status", "--porcelain") + git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"git_commit": commit, "dirty_diff_sha256": hashlib.sha256(dirty).hexdigest() if dirty else ""}


def host() -> dict[str, Any]:
    return {
        "name": platform.node(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "num_cpus": os.cpu_count(),
        "boot_id": boot_id(),
    }


def boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return model or platform.processor() or platform.machine()


_COMPARED = ("source_sha256", "weights_sha256", "draft_weights_sha256", "tokenizer_sha256")


def mismatches(expected: Mapping[str, str], live: Mapping[str, Any]) -> list[str]:
    """Differences between what was prepared and what the live server says of itself, one phrase each.

    A server that says nothing is not contradicted; the report tells that it was silent. Where arms have trees of their
    own there are two of a hash, one in each of two servers (`A | B`).
    """
    return [
        f"{name} was {expected[name]} when the campaign was prepared and is {live[name]} in the server"
        for name in _COMPARED
        if expected.get(name) and live.get(name) and not _each(live[name]) <= _each(expected[name])
    ]


def _each(value: Any) -> set[str]:
    return set(str(value).split(" | "))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two reports of one life: hashes, and libraries; one that was loaded later is no change."""
    hashes = [
        f"{name} was {before[name]} and is {after[name]}"
        for name in _COMPARED
        if before.get(name) and after.get(name) and before[name] != after[name]
    ]
    first = {_place(lib): lib.get("sha256") for lib in before.get("libraries") or ()}
    return hashes + [
        f"{lib['path']} was {first[_place(lib)]} and is {lib.get('sha256')}"
        for lib in after.get("libraries") or ()
        if _place(lib) in first and first[_place(lib)] != lib.get("sha256")
    ]


def others(earlier: Iterable[Mapping[str, Any]], live: Mapping[str, Any]) -> list[str]:
    """What a server has otherwise than every earlier life of its campaign: its version, and files that it runs from."""
    versions: set[str] = set()
    seen: dict[tuple[Any, Any], set[str]] = {}
    for each in earlier:
        versions |= {each["version"]} if each.get("version") else set()
        same_host = each.get("libraries_host") == live.get("libraries_host")  # elsewhere a path holds that host's files
        for library in (each.get("libraries") or ()) if same_host else ():
            seen.setdefault(_place(library), set()).add(library.get("sha256"))
    version = live.get("version")
    told = [f"its version was {' or '.join(sorted(versions))} and is {version}"] if version and versions else []
    return (told if version not in versions else []) + [
        f"{library['path']} was {' or '.join(sorted(seen[_place(library)]))} and is {library.get('sha256')}"
        for library in live.get("libraries") or ()
        if library.get("sha256") not in seen.get(_place(library), {library.get("sha256")})
    ]


def _place(library: Mapping[str, Any]) -> tuple[Any, Any]:
    return library.get("rank"), library.get("path")
