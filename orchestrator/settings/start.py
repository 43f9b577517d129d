"""The first configuration of one's own: a campaign that runs as it stands, with a comment where something is to change.

It measures the example server of this checkout against itself with another pause a round, so that the first report
comes before the first edit. Knows the text of the files, not what reads them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from campaigns.errors import StoreUnwritable, UsageError
from orchestrator.checkouts.places import ROOT

_FILES = {
    "campaign/mine.yaml": """\
# @package _global_
# What is compared, and how often. Run it with: campaign run --config-dir {folder} campaign=mine
defaults:
  - override /server: mine
  - override /fixtures: mine
  - override /startup: co_resident # two servers on one lease; sequential: one after the other
  - override /arm@campaign.control: mine-control
  - override /arm@campaign.candidate: mine-candidate

campaign:
  name: mine
  startups: 3 # independent server starts: three are the fewest that give an interval
  pairs: 4 # of each fixture and seed in each startup
  warmups: 1 # requests per arm before the first pair
  max_tokens: 64 # a cap for every fixture
  required_exactness: 3 # equal token ids; 4 wants equal accepted drafts too, where the server reports them

startup:
  calibrate_s: 1.0 # how long the client measures itself before the first request
""",
    "arm/mine-control.yaml": """\
# What the candidate is compared with. `args` are appended to the server's command, `env` is laid over its environment;
# a DFlash2 server (adapter: dflash2) takes `schedules` instead, as {{projection: columns-32}}.
name: mine-control
args: ["--round-ms", "4"]
""",
    "arm/mine-candidate.yaml": """\
# What changes, and nothing else: the report is about all differences of the two arms together.
name: mine-candidate
args: ["--round-ms", "3"]
""",
    "fixtures/mine.yaml": """\
# The prompts. Each has an id of your own; the fixture's seeds are its samples of randomness.
items:
  - id: pages
    messages:
      - role: user
        content: How many pages are three chapters of twelve pages?
    seeds: [1]
  - id: boxes
    messages:
      - role: user
        content: Felix fills 7 baskets with 8 apples each. How many apples are there?
    seeds: [2]
""",
    "server/mine.yaml": """\
# The measured server: any OpenAI-compatible one that a command line starts. {{port}} is filled in, and {{model}}
# with the key model of this file. Replace the command by yours; docs/server_configuration.md says how it is written.
adapter: command
command: {command}
ready_path: /health # answers 200 once requests may come
ready_timeout_s: 60.0
""",
}


def write_start(folder: Path, *, force: bool = False) -> list[Path]:
    """Writes the files and names them. UsageError where one is there already and `force` is not given."""
    paths = {folder / name: text for name, text in _FILES.items()}
    there = [str(path) for path in paths if path.exists()]
    if there and not force:
        raise UsageError(f"{there[0]} is there already: name another folder, or overwrite it with --force")
    command = json.dumps([sys.executable, str(ROOT / "docs" / "examples" / "small_openai_server.py"), "{port}"])
    try:
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(folder=folder, command=command), encoding="utf-8")
    except OSError as error:
        raise StoreUnwritable(f"{folder} cannot be written ({error.strerror}): name another folder") from error
    return list(paths)
