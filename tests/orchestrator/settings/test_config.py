"""From YAML to a frozen plan: what composes, what is refused, and with which words."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from campaigns.errors import UsageError
from campaigns.fixtures import PUBLIC_CAPACITY, curve_fixtures
from campaigns.order import pair_keys
from campaigns.plan import Fixture, Mode, Order, StartupMode
from orchestrator.checkouts.places import CONF
from orchestrator.settings import keys, limits
from orchestrator.settings.config import Config, register_schema
from orchestrator.settings.fixtures import curve_of, fixtures_of
from orchestrator.settings.folders import groups
from orchestrator.settings.plans import SPECULATION, Prompts, build_plan
from runtime.speculation.modes import MODES


@cache
def default() -> DictConfig:
    register_schema()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config")


def changed(override: str) -> Config:
    """The default campaign with one value written as Hydra reads it; a tenth of the time that composing takes."""
    [read] = OverridesParser.create().parse_overrides([override])
    assert read.key_or_group not in groups() and not read.is_delete(), override
    made = copy.deepcopy(default())
    OmegaConf.update(made, read.key_or_group, read.value(), merge=True, force_add=read.is_add())
    found = OmegaConf.to_object(made)
    assert isinstance(found, Config)
    return found


def config(*overrides: str) -> Config:
    register_schema()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        made = OmegaConf.to_object(compose("config", overrides=list(overrides)))
    assert isinstance(made, Config)
    return made


def plan(*overrides: str) -> Any:
    made = config(*overrides)
    return build_plan(made, Prompts(fixtures_of(made)))


def test_the_default_is_the_embedded_smoke_campaign() -> None:
    p = plan()
    assert (p.name, p.startups, p.pairs, p.warmups) == ("smoke", 2, 4, 1)
    assert (p.mode, p.order, p.startup_mode) == (Mode.AB, Order.ABBA, StartupMode.SWITCH)
    assert (p.sampling.temperature, p.sampling.top_k, p.sampling.top_p) == (1.0, 20, 0.95)
    assert len(pair_keys(p)) == 2 * 2 * 4


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "campaign").glob("*.yaml")))
def test_every_preset_composes_into_a_plan(name: str) -> None:
    made = config(f"campaign={name}", "corpus=none")
    p = build_plan(made, Prompts((*fixtures_of(made), *curve(made))))
    assert p.name == name and p.control != p.candidate


def curve(made: Config) -> tuple[Fixture, ...]:
    """Of the public capacity, with a tokenizer of four characters a token."""
    wanted = curve_of(made)
    return curve_fixtures(wanted, PUBLIC_CAPACITY, lambda text: range(len(text) // 4)) if wanted.wanted else ()


def test_the_published_curve_reaches_the_capacity_and_computes_each_prompt_once() -> None:
    made = config("campaign=curve27b")
    p = build_plan(made, Prompts(curve(made)))
    lengths = [int(fixture.id.removeprefix("context-")) for fixture in p.fixtures]
    assert lengths == [1024, 4096, 16384, 65536, 131072, 261888] and p.startups == 3
    assert all(n + (f.max_tokens or 0) <= PUBLIC_CAPACITY for n, f in zip(lengths, p.fixtures, strict=True))
    assert [fixture.max_tokens for fixture in p.fixtures] == [512, 512, 512, 384, 256, 256]
    assert p.server.prompt_state == "snapshot" and "agreeing" in p.server.model


def test_a_cap_of_the_curve_is_that_of_one_of_its_lengths() -> None:
    asked = ("campaign=curve27b", "fixtures.curve.lengths=[1024, 2048]")
    assert [f.max_tokens for f in curve(config(*asked, "fixtures.curve.caps=[70, 40]"))] == [70, 40]
    assert [f.max_tokens for f in curve(config(*asked, "fixtures.curve.caps=[]"))] == [256, 256]
    with pytest.raises(UsageError, match=r"fixtures\.curve\.caps has 6 figures for 2 lengths"):
        curve(config(*asked))
    with pytest.raises(UsageError, match=r"fixtures\.curve\.caps"):
        curve(config(*asked, "fixtures.curve.caps=[5, 0]"))


def test_the_whole_stack_off_is_every_default_and_all_on_is_the_fastest_gated_one() -> None:
    p = plan("arm@campaign.control=whole-stack-off", "arm@campaign.candidate=all-on")
    assert p.control.choices == () and len(p.candidate.schedules) == 10
    assert p.candidate.schedules == plan("arm@campaign.candidate=hopper-fused").candidate.schedules


def test_two_ranks_differ_in_how_they_publish_alone() -> None:
    p = plan("campaign=tp2")
    assert p.differences == ("publication: default -> peers-stream",) and "--tensor-parallel-size" in p.server.args
    assert p.lease.count == 2 and p.required_exactness == 4


def test_the_drafter_against_none_is_greedy_and_wants_equal_tokens() -> None:
    p = plan("campaign=speculation")
    assert p.differences == ("speculation: none -> dflash",)
    assert (p.sampling.temperature, p.required_exactness, p.startup_mode) == (0.0, 3, StartupMode.SWITCH)
    fewer = plan("campaign=speculation", "arm@campaign.candidate=drafts-3").candidate
    assert fewer.choices == (("speculation", "dflash"), ("num_speculative_tokens", "3"))


def test_the_embedded_server_needs_no_gpu_and_its_cuda_preset_leases_one() -> None:
    assert plan().lease.inventory == "cpu"
    assert plan("campaign=cuda").lease.inventory == "auto"


def test_the_schema_defaults_are_three_startups_six_pairs_five_warmups() -> None:
    c = Config().campaign
    assert (c.startups, c.pairs, c.warmups) == (3, 6, 5)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("campaign.order=zigzag", "campaign.order=zigzag: use one of abba, blocked"),
        ("campaign.startups=0", "campaign.startups=0: must lie between 1 and 1000000"),
        ("campaign.pairs=99999999999999999999", "must lie between 1 and 1000000"),
        ("campaign.pairs=250001", "make 1,000,004 pairs: at most 1,000,000"),
        ("campaign.mode=aa", "campaign.mode=aa needs equal arms"),
        ("arm@campaign.candidate=torch-plain", "do the same"),
        ("campaign.candidate.name=torch-plain", "are both called torch-plain and differ"),
        ("startup.mode=warp", "startup.mode=warp: use one of switch, co_resident, sequential"),
        ("sampling.top_p=1.5", "sampling.top_p=1.5"),
        ("campaign.required_exactness=6", "campaign.required_exactness=6"),
        ("fixtures.items=[]", "fixtures.items is empty"),
        ("fixtures.items=[{id: a, messages: [{role: user, content: x}], prompt: y}]", "give exactly one of"),
        ("fixtures.items=[{id: a, prompt: x, seeds: []}]", "seeds is empty"),
        ("fixtures.items=[{id: a, prompt: x},{id: a, prompt: y}]", "names a twice"),
        ("lease.count=0", "lease.count=0"),
        ("startup.calibrate_s=nan", "startup.calibrate_s=nan: must lie between"),
        ("startup.sample_hz=-1", "startup.sample_hz=-1.0: must lie between"),
        ("client.timeout_s=0", "client.timeout_s=0.0: must lie between"),
        ("server.ready_timeout_s=inf", "server.ready_timeout_s=inf: must lie between"),
        ("lease.wait_s=-1", "lease.wait_s=-1.0: must be at least 0"),
        ("sampling.temperature=inf", "sampling.temperature=inf: must lie between"),
        ("sampling.top_k=-5", "sampling.top_k=-5: must be at least -1"),
        ("campaign.max_tokens=0", "campaign.max_tokens=0: must lie between 1 and 2147483647"),
        ("campaign.trace=true", "campaign.trace=true keeps the trace of a profiled run: add campaign.profile=true"),
        ("campaign.name=''", "campaign.name is empty"),
        ("campaign.control.speculation=eagle", "arm torch-plain: speculation=eagle: choose dflash, lookup, none"),
        ("campaign.control.num_speculative_tokens=0", "num_speculative_tokens=0: at least 1"),
        ("campaign.candidate.name=''", "campaign.candidate.name is empty"),
        ("server.ready_path=health", "server.ready_path=health: write a path"),
        ("lease.indices=[0,0]", "names 0 twice"),
        ("lease.uuids=['']", "lease.uuids names an empty UUID"),
        ("fixtures.items=[{id: a, prompt: ''}]", "fixture a: prompt is empty"),
        ("fixtures.items=[{id: a, messages: []}]", "fixture a: messages is empty"),
        ("fixtures.items=[{id: a, prompt: x, max_tokens: 0}]", "fixture a: max_tokens=0: must be at least 1"),
        ("+campaign.candidate.env={A: b}", "arm.env, arm.args and arm.tree need co_resident"),
    ],
)
def test_a_value_that_its_type_cannot_refuse_is_refused_by_name(override: str, words: str) -> None:
    made = config(override) if override.startswith("arm@") else changed(override)
    with pytest.raises(UsageError, match=words.replace("[", r"\[")):
        build_plan(made, Prompts(fixtures_of(made)))


def test_an_arm_can_ask_for_every_way_of_drafting_that_our_server_has() -> None:
    arms = (OmegaConf.load(path) for path in sorted((CONF / "arm").glob("*.yaml")))
    assert {arm.get("speculation", "none") for arm in arms} == set(MODES) == set(SPECULATION)


def test_a_corpus_without_seeds_asks_for_nothing() -> None:
    with pytest.raises(UsageError, match=r"corpus.seeds is empty"):
        build_plan(config("corpus.seeds=[]"), Prompts(fixtures_of(config()), corpus_sha256="ab"))


def test_a_wait_for_a_device_may_be_endless() -> None:
    assert plan("lease.wait_s=inf").lease.wait_s == float("inf")


def test_two_ways_of_naming_devices_contradict() -> None:
    with pytest.raises(UsageError, match=r"lease.indices and lease.uuids"):
        plan("lease.indices=[0]", "lease.uuids=[GPU-1]")


def test_half_a_character_in_a_prompt_of_ones_own_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a\\ud83d"}\n')
    made = changed("fixtures.items=[]")
    made.fixtures.file.path, made.fixtures.file.count, made.fixtures.file.seeds = str(path), 1, [0]
    with pytest.raises(UsageError, match="fixture mine-0: it holds what no JSON text can say"):
        fixtures_of(made)


def test_one_question_under_two_names_is_refused() -> None:
    """As evidence it would count for two prompts."""
    twice = "fixtures.items=[{{id: a, prompt: x, seeds: [1, 2]}}, {{id: b, prompt: x, seeds: [{}]}}]"
    with pytest.raises(UsageError, match="fixtures a and b ask the same with seed 2: drop one"):
        fixtures_of(changed(twice.format(2)))
    assert len(fixtures_of(changed(twice.format(3)))) == 2


def test_key_order_of_a_body_is_kept() -> None:
    made = config("fixtures.items=[{id: z, messages: [{role: user, content: b}], seeds: [3]}]")
    [fixture] = fixtures_of(made)
    assert list(json.loads(fixture.body)["messages"][0]) == ["role", "content"] and fixture.seeds == (3,)


def test_every_number_has_ends_or_a_check_of_its_own() -> None:
    numbers = {path for path in keys.paths() if keys._bare(keys.kind_of(path)) in (int, float)}
    any_whole = {"campaign.seed", "fixtures.file.seed"}
    drafts = {f"campaign.{role}.num_speculative_tokens" for role in ("control", "candidate")}
    fixtures = {f"fixtures.{name}" for name in ("file.count", "file.turns", "file.max_tokens", "curve.output_tokens")}
    own = {"campaign.min_startups", "lease.count", *fixtures, *drafts}
    assert numbers == limits._ENDS.keys() | any_whole | own
    assert not limits._ENDS.keys() & (any_whole | own)
