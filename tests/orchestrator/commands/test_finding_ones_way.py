"""Version, help, completion, and words that no calendar or machine has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.errors import Exit
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from orchestrator.cli import main, parser
from orchestrator.commands.host.completion import candidates
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

BIN = Path(sys.executable).parent


def offered(line: str) -> list[str]:
    return sorted(set(candidates(parser(), line.split(" ")[1:])))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("campaign st", ["status", "stop"]),
        ("campaign corpus fr", ["freeze"]),
        ("campaign run arm@campaign.candidate=cpu-t", ["arm@campaign.candidate=cpu-tuned"]),
        ("campaign plan campaign.sta", ["campaign.startups="]),
        ("campaign run --conf", ["--config-dir"]),
        ("campaign query SELECT --sch", ["--schema"]),
        ("campaign completion ", ["--help", "bash", "fish", "zsh"]),
        ("campaign history --format j", ["json", "jsonl"]),
        ("campaign nonesuch x", []),
    ],
)
def test_what_may_stand_next(line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_files_of_ones_own_are_offered_and_a_missing_store_offers_last_alone(tmp_path: Path) -> None:
    (tmp_path / "arm").mkdir()
    (tmp_path / "arm" / "very-own.yaml").write_text("name: a\n")
    line = f"campaign run --config-dir {tmp_path} arm@campaign.control=very"
    assert offered(line) == ["arm@campaign.control=very-own"]
    assert offered(f"campaign report --store {tmp_path}/none.sqlite l") == ["last"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("campaign run startup=se", ["sequential"]),
        pytest.param("campaign sta", ["status"], marks=pytest.mark.acceptance),
        pytest.param("campaign verify la", ["last"], marks=pytest.mark.acceptance),
    ],
)
def test_bash_completes(line: str, words: list[str], tmp_path: Path) -> None:
    """As readline calls it: `=` breaks a word there."""
    script = subprocess.run([BIN / "campaign", "completion", "bash"], capture_output=True, text=True, check=True).stdout
    parts = line.replace("=", " = ").split(" ")
    ask = f"""{script}
COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=({" ".join(parts)}); COMP_CWORD={len(parts) - 1}
compopt() {{ :; }}
_campaign; printf '%s\\n' "${{COMPREPLY[@]}}" """
    environment = {"PATH": f"{BIN}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (done.stdout.split(), done.stderr) == (words, "")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (["--version"], "campaign 0."),
        (["help", "report"], "usage: campaign report"),
        (["help"], "usage"),
    ):
        assert main(words) == 0 and capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize("since", ["2026-99-99", "2026-02-30", "2026-13", "2026-01-01T25"])
def test_a_time_that_no_calendar_has_is_refused(since: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--since", since]) == Exit.USAGE
    assert f"{since} is no time of any calendar" in capfd.readouterr().err


def test_an_unknown_device_is_an_unknown_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["lease", "clear", "nope", "--inventory", "cpu", "--lock-dir", str(tmp_path)]
    assert main(words) == Exit.USAGE
    assert "names nope" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "report last --output {there}",
        "export last --format vllm-bench --output {there}",
        "export last --format csv --output {folder}",
        "trend f --figure {there}",
    ],
)
def test_what_is_there_is_overwritten_only_with_force(
    words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    there, store = tmp_path / "folder" / "there.svg", tmp_path / "store.sqlite"
    there.parent.mkdir()
    there.write_text("mine")
    plan = CampaignPlan("p", Arm("a"), Arm("b"), (Fixture("f", "{}", (0,)),), ServerPlan("null"), startups=1, pairs=2)
    with Store.open(store) as writer:
        Driver(writer, plan, lambda step, attempt: Script(Trajectory(30, 10, 19), 16.0)).run()
    asked = [*words.format(there=there, folder=there.parent).split(), "--store", str(store)]
    assert main(asked) == Exit.USAGE and there.read_text() == "mine"
    assert "is there already: name another" in capfd.readouterr().err
    assert main([*asked, "--force"]) == Exit.COMPLETE
    assert there.read_text() != "mine" or list(there.parent.glob("*.csv"))


def test_a_figure_that_would_not_be_what_its_name_says_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["trend", "f", "--figure", str(tmp_path / "a.pdf")]) == Exit.USAGE
    assert "name a file that ends with .svg or .png" in capfd.readouterr().err and not list(tmp_path.iterdir())


def test_a_trend_has_a_mark_and_a_name_per_candidate_and_times_that_differ(tmp_path: Path) -> None:
    store, figure = tmp_path / "store.sqlite", tmp_path / "a.svg"
    with Store.open(store) as writer:
        for name in ("first", "second"):
            fixtures = (Fixture("f", "{}", (0,)),)
            plan = CampaignPlan("p", Arm("a"), Arm(name), fixtures, ServerPlan("null"), startups=1, pairs=2)
            Driver(writer, plan, lambda step, attempt: Script(Trajectory(30, 10, 19), 16.0)).run()
    assert main(["trend", "f", "--figure", str(figure), "--store", str(store)]) == Exit.COMPLETE
    drawn = figure.read_text()
    assert all(text in drawn for text in (">first<", ">second<", "bars span its startups", "01-02 03:04"))
