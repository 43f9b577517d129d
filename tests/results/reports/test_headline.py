"""The answer in one sentence: its words, its digits, and what is said beside it."""

from dataclasses import replace

import pytest

from campaigns.judging.statistics import NoiseFloor
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from campaigns.records import Calibration
from results.conditions.load import HostLoad
from results.reading.summary import summarise
from results.reports.headline import headline
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

PLAN = CampaignPlan(
    name="told",
    control=Arm("a", (("projection", "columns-32"),)),
    candidate=Arm("b", (("projection", "columns-128"),)),
    fixtures=(Fixture("f", "{}", (0,)),),
    server=ServerPlan("null"),
    startups=3,
    pairs=8,
)
ONE_US = Calibration(2000, 110_000, 400_000, 100, 5_000, 1_000)


def measured(ram, effects, plan=PLAN):
    """Candidate over control of each startup."""
    path = ram / "store.sqlite"

    def script(step, attempt):
        ms = 16.0 * (effects[step.key.startup] if step.role is Role.CANDIDATE else 1.0)
        return Script(Trajectory(30, 10, 19), ms, client_delay_ns=0)

    with Store.open(path) as store:
        Driver(store, plan, script, calibration=ONE_US).run()
    with Reader.open(path) as reader:
        return summarise(reader, reader.resolve("last")), render(reader, reader.resolve("last"), "md")


@pytest.mark.parametrize(
    ("effects", "told"),
    [
        ((0.751, 0.74, 0.762), "24.9 % faster, 95 % between 22 and 28 %, three startups, all 24 pairs exact"),
        ((1.0301, 1.0302, 1.0300), "3.01 % slower, 95 % between 2.99 and 3.03 %, three startups, all 24 pairs exact"),
        (
            (0.9, 1.1, 1.02),
            "inconclusive (2.0 % slower was measured), 95 % between 22 % faster and 29 % slower, ",
        ),
        ((1.0, 1.0, 1.0), "equivalent (0.00 % was measured), 95 % between 0.00 and 0.00 %, three startups"),
    ],
)
def test_the_sentence(ram, effects, told):
    summary, markdown = measured(ram, effects)
    assert headline(summary).sentence.startswith(told)
    assert markdown.splitlines()[0] == "# told: b against a (projection: columns-32 -> columns-128)"
    assert markdown.splitlines()[2].startswith(f"**{told}")


def test_levels_have_the_digits_that_the_client_resolves(ram):
    _, markdown = measured(ram, (0.75, 0.74, 0.76))
    assert "| 16.000 / 12.000 |" in markdown and "16.0000" not in markdown


def test_what_weakens_the_answer_stands_beside_it(ram):
    plan = replace(PLAN, candidate=Arm("b", (("projection", "columns-128"), ("selection", "keys"))), startups=2)
    summary, _ = measured(ram, (0.75, 0.74), plan)
    group = replace(summary.groups[0], settle_drift={0: 0.3})
    weak = replace(summary, load=HostLoad(2.0, 9.26, 4), groups=(replace(group, judgement=floored(group)),))
    told = headline(weak).warnings
    assert "the arms differ in 2 operators (projection, selection): the effect is of all of them" in told
    assert "two startups: the evidence is screen" in told
    assert "the host's load reached 9.3 on 4 CPUs: processes waited for one" in told
    assert "the control had not settled in 1 of its runs (up to +35 % within one)" in told
    assert not any("load" in warning for warning in headline(replace(weak, load=HostLoad(2.0, 3.9, 4))).warnings)


def floored(group):
    return replace(group.judgement, floor=NoiseFloor(0.01, "no A/A"))


def test_a_control_that_moves_more_than_the_effect_is_told(ram):
    path = ram / "store.sqlite"

    def script(step, attempt):
        ms = (16.0, 20.0, 18.0)[step.key.startup] * (0.9 if step.role is Role.CANDIDATE else 1.0)
        return Script(Trajectory(30, 10, 19), ms)

    with Store.open(path) as store:
        Driver(store, PLAN, script).run()
    with Reader.open(path) as reader:
        told = headline(summarise(reader, reader.resolve("last"))).warnings
    assert "the control alone differs by 25 % between startups, more than the effect" in told


def test_equal_arms_are_called_noise(ram):
    from campaigns.plan import Mode

    equal = replace(PLAN, mode=Mode.AA, candidate=PLAN.control)
    summary, markdown = measured(ram, (1.0, 1.001, 0.999), equal)
    assert any("A/A" in warning for warning in headline(summary).warnings)
    assert markdown.startswith("# told: a against a\n")


def test_an_acceptance_that_was_built_says_so(ram):
    summary, _ = measured(ram, (0.9, 0.9, 0.9))
    assert not any("synthetic" in warning for warning in headline(summary).warnings)
    built = {"made_weights": {"seed": 1, "format": "nvfp4", "accepted": 5, "sha256": "ab" * 32}}
    lives = tuple(replace(life, startup=replace(life.startup, identity=built)) for life in summary.lives)
    [told] = [w for w in headline(replace(summary, lives=lives)).warnings if "synthetic" in w]
    assert told.startswith("synthetic acceptance: these random weights were built so that about 5 drafts a round")


def test_an_inexact_pair_of_an_attempt_that_was_repeated_is_not_forgotten(ram):
    """Whatever broke the attempt: both arms had answered, and otherwise."""
    path, [block] = ram / "store.sqlite", blocks(PLAN, 0)

    def script(step, attempt):
        return Script(Trajectory(30, 10, 19), 16.0, token_seed=int(step.role is Role.CANDIDATE and attempt == 1))

    with Store.open(path) as store:
        driver = Driver(store, PLAN, script, calibration=ONE_US)
        campaign = driver.campaign()
        store.begin(campaign)
        driver.start(campaign.campaign_id, 0, 1)
        driver.block(campaign.campaign_id, block, 1, stop_after=2 * block.warmups + 3)
        driver.block(campaign.campaign_id, block, 1)
    with Reader.open(path) as reader:
        told = headline(summarise(reader, reader.resolve("last")))
    assert "all 8 pairs exact" in told.sentence
    assert any(warning.startswith("1 pair of attempts that were measured again not exact") for warning in told.warnings)


def test_prompts_that_no_arm_computed_are_told(ram):
    summary, _ = measured(ram, (0.9, 0.9, 0.9), replace(PLAN, server=replace(PLAN.server, prompt_state="shared")))
    assert any("computed by the default schedules for both arms" in w for w in headline(summary).warnings)
    summary, _ = measured(ram, (0.9, 0.9, 0.9), replace(PLAN, server=replace(PLAN.server, prompt_state="snapshot")))
    assert not any("default schedules" in w for w in headline(summary).warnings)


@pytest.mark.parametrize(
    ("engine", "client", "told"),
    [
        (1.0, 1.0, ""),
        (0.9, 1.1, "the engine's clock tells an effect of -10.00 %, the client saw +10.00 %"),
        (0.001, 1.0, "the engine tells 0.005517 ms for a token of the candidate where the client saw 5.517 ms"),
    ],
)
def test_an_engine_whose_clock_is_not_what_the_client_saw(ram, engine, client, told):
    """A clock in another unit, and an arm that works where the engine does not count."""

    class Lying(Driver):
        def request(self, *told):
            request = super().request(*told)
            if request.role is Role.CONTROL:
                return request
            first, took = request.first_content_ns, request.last_content_ns - request.first_content_ns
            last, decode_ns = first + round(took * client), round(request.engine_decode_ns * engine)
            return replace(request, last_content_ns=last, engine_decode_ns=decode_ns)

    path = ram / "store.sqlite"
    with Store.open(path) as store:
        Lying(store, PLAN, lambda step, attempt: Script(Trajectory(30, 10, 19), 16.0), calibration=ONE_US).run()
    with Reader.open(path) as reader:
        summary = summarise(reader, reader.resolve("last"))
    assert summary.clocks_apart[: len(told) or None] == told
    assert (summary.clocks_apart in headline(summary).warnings) == bool(told)


@pytest.mark.parametrize(
    ("silent", "told"),
    [
        (lambda r: r.role is Role.CANDIDATE, "0 of 24 pairs exact, 24 excluded"),
        (lambda r: r.key.startup == 0 and r.key.repeat == 0, "all 24 pairs exact"),
        (lambda r: True, "all 24 pairs exact"),
    ],
    ids=["one arm", "both, once", "both"],
)
def test_a_pair_is_exact_by_the_word_that_admitted_it(ram, silent, told):
    """Servers that leave out accepted counts: what excludes a pair is not counted as exact, and the other way round."""

    class Silent(Driver):
        def request(self, *told):
            request = super().request(*told)
            return replace(request, accepted_sha256=None, emitted_sha256=None) if silent(request) else request

    path = ram / "store.sqlite"
    with Store.open(path) as store:
        Silent(store, PLAN, lambda step, attempt: Script(Trajectory(30, 10, 19), 16.0), calibration=ONE_US).run()
    with Reader.open(path) as reader:
        assert headline(summarise(reader, reader.resolve("last"))).sentence.endswith(told)
