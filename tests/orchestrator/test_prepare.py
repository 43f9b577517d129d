"""What is settled before the lease, and that a stored configuration settles it alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from campaigns.errors import IdentityMismatch, UsageError
from orchestrator.config import register_schema, typed
from orchestrator.identity import CONF
from orchestrator.prepare import Prepared, prepare, prepare_again


def composed(*overrides: str) -> Any:
    register_schema()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)


def prepared(*overrides: str) -> Prepared:
    values = composed(*overrides)
    return prepare(typed(values), values)


def test_a_stored_configuration_prepares_the_same_campaign() -> None:
    first = prepared()
    again = prepare_again(first.config_json)
    assert again.fingerprint == first.fingerprint
    assert again.plan == first.plan and again.prompt_ids == first.prompt_ids and again.budgets == first.budgets


def test_the_order_of_a_messages_keys_survives_the_store() -> None:
    for fixture in prepare_again(prepared().config_json).plan.fixtures:
        assert list(json.loads(fixture.body)["messages"][0]) == ["role", "content"]


def test_the_budget_is_capacity_minus_prompt() -> None:
    made = prepared()
    small = prepared("server.args=[--max-model-len,256]")
    for fixture in made.plan.fixtures:
        assert made.budgets[fixture.id] + len(made.prompt_ids[fixture.id]) > 256
        assert small.budgets[fixture.id] + len(small.prompt_ids[fixture.id]) == 256


def test_ids_differ_by_run_number_and_by_configuration() -> None:
    one, other = prepared(), prepared("campaign.seed=1")
    assert len({one.campaign(1).campaign_id, one.campaign(2).campaign_id, other.campaign(1).campaign_id}) == 3
    assert one.campaign(1).campaign_id == prepared().campaign(1).campaign_id


def test_another_corpus_than_expected_is_a_mismatch_that_shows_both_hashes() -> None:
    with pytest.raises(IdentityMismatch, match=r"corpus\.sha256=abc but the embedded corpus has [0-9a-f]{64}"):
        prepared("corpus=embedded", "corpus.sha256=abc")


def test_missing_weights_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="the weights are missing"):
        prepared(f"server.model={tmp_path}")
