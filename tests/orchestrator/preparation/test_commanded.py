"""A campaign is one server: its files count by content, wherever they lie and whatever is edited meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from campaigns.errors import IdentityMismatch
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from campaigns.provenance import differing_keys
from orchestrator.attempt import _require_same_files
from orchestrator.launch import composed
from orchestrator.preparation.commanded import files_of
from orchestrator.preparation.prepare import prepare_again

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


def prepared(script: Path, *words: str):  # type: ignore[no-untyped-def]
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
    desk = SimpleNamespace(plan=before.plan, prepared=before)
    _require_same_files(desk)  # type: ignore[arg-type]
    edited = tmp_path / "a" / name
    edited.write_text(edited.read_text() + "# edited\n")
    file = Path(name).name
    assert differing_keys(before.fingerprint, prepare_again(before.config_json).fingerprint) == (f"server.file.{file}",)
    with pytest.raises(IdentityMismatch, match=rf"{file} changed since the campaign began"):
        _require_same_files(desk)  # type: ignore[arg-type]


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
