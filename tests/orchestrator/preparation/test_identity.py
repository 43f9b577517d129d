"""Hashes by the rule of docs/wire.md, and what counts as a contradiction."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from campaigns.errors import UsageError
from orchestrator.preparation.identity import (
    CONTROL_PLANE,
    changes,
    checkpoint_hashes,
    file_sha256,
    mismatches,
    tree_sha256,
)


def tree(root: Path) -> None:
    (root / "pkg/sub").mkdir(parents=True)
    (root / "pkg/b.py").write_text("b")
    (root / "pkg/sub/a.py").write_text("a")


def test_the_tree_hash_is_the_documented_one(tmp_path: Path) -> None:
    tree(tmp_path)
    lines = "".join(
        f"{name}\0{hashlib.sha256(text.encode()).hexdigest()}\n"
        for name, text in (("pkg/b.py", "b"), ("pkg/sub/a.py", "a"))
    )
    assert tree_sha256(tmp_path, ["pkg"]) == hashlib.sha256(lines.encode()).hexdigest()


def test_byte_code_and_hidden_files_do_not_count_and_everything_else_does(tmp_path: Path) -> None:
    tree(tmp_path)
    before = tree_sha256(tmp_path, ["pkg"])
    (tmp_path / "pkg/__pycache__").mkdir()
    (tmp_path / "pkg/__pycache__/b.cpython-311.pyc").write_text("x")
    (tmp_path / "pkg/.hidden").write_text("x")
    assert tree_sha256(tmp_path, ["pkg"]) == before
    (tmp_path / "pkg/kernel.cu").write_text("x")
    assert tree_sha256(tmp_path, ["pkg"]) != before


def test_the_control_plane_is_code_and_no_configuration(tmp_path: Path) -> None:
    """A campaign keeps its own configuration, so that a file more in conf/ leaves it resumable."""
    (tmp_path / "orchestrator").mkdir()
    (tmp_path / "conf/arm").mkdir(parents=True)
    before = tree_sha256(tmp_path, CONTROL_PLANE)
    (tmp_path / "conf/arm/mine.yaml").write_text("name: mine")
    assert tree_sha256(tmp_path, CONTROL_PLANE) == before
    (tmp_path / "orchestrator/a.py").write_text("a")
    assert tree_sha256(tmp_path, CONTROL_PLANE) != before


def test_the_cache_notices_a_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("one")
    first = file_sha256(path)
    path.write_text("two!")
    assert file_sha256(path) != first


def test_missing_weights_are_a_usage_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        checkpoint_hashes(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="weights are missing"):
        checkpoint_hashes(tmp_path)


def test_declared_weights_are_hashed_as_their_declaration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "random_weights.json").write_text('{"seed": 1, "format": "dense"}')
    first = checkpoint_hashes(tmp_path)["weights_sha256"]
    (tmp_path / "random_weights.json").write_text('{"seed": 2, "format": "dense"}')
    assert checkpoint_hashes(tmp_path)["weights_sha256"] != first


def test_both_values_are_shown_and_silence_is_no_contradiction() -> None:
    expected = {"weights_sha256": "aa", "source_sha256": "cc"}
    assert mismatches(expected, {"weights_sha256": "bb", "source_sha256": "cc"}) == [
        "weights_sha256 was aa when the campaign was prepared and is bb in the server"
    ]
    assert mismatches(expected, {}) == []
    both = {"source_sha256": "aa | bb"}  # of arms that are two trees
    assert [mismatches(both, {"source_sha256": told}) for told in ("aa", "bb", "bb | aa")] == [[], [], []]
    assert mismatches(both, {"source_sha256": "aa | cc"}) and mismatches({"source_sha256": "aa"}, both)


def test_what_changed_during_a_life_is_told_and_what_came_later_is_not() -> None:
    def report(*libraries: tuple[str, str]) -> dict[str, object]:
        return {"libraries": [{"rank": 0, "path": path, "sha256": sha} for path, sha in libraries]}

    before = report(("a.so", "1"))
    assert changes(before, report(("a.so", "1"), ("b.so", "2"))) == []
    assert changes(before, report(("a.so", "9"))) == ["a.so was 1 and is 9"]
    assert changes({"weights_sha256": "1"}, {"weights_sha256": "2"}) == ["weights_sha256 was 1 and is 2"]
    assert changes({"weights_sha256": "1"}, {}) == changes({}, {"weights_sha256": "1"}) == []
