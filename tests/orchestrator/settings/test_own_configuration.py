"""Configuration outside the checkout: every group, `run`, `plan` and `doctor`, with the errors that conf/ has."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from campaigns.errors import Exit
from campaigns.plan import Arm, differences, several_changes
from orchestrator.cli import main
from orchestrator.launch import composed
from orchestrator.settings.folders import names, with_folders


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "it's mine, all"]) == Exit.COMPLETE  # a name that Hydra's grammar would stumble over
    return tmp_path / "it's mine, all"


def test_the_start_composes_and_the_plan_names_its_files(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert main(["plan", "--config-dir", str(own), "campaign=mine"]) == Exit.COMPLETE
    told = capfd.readouterr().out
    assert "changes    args: --round-ms 4 -> --round-ms 3" in told
    assert all(str(path) in told for path in own.rglob("*.yaml"))
    prepared = composed(with_folders(["campaign=mine"], [own]))
    assert prepared.plan.server.command[-1] == "{port}" and len(prepared.plan.fixtures) == 2
    files = prepared.provenance["config_files"]
    assert {str(path) for path in own.rglob("*.yaml")} < set(files) and "conf/config.yaml" in files


BRIEFLY = ("arm", "server")  # the one with a package of its own, and one of the others


@pytest.mark.parametrize(
    "group", [n if n in BRIEFLY else pytest.param(n, marks=pytest.mark.acceptance) for n in names()]
)
def test_every_group_may_have_a_file_of_ones_own(
    group: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own" / group).mkdir(parents=True)
    (tmp_path / "own" / group / "empty.yaml").write_text("{}\n")
    word = "arm@campaign.candidate=empty" if group == "arm" else f"{group}=empty"
    assert main(["run", "--config-dir", "own", word, "--cfg", "job"]) == Exit.COMPLETE
    assert main(["run", word, "--cfg", "job", "--config-dir", "own"]) == Exit.COMPLETE
    assert main(["run", f"hydra.searchpath=[{tmp_path}/own]", word, "--cfg", "job"]) == Exit.COMPLETE
    assert main(["run", "--config-dir", "own", word.replace("empty", "emty"), "--cfg", "job"]) == Exit.USAGE
    assert "did you mean empty?" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--config-dir", "nowhere"], "nowhere: no such folder; campaign init"),
        (["plan", "--config-dir", "."], "none of server, lease"),
        (["plan", "hydra.searchpath=[nowhere]"], "campaign: --config-dir or hydra.searchpath: "),
        (["plan", "+campaign.pairs=2"], "campaign.pairs is there already: leave the plus out, campaign.pairs=…"),
        (["run", "hydra.searchpath=nowhere"], "must be a list of folders; write hydra.searchpath=[FOLDER"),
        (["run", "hydra.searchpath=[s3://a]"], "nothing is read from s3://"),
        (["run", "hydra.searchpath=[pkg://no.such.package]"], "there is no package no.such.package to import"),
        (["plan", "--config-dir", "taken"], "have one name: rename yours"),
        (["run", "--config-dir", "bad", "arm@campaign.candidate=bad"], "bad/arm/bad.yaml: there is no key nme"),
        (["run", "--config-dir", "broken", "arm@campaign.candidate=broken"], "broken.yaml, line 2: "),
        (["init", "bad"], ""),
    ],
)
def test_what_is_wrong_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name, text in (
        ("taken", "default", "name: a\n"),
        ("bad", "bad", "nme: a\n"),
        ("broken", "broken", "name: {a\n"),
    ):
        (tmp_path / folder / "arm").mkdir(parents=True)
        (tmp_path / folder / "arm" / f"{name}.yaml").write_text(text)
    assert main(words) == (Exit.USAGE if said else Exit.COMPLETE)
    captured = capfd.readouterr()
    assert said in captured.err and captured.err.count("\n") == bool(said)


def test_init_overwrites_only_with_force(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arm = own / "arm" / "mine-control.yaml"
    arm.write_text("name: edited\n")
    assert main(["init", str(own)]) == Exit.USAGE and arm.read_text() == "name: edited\n"
    assert "overwrite it with --force" in capfd.readouterr().err
    assert main(["init", str(own), "--force"]) == Exit.COMPLETE and "edited" not in arm.read_text()


def test_doctor_composes_ones_own_campaigns(
    own: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.diagnosis.doctor.CHECKS", ())
    assert main(["doctor", "--json", "--config-dir", str(own)]) == Exit.COMPLETE
    (own / "arm" / "mine-candidate.yaml").write_text("args: [a]\n")
    assert main(["doctor", "--json", "--config-dir", str(own)]) == Exit.WORLD
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert [row["level"] for row in rows] == ["ok", "fault"]
    assert "name" in rows[1]["found"]


def composed_arm(*words: str) -> tuple[tuple[str, str], ...]:
    return composed(["server=embedded", *words]).plan.candidate.schedules


def test_a_mapping_that_is_given_replaces_what_was_there() -> None:
    """torch-tuned names projection and selection: what is written is all that is measured."""
    assert composed_arm("campaign.candidate.schedules={projection: columns-128}") == (("projection", "columns-128"),)
    both = composed_arm(
        "campaign.candidate.schedules={projection: columns-32}", "+campaign.candidate.schedules.selection=keys"
    )
    assert both == (("projection", "columns-32"), ("selection", "keys"))
    assert len(composed_arm("+campaign.candidate.schedules={projection: columns-128}")) == 2  # a plus adds
    env = composed(["startup=co_resident", "campaign.candidate.env={A: x}"]).plan.candidate.env
    assert env == (("A", "x"),)


def test_a_replaced_mapping_in_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import orchestrator.launch
    import orchestrator.studies.sweep

    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(
        orchestrator.launch,
        "prepare",
        lambda config, values, files: SimpleNamespace(campaign=lambda: None, values=values),
    )
    monkeypatch.setattr(orchestrator.studies.sweep, "check_room", lambda prepared, at_once: None)
    monkeypatch.setattr(
        orchestrator.studies.sweep,
        "run",
        lambda jobs, at_once, output: seen.extend(job.prepared.values for job in jobs) or [Exit.COMPLETE],
    )
    swept = "campaign.candidate.schedules={projection: columns-128},{selection: keys}"
    assert main(["run", "--multirun", swept]) == Exit.COMPLETE
    assert [values["campaign"]["candidate"]["schedules"] for values in seen] == [
        {"projection": "columns-128"},
        {"selection": "keys"},
    ]


def test_differences_name_what_changes() -> None:
    one = Arm("a", (("gdn", "bv2"), ("selection", "sort")), (("X", "1"),), ("--a",))
    other = Arm("b", (("gdn", "bv8"),), (("X", "2"),))
    assert differences(one, other) == (
        "gdn: bv2 -> bv8",
        "selection: sort -> default",
        "env X: 1 -> 2",
        "args: --a -> none",
    )
    assert "2 operators (gdn, selection)" in several_changes(one, other)
    assert several_changes(one, Arm("c", (("gdn", "bv8"), ("selection", "sort")))) == ""
    none, three = Arm("d", speculation="none"), Arm("e", speculation="dflash", num_speculative_tokens=3)
    assert differences(none, three) == ("num_speculative_tokens: default -> 3", "speculation: none -> dflash")
    assert "2 operators (gdn, speculation)" in several_changes(
        Arm("f", (("gdn", "bv2"),)), Arm("g", (("gdn", "bv8"),), speculation="none")
    )


def test_the_written_files_are_yaml_with_comments(own: Path) -> None:
    for path in own.rglob("*.yaml"):
        assert yaml.safe_load(path.read_text()) and "#" in path.read_text()
