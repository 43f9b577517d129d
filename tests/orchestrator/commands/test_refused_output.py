"""A standard output that takes nothing: every command that prints says so in one sentence and ends with 5."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from orchestrator.cli import parser
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

PLAN = CampaignPlan("t", Arm("a"), Arm("b"), (Fixture("f", "{}", (1,)),), ServerPlan("null"), startups=1, pairs=1)
# With STORE and FIRST, an id. Each prints before it changes anything, or changes what may be changed twice.
PRINTING = (
    "--help",
    "--version",
    "help run",
    "run --help",
    "run --cfg job",
    "status",
    "report last",
    "verify last",
    "compare last FIRST",
    "history",
    "trend f",
    "query --schema",
    "baseline set one last",
    "baseline list",
    "tag last nightly",
    "note last loud",
    "export last --format vllm-bench",
    "gates cpu-tuned",
    "corpus show embedded",
    "corpus verify embedded",
    "corpus diff embedded embedded",
    "lease list",
    "completion bash",
    "complete campaign",
    "init FOLDER/own",
    "promote cpu-tuned --despite-open --by a --reason b",
    "probe import FOLDER/lines",
)
# Print after work that a test of a stream need not do; all of them print by `print`, as the others do.
OTHERS = {
    *("resume", "stop", "serve", "plan", "score", "doctor"),  # a server, a second of the machine
    *("archive", "floor", "baseline drop", "import", "corpus freeze"),  # another store, an A/A campaign, files
    *("race", "bisect", "probe neighbours"),  # many campaigns
    *("lease clear", "corpus", "baseline", "lease", "probe", "run"),
}
CODE = """
import sys
from orchestrator.cli import main
for line in sys.stdin.read().splitlines():
    print(f"exit {main(line.split())}", file=sys.stderr)
"""
FULL, CLOSED = (">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")


def commands(under: argparse.ArgumentParser) -> Iterator[str]:
    for action in under._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield each.prog.removeprefix("campaign ")
                yield from commands(each)


def test_every_command_is_looked_at() -> None:
    tried = {name for name in commands(parser()) for line in PRINTING if f"{line} ".startswith(f"{name} ")}
    assert set(commands(parser())) == tried | OTHERS


def refused(lines: list[str], stdout: tuple[str, str], unbuffered: str = "") -> None:
    """Each line in the same process. A buffer that is refused at the end goes nowhere, and so does what follows."""
    done = subprocess.run(
        ["bash", "-c", f'exec {sys.executable} -c "$CODE" {stdout[0]}'],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        env={**os.environ, "CODE": CODE, "PYTHONUNBUFFERED": unbuffered},
    )
    assert done.returncode == 0, done.stderr
    refusal = f"campaign: standard output cannot be written ({stdout[1]}): what should stand there is lost, ask again"
    said = done.stderr.splitlines()
    assert dict(zip(lines, zip(said[::2], said[1::2], strict=True), strict=True)) == dict.fromkeys(
        lines, (refusal, "exit 5")
    )


def test_it_is_an_error_of_the_world(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    (tmp_path / "lines").write_text('{"gate": "contract", "subject": "cpu-tuned", "status": "passed"}')
    with Store.open(store) as writer:
        for number in (1, 2):
            Driver(writer, PLAN, lambda *_: Script(Trajectory(30, 10, 19), 16.0), run_number=number).run()
    with Reader.open(store) as reader:
        first = reader.campaigns()[0].campaign_id
    lines = [line.replace("FIRST", first).replace("FOLDER", str(tmp_path)) for line in PRINTING]
    alone = re.compile(r"--|(help|run|corpus|lease|completion|complete|init)\b")
    refused([line if alone.match(line) else f"{line} --store {store}" for line in lines], FULL, unbuffered="1")
    refused(["status --store " + str(store)], FULL)  # refused when its buffer is flushed
    refused(["--help"], CLOSED)
