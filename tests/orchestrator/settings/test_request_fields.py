"""What a body holds beside the campaign's own: written in YAML or on the command line, kept in plan and fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.errors import UsageError
from orchestrator.launch import composed

WORDS = (
    "server=command",
    "server.command=[python,'{port}']",
    "campaign.mode=aa",
    "arm@campaign.control=default",
    "arm@campaign.candidate=default",
    "campaign.max_tokens=8",
)


def test_they_reach_the_plan_as_json_and_the_fingerprint() -> None:
    made = composed([*WORDS, "+server.request_fields={return_token_ids:null,stop_after:[1,2]}"])
    fields = (("return_token_ids", "null"), ("stop_after", "[1, 2]"))
    assert made.plan.server.request_fields == fields
    assert "stop_after" in made.fingerprint["server.request_fields"]
    plain = composed([*WORDS])
    assert plain.plan.server.request_fields == () and "server.request_fields" not in plain.fingerprint


def test_the_preset_of_sglang_asks_for_what_its_streams_tell(tmp_path: Path) -> None:
    model = tmp_path / "m"
    model.mkdir()
    words = [word for word in WORDS if not word.startswith("server.command")]
    made = composed([*words, "server=sglang", f"server.model={model}"])
    assert dict(made.plan.server.request_fields)["return_token_ids"] == "null"
    assert dict(made.plan.server.request_fields)["return_spec_tokens_details"] == "true"


@pytest.mark.parametrize("name", ["seed", "max_tokens", "temperature", "stream", "messages"])
def test_what_the_campaign_decides_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"server\.request_fields names {name}, which the campaign decides: "):
        composed([*WORDS, f"+server.request_fields.{name}=1"])


@pytest.mark.parametrize(("word", "fresh"), [("fixed", False), ("fresh", True)])
def test_seeds_of_a_campaign(word: str, fresh: bool) -> None:
    made = composed([*WORDS, f"campaign.seeds={word}"])
    assert made.plan.seeds == word and ("seeds" in made.fingerprint) == fresh
    with pytest.raises(UsageError, match=r"campaign\.seeds=new: use one of fixed, fresh"):
        composed([*WORDS, "campaign.seeds=new"])
