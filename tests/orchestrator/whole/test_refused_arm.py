"""An arm that the server's guards refuse, on the real server: the campaign ends before its first pair and says why."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from campaigns.errors import Exit
from orchestrator.checkouts.places import ROOT
from results.reports.report import render
from results.store.reader import Reader

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.ray,
    pytest.mark.skipif(shutil.which("g++") is None, reason="the refused schedule is native"),
]

# Key heads of 12: no schedule of ours but the default takes them, and only a running server can tell.
TARGET = {
    "model_type": "qwen3_5_text", "vocab_size": 2560, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 12, "linear_value_head_dim": 16, "max_position_embeddings": 512,
}  # fmt: skip
DRAFTER = {
    "architectures": ["DFlash2DraftModel"], "vocab_size": 2560, "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 1, "layer_types": ["sliding_attention"], "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "use_sliding_window": True, "sliding_window": 64, "rope_parameters": {"rope_theta": 1e5},
    "dflash_config": {"block_size": 8, "mask_token_id": 3, "target_layer_ids": [0], "selector_rank": 16},
}  # fmt: skip
NAME = "gdn/cpu-bv8 refused: key dimension 12; a multiple of 8 up to 256"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("refused")
    (folder / "shape.json").write_text(json.dumps({"target": TARGET, "drafter": DRAFTER}))
    made = run(
        ROOT, "runtime.models.random_model", f"{folder}/model", "--shape", f"{folder}/shape.json", "--format", "dense"
    )
    assert made.returncode == 0, made.stderr
    arms = ("arm@campaign.control=default", "arm@campaign.candidate=gdn-cpu-bv8")
    small = ("campaign.max_tokens=12", "campaign.startups=2", "campaign.warmups=2", "startup.calibrate_s=0")
    where = (f"server.model={folder}/model", f"lease.lock_dir={folder}/locks", "lease.inventory=simulated:one")
    return folder, run(folder, "orchestrator.cli", "run", *arms, *small, *where)


@pytest.fixture
def rows(ran: tuple[Path, object]) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{ran[0] / 'outputs/campaigns.sqlite'}?mode=ro", uri=True)) as connection:
        yield connection


def test_it_ends_with_the_guards_words_and_measures_nothing(
    ran: tuple[Path, subprocess.CompletedProcess[str]], rows: sqlite3.Connection
) -> None:
    ended = ran[1]
    assert ended.returncode == Exit.NOTHING_ADMISSIBLE, ended.stderr
    sentence = ended.stderr.strip().splitlines()[-1]
    assert sentence.startswith("campaign: arm gdn-cpu-bv8 cannot run on this server") and NAME in sentence
    assert "Traceback" not in ended.stderr
    assert rows.execute("SELECT phase, count(*) FROM request GROUP BY 1").fetchall() == [("warmup", 4)]


def test_the_evidence_stays_in_the_store(rows: sqlite3.Connection) -> None:
    [(reason, message, startup)] = rows.execute("SELECT reason, message, startup FROM failure").fetchall()
    assert (reason, startup) == ("arm-not-distinct", 0) and NAME in message
    assert rows.execute("SELECT status, reason FROM startup_end").fetchall() == [("failed", "arm-not-distinct")]
    for role, text in rows.execute("SELECT role, counters FROM request"):
        counters = json.loads(text)
        assert counters["gdn/sequential"] > 0 and "gdn/cpu-bv8" not in counters
        assert counters.get(NAME) == (counters["gdn/sequential"] if role == "candidate" else None)


def test_every_report_says_what_was_refused_and_how_often(ran: tuple[Path, object], rows: sqlite3.Connection) -> None:
    candidate = rows.execute("SELECT counters FROM request WHERE role = 'candidate'").fetchall()
    calls = sum(json.loads(text)[NAME] for (text,) in candidate)
    with Reader.open(ran[0] / "outputs/campaigns.sqlite") as reader:
        made = {format: render(reader, reader.resolve("last"), format) for format in ("md", "html", "json")}
    for format in ("md", "html"):
        assert "candidate (gdn-cpu-bv8): gdn/cpu-bv8 never ran" in made[format]
        assert f"candidate (gdn-cpu-bv8): {NAME} ({calls} calls)" in made[format]
    assert "candidate (gdn-cpu-bv8): prefill_gdn/chunked ran" in made["md"] and ", unasked" in made["md"]
    [schedule] = [found for found in json.loads(made["json"])["schedules"] if found["asked"]]
    assert schedule == {
        "role": "candidate", "arm": "gdn-cpu-bv8", "schedule": "gdn/cpu-bv8", "asked": True, "hits": 0,
        "refusals": [{"reason": NAME.partition(" refused: ")[2], "calls": calls}],
    }  # fmt: skip
