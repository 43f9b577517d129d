"""Every command that reads, on a store whose names come from somebody who means harm, and in any encoding."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus, Failure
from campaigns.remarks import Decision, Probe
from orchestrator.cli import main
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver

RED, TITLE, C1, TURNED = "\x1b[31m", "\x1b]0;owned\x07", "\x9b31m", "\u202egnp.exe"
EVIL = f"=1+1{RED}{TITLE}{C1}{TURNED}✓"
OBEYED = re.compile(r"\x1b\[31m|\x1b\]0|\x9b|\u202e|\x07")
PLAN = CampaignPlan(
    EVIL,
    Arm(f"@{RED}a"),
    Arm(f"-{C1}b", (("projection", "columns-32"),)),
    (Fixture(f"+{TITLE}f", "{}", (0,)),),
    ServerPlan("null", model=f"={TURNED}"),
    startups=3,
    pairs=2,
)
ID = "last"
SCHEDULE = "projection/columns-32"
COMMANDS = [
    ["status"], ["status", "last"], *(["status", "--format", f] for f in ("md", "csv", "json", "jsonl")),
    *(["report", ID, "--format", f] for f in ("md", "json", "jsonl", "csv", "html", "github", "junit")),
    ["verify", ID], ["compare", ID, ID], ["history"], ["history", "--format", "csv"], ["history", "--scores"],
    ["trend", f"+{TITLE}f"], ["query", "SELECT * FROM campaign"], ["query", "--schema"], ["baseline", "list"],
    ["tag", ID], ["note", ID], ["gates", SCHEDULE], ["gates", f"{RED}none"], ["report", f"{RED}none"],
    ["status", EVIL], ["baseline", "set", EVIL, ID], ["baseline", "list"], ["history", "--baseline", f"{C1}x"],
    ["tag", ID, f"{RED}tag"], ["note", ID, f"note {TITLE}"], ["history", "--arm", EVIL], ["frobnicate" + RED], [EVIL],
    ["export", ID, "--format", "csv", "--output", "FOLDER"], ["plan", f"{RED}=1"], ["run", f"{TITLE}=1"],
    ["resume", f"{C1}x"], ["stop", EVIL], ["score", EVIL], ["import", EVIL],
    ["floor", ID, "--by", EVIL, "--reason", EVIL],
    ["promote", SCHEDULE, "--by", EVIL, "--reason", EVIL, "--decision", "hold"], ["corpus", "show", EVIL],
    ["lease", "list", "--inventory", f"simulated:{RED}"], ["completion", EVIL], ["complete", "--", EVIL], ["help"],
]  # fmt: skip
_ALL = """
import json, sys
from orchestrator.cli import main
codes = {}
for words in json.loads(sys.argv[1]):
    codes[json.dumps(words)] = main(words)
open(sys.argv[2], "w").write(json.dumps(codes))
"""
_NO_STORE = {"plan", "run", "import", "lease", "completion", "complete", "help", "corpus"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("any")
    with Store.open(path / "store.sqlite") as store:
        host = {"host.device_names": json.dumps([EVIL]), "git.commit": EVIL}
        driver = Driver(store, PLAN, lambda step, attempt: Script(Trajectory(30, 10, 19), 16.0), host)
        name = driver.run()
        store.failure(Failure(name, CREATED, Reason.OPERATOR, f"said {EVIL}"))
        store.status(name, CampaignStatus.HELD, f"because {EVIL}")
        store.probes([Probe(CREATED, "contract", SCHEDULE, "failed", "ab" * 32, json.dumps({"why": EVIL}))])
        store.decision(Decision(CREATED, SCHEDULE, "hold", EVIL, EVIL, "[]"))
    yield path


def orders(folder: Path) -> list[list[str]]:
    """With the store, where a command has one."""
    store = ["--store", str(folder / "store.sqlite")]
    made = [[str(folder / "tables") if word == "FOLDER" else word for word in words] for words in COMMANDS]
    return [
        words if words[0] in _NO_STORE or "=" in words[0] or RED in words[0] else [*words, *store] for words in made
    ]


def codes(folder: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((folder / "codes.json").read_text())
    assert len(found) == len({json.dumps(words) for words in orders(folder)})
    return found


def command(folder: Path) -> list[str]:
    return [sys.executable, "-c", _ALL, json.dumps(orders(folder)), str(folder / "codes.json")]


@pytest.mark.acceptance
def test_any_locale_and_encoding_prints_every_command(folder: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command(folder), env=environment, capture_output=True, cwd=folder)
    text = (done.stdout + done.stderr).decode("ascii")
    assert "Traceback" not in text and done.returncode == 0, text[-2000:]
    assert "\\u2713" in text, "what the encoding lacks is spelt out"
    assert set(codes(folder).values()) <= {0, 1, 2, 3, 4, 5}


@pytest.mark.acceptance
def test_no_name_commands_a_terminal(folder: Path) -> None:
    pid, master = pty.fork()
    if not pid:
        os.chdir(folder)
        os.execv(sys.executable, command(folder))
    data = bytearray()
    try:
        while part := os.read(master, 65536):
            data += part
    except OSError:  # how a terminal ends
        pass
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, data[-2000:]
    text = data.decode()
    found = OBEYED.search(text)
    assert found is None, text[max(0, found.start() - 300) : found.end() + 50]
    assert text.count("owned") > 20 and 70 not in codes(folder).values()


def test_no_cell_is_a_formula(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Read by a CSV reader that is not ours: every cell of every table, those in files too."""
    store = ["--store", str(folder / "store.sqlite")]
    tables = [["status"], ["history"], ["report", ID], ["query", "SELECT * FROM campaign"], ["gates", SCHEDULE]]
    texts = []
    for words in tables:
        main([*words, "--format", "csv", *store])
        texts.append(capfd.readouterr().out)
    assert main(["export", ID, "--format", "csv", "--output", str(folder / "csv"), *store]) == 0
    texts += [path.read_text() for path in (folder / "csv").glob("*.csv")]
    cells = [cell for text in texts for row in csv.reader(text.splitlines(keepends=True)) for cell in row]
    begun = [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    assert [cell for cell in begun if not re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", cell)] == []
    assert sum("1+1" in cell for cell in cells) > 3 and sum("owned" in cell for cell in cells) > 10
