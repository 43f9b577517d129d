"""Hosts keep weights in different places: the driver's are found by what is in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from campaigns.errors import IdentityMismatch
from campaigns.plan import ServerPlan
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.trees import tree_sha256
from orchestrator.servers.weights import found, named, size_bytes


def checkpoint(folder: Path, weights: str = "w" * 40) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(weights)
    return folder


def asked(own: Path, *roots: Path) -> ServerPlan:
    sha256, size = tree_sha256(own, ["."]), size_bytes(own)
    there = tuple(map(str, roots))
    return ServerPlan("dflash2", model=str(own), model_root=there, model_sha256=sha256, model_bytes=size)


def test_the_drivers_own_are_named_here_or_below_a_root(tmp_path: Path) -> None:
    there = checkpoint(tmp_path / "shelf" / "eight")
    assert named("eight", (str(tmp_path), str(tmp_path / "shelf"))) == there
    assert named("runtime/checkpoints/nano", (str(tmp_path),)) == ROOT / "runtime/checkpoints/nano"
    assert named("nine", (str(tmp_path),)) == ROOT / "nine"  # which will be refused by that name


def test_another_host_finds_them_under_any_name(tmp_path: Path) -> None:
    own = checkpoint(tmp_path / "driver" / "eight")
    copy = checkpoint(tmp_path / "host" / "a" / "b" / "renamed")
    checkpoint(tmp_path / "host" / "eight", "x" * 40)  # the name and the size, other weights
    plan = asked(own, tmp_path / "host", tmp_path / "nowhere")
    assert found(plan, "two") == str(own)
    shutil.rmtree(own)
    assert found(plan, "two") == str(copy)
    (copy / "model.safetensors").write_text("w" * 39 + "v")
    with pytest.raises(IdentityMismatch, match=r"^two has no weights with sha256 .* which this driver's host has in"):
        found(plan, "two")
    assert found(ServerPlan("command", model="some/name"), "two") == "some/name"
