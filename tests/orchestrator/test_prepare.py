"""What is settled before the lease, and that a stored configuration settles it alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from campaigns.errors import IdentityMismatch, NoDevice, UsageError
from orchestrator.config import register_schema, typed
from orchestrator.devices import CpuInventory, Device
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


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("arm@campaign.candidate=attention-grouped",), "arm attention-grouped: attention/grouped runs on cuda alone"),
        (("server=embedded_cuda", "arm@campaign.control=default", "arm@campaign.candidate=attention-cpu-grouped"),
         "arm attention-cpu-grouped: attention/cpu-grouped runs on cpu alone and its server runs on cuda"),
    ],
)  # fmt: skip
def test_a_schedule_of_another_device_is_refused_before_the_lease(overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        prepared(*overrides)


def test_the_architectures_are_those_of_the_devices_that_may_be_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second GPU alone is a Hopper one; a device whose driver says nothing is not judged."""

    class Gpus(CpuInventory):
        archs = ("sm_80", "sm_90")

        def devices(self) -> tuple[Device, ...]:
            return tuple(Device(f"GPU-{i}", i, "x", 1, arch) for i, arch in enumerate(self.archs))

    monkeypatch.setattr("orchestrator.prepare.open_inventory", lambda spec: Gpus())
    monkeypatch.setattr("orchestrator.schedules.build", lambda plan, listed: {})
    wanted = ("server=embedded_cuda", "arm@campaign.control=default", "arm@campaign.candidate=attention-grouped")
    prepared(*wanted)
    prepared(*wanted, "lease.uuids=[GPU-1]")
    with pytest.raises(NoDevice, match=r"arm attention-grouped: attention/grouped runs on sm_90 alone and .* is sm_80"):
        prepared(*wanted, "lease.indices=[0]")
    prepared(*wanted, "lease.indices=[0]", "lease.ray_address=somewhere:6379")
    monkeypatch.setattr(Gpus, "archs", ("sm_80", ""))
    prepared(*wanted)


def test_missing_weights_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="the weights are missing"):
        prepared(f"server.model={tmp_path}")
