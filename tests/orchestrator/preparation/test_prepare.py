"""What is settled before the lease, and that a stored configuration settles it alike."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from campaigns.errors import IdentityMismatch, NoDevice, ServerFailed, UsageError
from orchestrator.checkouts.places import CONF
from orchestrator.hosts.devices.device import Device
from orchestrator.hosts.devices.simulated import SimulatedInventory
from orchestrator.preparation.outlook import outlook
from orchestrator.preparation.prepare import Prepared, prepare, prepare_again
from orchestrator.settings.config import register_schema, typed

ARMS = ("arm@campaign.control=default", "arm@campaign.candidate=default")
AA = ("campaign.mode=aa", *ARMS)
ATTACH = ("server=attach", *AA)


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


def test_no_two_campaigns_share_an_id_and_two_of_one_configuration_share_its_hash_and_fingerprint() -> None:
    first, second = (prepared().campaign() for _ in range(2))  # as in two folders, or on two hosts
    assert first.campaign_id != second.campaign_id
    assert (first.config_sha256, first.fingerprint) == (second.config_sha256, second.fingerprint)
    assert prepared("campaign.seed=1").campaign().config_sha256 != first.config_sha256


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

    class Gpus(SimulatedInventory):
        archs = ("sm_80", "sm_90")

        def devices(self) -> tuple[Device, ...]:
            return tuple(Device(f"GPU-{i}", i, "x", 1, arch) for i, arch in enumerate(self.archs))

    monkeypatch.setattr("orchestrator.preparation.prepare.open_inventory", lambda spec: Gpus("one"))
    monkeypatch.setattr("orchestrator.preparation.schedules.build", lambda plan, listed: {})
    wanted = ("server=embedded_cuda", "arm@campaign.control=default", "arm@campaign.candidate=attention-grouped")
    prepared(*wanted)
    prepared(*wanted, "lease.uuids=[GPU-1]")
    with pytest.raises(NoDevice, match=r"arm attention-grouped: attention/grouped runs on sm_90 alone and .* is sm_80"):
        prepared(*wanted, "lease.indices=[0]")
    prepared(*wanted, "lease.indices=[0]", "lease.ray_address=somewhere:6379")
    monkeypatch.setattr(Gpus, "archs", ("sm_80", ""))
    prepared(*wanted)


def test_a_server_on_cuda_is_refused_where_nothing_but_the_cpu_can_be_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ("server=embedded_cuda", "arm@campaign.control=default", "arm@campaign.candidate=selection-sort")
    values = composed(*wanted, "lease.inventory=cpu")
    with pytest.raises(NoDevice, match=r"told --device cuda, and lease\.inventory=cpu finds none here"):
        prepare(typed(values), values)
    planned = prepare(typed(values), values, build=False)  # `campaign plan`, on a login node
    assert "whether it runs, which this host cannot tell: arm default: its server is told --device cuda" in (
        outlook(planned)
    )
    monkeypatch.setattr("orchestrator.preparation.schedules.build", lambda plan, listed: {})
    assert "unknown" not in outlook(prepared(*wanted, "lease=simulated"))
    prepared(*wanted, "lease.inventory=cpu", "lease.ray_address=somewhere:6379")  # another host's devices


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("server.adapter=foo",), "server.adapter=foo: use one of dflash2, command, attach"),
        (("server=command", "server.command=[]"), "server.command is empty"),
        (("server=command", "server.command=[x,'--port=8000']", *AA), r"x --port=8000: no \{port\} in it"),
        (("server=command", "server.command=[x,'{prot}','{port}']", *AA),
         r"nothing is filled in for \{prot\} in \{prot\}; did you mean \{port\}\?"),
        ((*ATTACH, "campaign.profile=true"), "server.adapter=attach has no profile of its rounds to give"),
        (("server=vllm", *AA), "server.model is empty and server.command wants"),
        (("server=attach", "server.base_url='http://a:1'"), "has none to choose: take campaign.mode=aa with arm@"),
        (("server=vllm", "server.model=x"), "arm torch-plain names schedules, and server.adapter=command has none"),
        ((*ATTACH, "server.base_url=''"), "server.base_url is empty"),
        ((*ATTACH, "server.base_url=localhost:8000"), "server.base_url=localhost:8000: write http"),
        ((*ATTACH, "server.base_url='http://a:8x'"), "server.base_url=http://a:8x: write http"),
        ((*ATTACH, "startup=co_resident", "server.base_url='http://a:1'", "campaign.mode=ab",
          "campaign.candidate.name=b", "+campaign.candidate.env={A: b}"),
         "env, args and tree cannot reach a server that already runs"),
        (("server.args=[--max-model-len,many]",), "server.args: --max-model-len many: must be a whole number above 0"),
        (("server=random_27b", "server.model=none"), "make it with: python -m runtime.models.random_model none"),
        (("server.prompt_state=shared", "+campaign.candidate.schedules={prefill_gdn: chunked}"),
         "server.prompt_state=shared computes prompts by the default schedules, so that prefill_gdn/chunked"),
        (("server.model=runtime/checkpoints",), "server.model=.*runtime/checkpoints: no config.json there"),
        (("server.model=/nowhere",), "server.model=/nowhere: no such folder; name one that holds a checkpoint"),
    ],
)  # fmt: skip
def test_what_no_server_could_be_started_with_is_refused_before_anything_is_recorded(
    overrides: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        prepared(*overrides)


@pytest.mark.parametrize("server", [(), (*ATTACH, "server.base_url='http://a:1'")])
def test_more_devices_than_this_host_has_are_refused_before_the_lease(server: tuple[str, ...]) -> None:
    with pytest.raises(NoDevice, match=r"lease.count=2, but this host has 1"):
        prepared("lease=two", "lease.inventory=cpu", *server)
    with pytest.raises(NoDevice, match=r"lease.indices names 7"):
        prepared("lease.indices=[7]", *server)


def test_an_attached_server_that_nobody_started_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        attach = (*ATTACH, f"server.base_url='{url}'")
        assert prepared(*attach).plan.server.base_url == url
    with pytest.raises(ServerFailed, match=r"nobody listens \(Connection refused\); start that server first"):
        prepared(*attach)
    prepared(*attach, "lease.ray_address=somewhere:6379")  # the leased host is the one to ask


def test_what_another_host_has_is_not_asked_of_this_one() -> None:
    values = composed("lease=two", "lease.inventory=cpu")
    assert prepare(typed(values), values, build=False).plan.lease.count == 2  # `campaign plan`


def test_missing_weights_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="the weights are missing"):
        prepared(f"server.model={tmp_path}")
