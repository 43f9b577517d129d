"""Everything that is settled before a device is leased: plan, prompts, token budgets, hashes.

Hashing and tokenising happen here so that nobody holds a GPU meanwhile. Reads files and asks the kernels' list; starts
no server.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from campaigns.corpora import choice
from campaigns.errors import IdentityMismatch, NoDevice, UsageError
from campaigns.fixtures import curve_fixtures
from campaigns.hashes import token_sha256
from campaigns.plan import SHARED, Arm, CampaignPlan, Fixture, ServerPlan, StartupMode
from campaigns.provenance import METHODOLOGY_VERSION, Build, Host, canonical_json, fingerprint, sha256_text
from campaigns.records import Campaign
from orchestrator.checkouts.places import ROOT
from orchestrator.hosts.claim import asked_for
from orchestrator.hosts.devices.cpu import CpuInventory
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.preparation import identity, schedules
from orchestrator.preparation.installed import check_installed
from orchestrator.preparation.prompts import Checkpoint, budget
from orchestrator.servers import commanded, weights
from orchestrator.servers.adapters import open_adapter
from orchestrator.servers.adapters.attach import AttachedServer
from orchestrator.servers.adapters.control import check_listening
from orchestrator.servers.adapters.dflash2 import flag_value
from orchestrator.servers.keys import headers_of
from orchestrator.settings.config import Config, ServerConfig, typed
from orchestrator.settings.fixtures import curve_of, fixtures_of
from orchestrator.settings.plans import Prompts, build_plan

Started = TypeVar("Started", Arm, ServerPlan)


@dataclass(frozen=True)
class Prepared:
    """A campaign that could start now. `budgets` and `prompt_ids` lack fixtures that only the server can tokenise."""

    plan: CampaignPlan
    config_json: str
    fingerprint: Mapping[str, str]
    provenance: Mapping[str, Any]
    expected: Mapping[str, str]  # hashes that the live server must agree with
    prompt_ids: Mapping[str, tuple[int, ...]]
    budgets: Mapping[str, int]
    store_path: Path
    strict: bool
    unknown: str = ""  # of a campaign that is only planned: what no device here can tell

    @property
    def config_sha256(self) -> str:
        return sha256_text(self.config_json)

    def campaign(self) -> Campaign:
        """The campaign's record under an id that no other has, on whatever host or store; what two runs of one
        configuration share are `config_sha256` and the fingerprint.
        """
        return Campaign(
            campaign_id=sha256_text(f"{self.config_json}\n{time.time_ns()}\n{secrets.token_hex(16)}")[:12],
            name=self.plan.name,
            created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            methodology_version=METHODOLOGY_VERSION,
            config_json=self.config_json,
            config_sha256=self.config_sha256,
            plan_json=canonical_json(asdict(self.plan)),
            fingerprint=self.fingerprint,
            provenance=self.provenance,
        )


def prepare(config: Config, raw: Any, files: Mapping[str, str] | None = None, *, build: bool = True) -> Prepared:
    """Read, check, hash, count and build. `raw` is the resolved configuration as plain data; it is what gets stored.

    `files` are those that it was composed from, path -> SHA-256.
    """
    model = _model(config.server)
    checkpoint = Checkpoint.open(model) if model else None
    plan = build_plan(config, _prompts(config, checkpoint))
    plan = replace(plan, server=_with_weights(plan, model))
    _check_lives(plan)
    if build and not plan.lease.ray_address:
        _check_here(plan)
    native, unknown = _native(plan, build)
    ids = {f.id: checkpoint.ids(f) for f in plan.fixtures} if checkpoint else {}
    hashes, versions = _build(plan, model), identity.versions()
    return Prepared(
        plan=plan,
        # Not canonical: the order of a message's keys reaches the wire.
        config_json=json.dumps(raw, ensure_ascii=False),
        fingerprint=_fingerprint(plan, hashes, versions),
        provenance={
            "git": identity.git_state(),
            "versions": versions,
            "host": identity.host(),
            "native_builds": native,
            "template_sha256": sha256_text(checkpoint.template) if checkpoint else "",
            "config_files": dict(files or {}),
            "prompt_sha256": {name: token_sha256(tokens) for name, tokens in ids.items()},
        },
        expected={**(identity.checkpoint_hashes(model) if model else {}), "source_sha256": hashes.runtime_sha256},
        prompt_ids=ids,
        budgets=_budgets(plan, checkpoint, ids),
        store_path=Path(config.store.path),
        strict=config.strict,
        unknown=unknown,
    )


def prepare_again(config_json: str) -> Prepared:
    """The same from a stored configuration, for `resume`."""
    raw = json.loads(config_json)
    return prepare(typed(raw), raw)


def _check_lives(plan: CampaignPlan) -> None:
    """Have the adapter refuse now what it would refuse when it starts a server."""
    adapter, arms = open_adapter(plan.server.adapter), (plan.control, plan.candidate)
    if plan.profile and adapter.profile_fields is None:
        raise UsageError(
            f"campaign.profile=true: server.adapter={plan.server.adapter} has no profile of its rounds to give; "
            "dflash2 has one"
        )
    if plan.server.prompt_state and not adapter.restores_prompts:
        raise UsageError(
            f"server.prompt_state={plan.server.prompt_state}: server.adapter={plan.server.adapter} cannot restore "
            "prompts; dflash2 can"
        )
    _check_shared(plan, arms)
    for life in (arms,) if plan.startup_mode is StartupMode.SWITCH else ((arm,) for arm in arms):
        adapter.launch(plan.server, life, 0, ROOT)


def _check_shared(plan: CampaignPlan, arms: tuple[Arm, ...]) -> None:
    """A schedule of prompts alone would never run where no arm computes prompts."""
    named = sorted({f"{op}/{name}" for arm in arms for op, name in arm.schedules if op.startswith("prefill_")})
    if plan.server.prompt_state == SHARED and named:
        raise UsageError(
            f"server.prompt_state={SHARED} computes prompts by the default schedules, so that {', '.join(named)} of an "
            "arm would not run: use server.prompt_state=snapshot, or leave it out of the arm"
        )


def _check_here(plan: CampaignPlan) -> None:
    """Whether this host has what the lease asks for (not whether it is free), and the server that should run."""
    with open_inventory(plan.lease.inventory) as inventory:
        asked_for(inventory.devices(), plan.lease)
    headers_of(plan.server, os.environ)  # a key that is not there is told now
    if plan.server.adapter == AttachedServer.name:
        check_listening(plan.server.base_url, plan.server.proxy)
    if plan.server.adapter == "dflash2":
        check_installed()


def _native(plan: CampaignPlan, build: bool) -> tuple[dict[str, str], str]:
    """Check the arms' schedules and build them; on a joined cluster the leased host builds its own on first use.

    A plan alone is made on any host: that nothing here could run it is told beside it.
    """
    if plan.server.adapter != "dflash2":
        return {}, ""
    listed = schedules.listing()
    schedules.check(plan, listed)
    try:
        schedules.check_machines(plan, listed, {} if plan.lease.ray_address else _archs(plan, listed.cpu))
    except NoDevice as error:
        if build:
            raise
        return {}, str(error)
    return (schedules.build(plan, listed) if build and not plan.lease.ray_address else {}), ""


def _archs(plan: CampaignPlan, cpu: str) -> dict[str, frozenset[str]]:
    """Device type -> architectures of this host that may be leased; empty where the driver does not say."""
    with open_inventory(plan.lease.inventory) as inventory:
        devices = inventory.devices()
        if isinstance(inventory, CpuInventory):
            return {"cpu": frozenset({cpu})}
    named = [d for d in devices if d.index in plan.lease.indices or d.uuid.startswith(plan.lease.uuids)]
    gpus = frozenset(device.arch for device in named or devices)
    return {"cpu": frozenset({cpu}), "cuda": frozenset() if "" in gpus else gpus}


def _prompts(config: Config, checkpoint: Checkpoint | None) -> Prompts:
    if config.corpus.source == "none":
        return Prompts((*fixtures_of(config), *_curve(config, checkpoint)))
    corpus = choice.load(config.corpus.source, config.corpus.path)
    if config.corpus.sha256 and corpus.sha256 != config.corpus.sha256:
        raise IdentityMismatch(
            f"corpus.sha256={config.corpus.sha256} but {config.corpus.path or 'the embedded corpus'} has "
            f"{corpus.sha256}: freeze it again or correct the expected hash"
        )
    return Prompts(corpus.fixtures(tuple(config.corpus.seeds), config.campaign.max_tokens), corpus.sha256)


def _curve(config: Config, checkpoint: Checkpoint | None) -> tuple[Fixture, ...]:
    curve = curve_of(config)
    if not curve.wanted:
        return ()
    if checkpoint is None:
        raise UsageError("fixtures.curve counts token ids: name a folder with tokenizer files as server.model")
    return curve_fixtures(curve, _capacity(config.server.args, checkpoint), checkpoint.encode)


def _model(server: ServerConfig) -> Path | None:
    """The checkpoint's folder; None for a foreign server that was given a mere name."""
    ours, name = server.adapter == "dflash2", server.model
    if ours and not name:
        raise UsageError("server.model is empty: name the folder of a checkpoint")
    folder = weights.named(name, tuple(server.model_root))
    if ours and not folder.is_dir():
        made_by = server.model_command.replace("{model}", name)
        remedy = f"make it with: {made_by}" if made_by else "name one that holds a checkpoint"
        raise UsageError(f"server.model={name}: no such folder; {remedy}")
    return folder if ours or (name and (folder / "config.json").is_file()) else None


def _with_weights(plan: CampaignPlan, model: Path | None) -> ServerPlan:
    """The server told where this host has its checkpoint; for other hosts, what they must have."""
    server = plan.server
    if model is None:
        return server
    if model != ROOT / server.model:
        server = replace(server, model=str(model))
    if not plan.lease.ray_address:
        return server
    sha256, size = identity.checkpoint_hashes(model)["weights_sha256"], weights.size_bytes(model)
    return replace(server, model=str(model), model_sha256=sha256, model_bytes=size)


def _build(plan: CampaignPlan, model: Path | None) -> Build:
    weights = identity.checkpoint_hashes(model) if model else {}
    return Build(
        control_plane_sha256=identity.tree_sha256(ROOT, identity.CONTROL_PLANE),
        runtime_sha256=_sources(plan),
        weights_sha256=weights.get("weights_sha256", ""),
        draft_weights_sha256=weights.get("draft_weights_sha256", ""),
        tokenizer_sha256=weights.get("tokenizer_sha256", ""),
        corpus_sha256=plan.corpus,
        prompts_sha256=sha256_text(canonical_json([asdict(fixture) for fixture in plan.fixtures])),
    )


def _sources(plan: CampaignPlan) -> str:
    """The runtime's own code; two hashes where the arms' trees differ (`A | B`)."""
    if plan.server.adapter != "dflash2":
        return ""
    roots = dict.fromkeys(Path(arm.tree) if arm.tree else ROOT for arm in (plan.control, plan.candidate))
    return " | ".join(dict.fromkeys(identity.tree_sha256(root, identity.DATA_PLANE) for root in roots))


def _fingerprint(plan: CampaignPlan, hashes: Build, versions: Mapping[str, str]) -> dict[str, str]:
    files = commanded.files_of(plan)
    control, candidate = (
        replace(_placeless(arm, files), tree=commanded.tree_of(arm)) for arm in (plan.control, plan.candidate)
    )
    server = _placeless(plan.server, files)
    server = replace(server, command=tuple(commanded.without_paths(word, files) for word in server.command))
    shown = replace(plan, control=control, candidate=candidate, server=server)
    return fingerprint(shown, hashes, _host(plan, versions), commanded.named(files))


def _placeless(started: Started, files: Mapping[Path, str]) -> Started:
    """An arm or a server whose words name files and not where they lie."""
    args = tuple(commanded.without_paths(word, files) for word in started.args)
    env = tuple((name, commanded.without_paths(value, files)) for name, value in started.env)
    return replace(started, args=args, env=env)


def _host(plan: CampaignPlan, versions: Mapping[str, str]) -> Host:
    with open_inventory(plan.lease.inventory) as inventory:
        names = tuple(sorted({device.name for device in inventory.devices()}))
        driver = inventory.driver
    cpu = str(identity.host()["cpu"])
    return Host(names, driver, cpu, versions["python"], versions.get("torch", ""))


def _budgets(plan: CampaignPlan, checkpoint: Checkpoint | None, ids: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    if checkpoint is None:
        return {f.id: f.max_tokens for f in plan.fixtures if f.max_tokens is not None}
    capacity = _capacity(plan.server.args, checkpoint)
    return {fixture.id: budget(fixture, len(ids[fixture.id]), capacity) for fixture in plan.fixtures}


def _capacity(args: Sequence[str], checkpoint: Checkpoint) -> int:
    """The checkpoint's capacity, unless the server is started with a smaller one."""
    told = flag_value(args, "--max-model-len")
    if told is not None and not (told.isdecimal() and int(told)):
        raise UsageError(f"server.args: --max-model-len {told}: must be a whole number above 0")
    return int(told) if told else checkpoint.capacity
