"""A campaign is one server: its files count by content, wherever they lie and whatever is edited meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from campaigns.errors import IdentityMismatch, UsageError
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from campaigns.provenance import differing_keys
from orchestrator.attempt import _require_same_files
from orchestrator.launch import composed
from orchestrator.preparation.prepare import Prepared, prepare_again
from orchestrator.servers.commanded import files_of

WORDS = (
    "server=command",
    "campaign.mode=aa",
    "arm@campaign.control=default",
    "arm@campaign.candidate=default",
    "campaign.max_tokens=8",
)


def server(folder: Path, code: str = "import helper\n", helper: str = "import deep.part\n") -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "serve.py").write_text(code)
    (folder / "helper.py").write_text(helper)
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "part.py").write_text("WIDTH = 1\n")
    (folder / "unrelated.py").write_text("")
    return folder / "serve.py"


def prepared(script: Path, *words: str) -> Prepared:
    return composed([*WORDS, f"server.command=['{sys.executable}','{script}','{{port}}']", *words])


def test_equal_code_at_two_places_is_equal_and_other_code_at_one_place_is_not(tmp_path: Path) -> None:
    one, other = prepared(server(tmp_path / "a")), prepared(server(tmp_path / "b"))
    assert one.fingerprint == other.fingerprint
    (tmp_path / "b" / "serve.py").write_text("import helper  # slower\n")
    assert differing_keys(one.fingerprint, prepared(tmp_path / "b" / "serve.py").fingerprint) == (
        "server.file.serve.py",
    )


@pytest.mark.parametrize("name", ["serve.py", "helper.py", "deep/part.py"])
def test_a_file_that_was_edited_is_named_by_resume_and_by_the_next_life(tmp_path: Path, name: str) -> None:
    before = prepared(server(tmp_path / "a"))
    desk: Any = SimpleNamespace(plan=before.plan, prepared=before)  # what is asked of it, without a store
    _require_same_files(desk)
    edited = tmp_path / "a" / name
    edited.write_text(edited.read_text() + "# edited\n")
    file = Path(name).name
    assert differing_keys(before.fingerprint, prepare_again(before.config_json).fingerprint) == (f"server.file.{file}",)
    with pytest.raises(IdentityMismatch, match=rf"{file} changed since the campaign began"):
        _require_same_files(desk)


def test_what_the_server_does_not_import_is_not_its_own(tmp_path: Path) -> None:
    script = server(tmp_path / "a")
    before = prepared(script)
    (tmp_path / "a" / "unrelated.py").write_text("x = 1\n")
    assert prepared(script).fingerprint == before.fingerprint


def test_what_the_server_writes_is_not_what_it_is(tmp_path: Path) -> None:
    script, log = server(tmp_path / "a"), tmp_path / "server.log"
    log.write_text("")
    before = prepared(script, f"server.args=['--log={log}']")
    log.write_text("an answer\n")
    _require_same_files(SimpleNamespace(plan=before.plan, prepared=before))  # type: ignore[arg-type]
    assert prepared(script, f"server.args=['--log={log}']").fingerprint == before.fingerprint


def test_files_behind_flags_in_arms_in_the_environment_and_models_count(tmp_path: Path) -> None:
    names = ("flag.json", "arm.bin", "env.toml", "weights.gguf")
    for name in names:
        (tmp_path / name).write_text(name)
    plan = CampaignPlan(
        "t",
        Arm("a", args=(f"--draft={tmp_path}/arm.bin",)),
        Arm("b"),
        (Fixture("f", "{}", (1,)),),
        ServerPlan(
            "command",
            command=("python3", f"--config={tmp_path}/flag.json", "relative.json", "{port}"),
            env=(("CONF", f"{tmp_path}/env.toml"),),
            model=str(tmp_path / "weights.gguf"),
        ),
    )
    assert set(names) < {path.name for path in files_of(plan)}
    assert "relative.json" not in {path.name for path in files_of(plan)}


def trees(tmp_path: Path, *more: str) -> Prepared:
    words = (
        "campaign.mode=ab",
        "startup=co_resident",
        f"server.command=['{sys.executable}','{{tree}}/serve.py','{{port}}']",
    )
    arms = [f"campaign.{role}.tree={tmp_path / role}" for role in ("control", "candidate")]
    return composed([*WORDS, *words, *arms, "campaign.candidate.name=other", *more])


def test_arms_are_trees_that_count_by_content_wherever_they_lie(tmp_path: Path) -> None:
    for place in (tmp_path / "one", tmp_path / "other"):
        server(place / "control", "import helper\n")
        server(place / "candidate", "import helper  # slower\n")
    one = trees(tmp_path / "one")
    assert one.fingerprint == trees(tmp_path / "other").fingerprint
    assert one.plan.differences == (f"tree: {tmp_path}/one/control -> {tmp_path}/one/candidate",)
    desk = SimpleNamespace(plan=one.plan, prepared=one)
    _require_same_files(desk)  # type: ignore[arg-type]
    (tmp_path / "one" / "candidate" / "unrelated.py").write_text("x = 1\n")  # what is built in a tree is the tree's
    with pytest.raises(IdentityMismatch, match=r"the tree of other .*/one/candidate. changed since the campaign began"):
        _require_same_files(desk)
    assert differing_keys(one.fingerprint, prepare_again(one.config_json).fingerprint) == ("arm.candidate",)


def test_a_tree_that_no_word_names_and_a_word_without_a_tree_are_refused(tmp_path: Path) -> None:
    server(tmp_path / "control"), server(tmp_path / "candidate")
    with pytest.raises(UsageError, match="no word of the server names it"):
        trees(tmp_path, f"server.command=['{sys.executable}','serve.py','{{port}}']")
    with pytest.raises(UsageError, match="arm other has no tree"):
        trees(tmp_path, "campaign.candidate.tree=''")
    with pytest.raises(UsageError, match="no such folder"):
        trees(tmp_path, "campaign.candidate.tree=/nowhere")
    with pytest.raises(UsageError, match="need co_resident"):
        trees(tmp_path, "startup=switch")


def test_campaigns_without_trees_keep_the_fingerprint_that_they_had(tmp_path: Path) -> None:
    assert "tree" not in prepared(server(tmp_path / "a")).fingerprint["arm.control"]
