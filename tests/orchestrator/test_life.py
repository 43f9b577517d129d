"""The loop's promises against a real store, with a scripted handle in the place of the server.

What dies, when it dies, and what is then recorded: the handle here breaks where a test says so. The real processes are
killed in test_kill.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from campaigns.errors import IdentityMismatch, NothingAdmissible, ServerFailed
from campaigns.order import blocks, pair_keys
from campaigns.plan import Arm, Block, CampaignPlan, Fixture, Mode, PairKey, Phase, Role, ServerPlan, StartupMode, Step
from campaigns.reasons import Reason
from campaigns.records import Campaign, Request, Round, Startup
from campaigns.routes import refusal_name
from orchestrator.life import Desk, Life
from orchestrator.output.journal import Journal
from orchestrator.output.progress import View
from orchestrator.preparation.prepare import Prepared
from results.store.reader import Reader
from results.store.writer import Store

PLAN = CampaignPlan(
    name="t",
    control=Arm("a", (("projection", "x"),)),
    candidate=Arm("b", (("projection", "y"),)),
    fixtures=(Fixture("f", "{}", (1,), max_tokens=8), Fixture("g", "{}", (2,), max_tokens=8)),
    server=ServerPlan("dflash2", retries=1),
    startups=1,
    pairs=2,
    warmups=1,
)


class ScriptedHandle:
    """Answers as a startup would; `breaks` maps the number of a measured request to the reason it ends with."""

    def __init__(self, plan: CampaignPlan, attempt: int, breaks: dict[int, Reason] | None = None) -> None:
        self.plan, self.attempt, self.breaks = plan, attempt, breaks or {}
        self.measured = 0
        self.position = 0
        self.hits: Callable[[Role], dict[str, int]] = lambda role: {
            "/".join(self.plan.arm(role).schedules[0]): 1 if self.plan.arm(role).schedules else 0
        }
        self.num_rounds: Callable[[], int] = lambda: 1
        self.live_ids: dict[str, tuple[int, ...] | None] = {}
        self.live_identity: dict[str, Any] = {}
        self.activated: list[Role] = []

    def start(self) -> Startup:
        return self._startup(None)

    def activate(self, role: Role) -> Startup:
        self.activated.append(role)
        return self._startup(role)

    def _startup(self, role: Role | None) -> Startup:
        return Startup("c", 0, self.attempt, role, "2026-01-01", "boot", "host", ("cpu",), (), 1, {}, {}, ())

    def token_ids(self, fixtures: Sequence[Fixture]) -> dict[str, tuple[int, ...] | None]:
        return {f.id: self.live_ids.get(f.id) for f in fixtures}

    def capacity(self) -> int | None:
        return 64

    def identity(self) -> dict[str, Any]:
        return self.live_identity

    def samples(self) -> list[Any]:
        return []

    def warm(self, block: Block, count: int, roles: Sequence[Role], budget: int, number: int) -> list[Request]:
        key = PairKey(block.startup, block.fixture, block.seed, 0)
        return [self._request(key, role, None, number, ()) for _ in range(count) for role in roles]

    def run(self, steps: Sequence[Step], budget: int, number: int) -> list[Request]:
        made = []
        for step in steps:
            self.measured += 1
            broken = self.breaks.get(self.measured)
            made.append(self._request(step.key, step.role, step.order_in_pair, number, (broken,) if broken else ()))
        return made

    def _request(
        self, key: PairKey, role: Role, order: int | None, number: int, reasons: tuple[Reason, ...]
    ) -> Request:
        self.position += 1
        rounds = (Round(1, kind="spec", client_ns=10, client_tokens=2, engine_ns=9, drafted=7, accepted=1, emitted=2),)
        return Request(
            campaign_id="c",
            startup=0,
            startup_attempt=self.attempt,
            key=key,
            block_attempt=number,
            role=role,
            arm=self.plan.arm(role).name,
            phase=Phase.WARMUP if order is None else Phase.MEASURE,
            position=self.position,
            order_in_pair=order,
            prompt_sha256="p",
            prompt_tokens=3,
            max_tokens=8,
            sched_ns=0,
            send_ns=1,
            first_event_ns=2,
            first_content_ns=3,
            last_content_ns=13,
            end_ns=14,
            first_tokens=1,
            rounds=rounds[: self.num_rounds()],
            n_rounds=self.num_rounds(),
            n_q1_steps=0,
            completion_tokens=3,
            cached_tokens=0,
            finish_reason="stop",
            text="x",
            reasoning_text="",
            tool_calls_json="",
            token_ids=(1, 2, 3),
            token_sha256="t",
            emitted_sha256="e",
            accepted_sha256="a",
            drafted_sha256="d",
            engine_queue_ns=0,
            engine_prefill_ns=1,
            engine_decode_ns=9,
            counters=self.hits(role),
            admissible=not reasons,
            reasons=reasons,
        )


class Bench:
    """A store on disk and one campaign in it."""

    def __init__(self, folder: Path, plan: CampaignPlan = PLAN) -> None:
        self.path, self.plan = folder / "s.sqlite", plan
        self.store = Store.open(self.path)
        self.campaign = Campaign("c", "t", "2026-01-01", 1, "{}", "sha", "{}", {}, {})
        self.store.begin(self.campaign)
        self.prepared = Prepared(
            plan=plan,
            config_json="{}",
            fingerprint={},
            provenance={},
            expected={"weights_sha256": "w"},
            prompt_ids={"f": (1, 2)},
            budgets={"f": 8, "g": 8},
            store_path=self.path,
            strict=False,
        )
        self.journal = Journal(folder)
        self.asked_to_stop: Callable[[], None] = lambda: None

    def live(self, handle: ScriptedHandle) -> None:
        recorded = self.store.recorded("c")
        missing = [block for block in blocks(self.plan, 0) if not recorded.holds(block)]
        self.view = View(Console(quiet=True), self.plan, recorded.pairs)
        desk = Desk(self.store, self.campaign, self.prepared, self.journal, self.view, lambda _: self.asked_to_stop())
        Life(desk, handle, 0, handle.attempt).run(missing)  # type: ignore[arg-type]

    def end(self) -> None:
        self.journal.__exit__(None, None, None)
        self.store.close()

    def close(self) -> Reader:
        self.end()
        return Reader.open(self.path)


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, getattr(request, "param", PLAN))
    yield made
    made.end()


def test_a_quiet_life_records_every_pair_once(bench: Bench) -> None:
    bench.live(ScriptedHandle(PLAN, 1))
    assert bench.store.recorded("c").pairs == set(pair_keys(PLAN))
    with bench.close() as reader:
        assert len(reader.pairs("c")) == len(pair_keys(PLAN)) and all(pair.admissible for pair in reader.pairs("c"))
        phases = [stored.request.phase for stored in reader.requests("c")]
        assert phases.count(Phase.WARMUP) == 4 and phases.count(Phase.MEASURE) == 8


def test_a_broken_request_repeats_its_block_and_stays_as_evidence(bench: Bench) -> None:
    bench.live(ScriptedHandle(PLAN, 1, {3: Reason.STALL}))
    assert bench.store.recorded("c").pairs == set(pair_keys(PLAN))
    assert bench.view.done == bench.view.total == 4  # the repeated pair counts once
    with bench.close() as reader:
        [failure] = reader.failures("c")
        assert failure.reason is Reason.STALL
        superseded = [stored for stored in reader.requests("c") if stored.superseded]
        assert {s.request.key.fixture for s in superseded} == {"f"} and len(superseded) == 2 + 4


def test_a_block_that_keeps_breaking_is_recorded_as_inadmissible(bench: Bench) -> None:
    bench.live(ScriptedHandle(PLAN, 1, {1: Reason.STALL, 3: Reason.STALL}))
    with bench.close() as reader:
        newest = {pair.key: pair for pair in reader.pairs("c")}
        bad = [pair for pair in newest.values() if not pair.admissible]
        assert len(newest) == 4 and len(bad) == 1 and Reason.STALL in bad[0].reasons
        assert Reason.PARTNER_EXCLUDED in bad[0].reasons


def test_a_dead_server_ends_the_life_and_the_next_one_runs_only_what_is_missing(bench: Bench) -> None:
    with pytest.raises(ServerFailed, match="died during a request"):
        bench.live(ScriptedHandle(PLAN, 1, {6: Reason.SERVER_DIED}))
    second = ScriptedHandle(PLAN, 2)
    bench.live(second)
    assert second.measured == 4  # the second fixture's block, as a whole
    with bench.close() as reader:
        current = [s.request for s in reader.requests("c") if not s.superseded and s.request.phase is Phase.MEASURE]
        assert {request.startup_attempt for request in current if request.key.fixture == "g"} == {2}
        assert len({(request.key, request.role) for request in current}) == len(current) == 8


def test_an_arm_whose_schedule_was_never_hit_makes_its_pairs_invalid(bench: Bench) -> None:
    handle = ScriptedHandle(PLAN, 1)
    handle.hits = lambda role: {"projection/x": 5}  # the switch is ignored: the public case 16
    bench.live(handle)
    with bench.close() as reader:
        assert all(pair.reasons == (Reason.ARM_NOT_DISTINCT,) for pair in reader.pairs("c"))
        assert not any(pair.admissible for pair in reader.pairs("c"))


REFUSED = refusal_name("projection", "y", "K = 52; a multiple of 32")


def refuse_candidate(role: Role) -> dict[str, int]:
    return {"projection/x": 5} if role is Role.CONTROL else {"projection/dense": 5, REFUSED: 5}


@pytest.mark.parametrize(
    "bench",
    [PLAN, replace(PLAN, corpus="c", pairs=1), replace(PLAN, mode=Mode.AA)],
    ids=["ab", "corpus", "aa"],
    indirect=True,
)
def test_a_schedule_that_refused_every_call_ends_the_campaign_before_its_first_pair(bench: Bench) -> None:
    handle = ScriptedHandle(bench.plan, 1)
    handle.hits = refuse_candidate
    words = (
        r"arm b cannot run .*: projection/y refused: K = 52; a multiple of 32 \(5 calls\) and no call was taken: name"
    )
    with pytest.raises(NothingAdmissible, match=words):
        bench.live(handle)
    assert handle.measured == 0
    with bench.close() as reader:
        stored = [request.request for request in reader.requests("c")]
        assert {request.phase for request in stored} == {Phase.WARMUP} and len(stored) == 2
        assert any(REFUSED in request.counters for request in stored)  # the evidence


@pytest.mark.parametrize(
    ("warm", "measured"),
    [
        ({REFUSED: 9, "projection/y": 1}, {REFUSED: 9, "projection/y": 1}),  # the prefill alone, or the rounds alone
        ({"projection/x": 5}, {"projection/x": 5}),  # nobody called it: the pairs tell
        ({}, {}),  # a server without counters
    ],
    ids=["some refused", "never called", "no counters"],
)
def test_an_arm_that_is_not_only_refused_is_measured(
    bench: Bench, warm: dict[str, int], measured: dict[str, int]
) -> None:
    handle = ScriptedHandle(PLAN, 1)
    handle.hits = lambda role: {"projection/x": 5} if role is Role.CONTROL else measured if handle.measured else warm
    bench.live(handle)
    assert handle.measured == 8


def test_an_answer_without_rounds_says_nothing_of_them(bench: Bench) -> None:
    """A first fixture that ends with its prefill: the schedule takes rounds alone, and the second one has some."""
    handle = ScriptedHandle(PLAN, 1)
    handle.hits = lambda role: refuse_candidate(role) if handle.measured < 4 else {"projection/x": 5, "projection/y": 5}
    handle.num_rounds = lambda: 0 if handle.measured < 4 else 1
    bench.live(handle)
    with bench.close() as reader:
        assert all(pair.reasons == () for pair in reader.pairs("c"))


@pytest.mark.parametrize("bench", [replace(PLAN, warmups=0)], indirect=True)
def test_without_warm_ups_the_first_block_tells(bench: Bench) -> None:
    handle = ScriptedHandle(bench.plan, 1)
    handle.hits = refuse_candidate
    with pytest.raises(NothingAdmissible):
        bench.live(handle)
    assert handle.measured == 4 and len(bench.store.recorded("c").pairs) == 2


@pytest.mark.parametrize("bench", [replace(PLAN, startup_mode=StartupMode.SEQUENTIAL)], indirect=True)
def test_a_sequential_arm_is_judged_in_its_own_life(bench: Bench) -> None:
    handle = ScriptedHandle(bench.plan, 1)
    handle.hits = refuse_candidate
    with pytest.raises(NothingAdmissible, match="arm b cannot run"):
        bench.live(handle)
    assert handle.measured == (4 if handle.activated else 0) and not bench.store.recorded("c").pairs


def test_other_token_ids_than_counted_are_a_mismatch(bench: Bench) -> None:
    handle = ScriptedHandle(PLAN, 1)
    handle.live_ids = {"f": (1, 9)}
    with pytest.raises(IdentityMismatch, match=r"fixture f: the server's /tokenize"):
        bench.live(handle)
    assert handle.measured == 0


def test_other_weights_than_on_disk_are_a_mismatch_before_anything_is_measured(bench: Bench) -> None:
    handle = ScriptedHandle(PLAN, 1)
    handle.live_identity = {"weights_sha256": "z"}
    with pytest.raises(IdentityMismatch, match=r"weights_sha256 was w when the .* prepared and is z in the server"):
        bench.live(handle)
    assert handle.measured == 0


def test_weights_that_change_while_the_server_lives_are_a_mismatch_at_its_end(bench: Bench) -> None:
    """Of a foreign server, too, whose weights lie on no disk that the launcher sees."""

    class Reloading(ScriptedHandle):
        def identity(self) -> dict[str, Any]:
            return {"draft_weights_sha256": "old" if self.measured == 0 else "new"}

    with pytest.raises(IdentityMismatch, match="draft_weights_sha256 was old and is new"):
        bench.live(Reloading(PLAN, 1))


def test_an_operator_may_end_it_after_the_running_pair(bench: Bench) -> None:
    class Enough(Exception):
        pass

    def stop() -> None:
        raise Enough

    bench.asked_to_stop = stop
    with pytest.raises(Enough):
        bench.live(ScriptedHandle(PLAN, 1))
    assert len(bench.store.recorded("c").pairs) == 1


@pytest.mark.parametrize("bench", [replace(PLAN, startup_mode=StartupMode.SEQUENTIAL)], indirect=True)
def test_sequential_lives_run_one_arm_after_the_other_and_match_pairs_by_index(bench: Bench) -> None:
    handle = ScriptedHandle(bench.plan, 1)
    bench.live(handle)
    with bench.close() as reader:
        order = [s.request.role for s in reader.requests("c") if s.request.phase is Phase.MEASURE]
        assert len(set(order[:4])) == 1 and set(order[4:]) == {order[0].other} and handle.activated == [order[4]]
        assert {pair.key for pair in reader.pairs("c")} == set(pair_keys(bench.plan))


@pytest.mark.parametrize("seed", range(12))
def test_wherever_lives_end_nothing_is_lost_doubled_or_mixed(bench: Bench, seed: int) -> None:
    """Crash-point fuzz (public case 51): each life dies at a random request until one gets through."""
    chance = random.Random(seed)
    for attempt in range(1, 40):
        dies = {chance.randint(1, 9): Reason.SERVER_DIED} if attempt < 6 else {}
        try:
            bench.live(ScriptedHandle(PLAN, attempt, dies))
        except ServerFailed:
            continue
        break
    assert bench.store.recorded("c").pairs == set(pair_keys(PLAN))
    with bench.close() as reader:
        current = [s.request for s in reader.requests("c") if not s.superseded and s.request.phase is Phase.MEASURE]
        assert len(current) == 8 == len({(request.key, request.role) for request in current})
        for fixture in ("f", "g"):
            assert len({request.startup_attempt for request in current if request.key.fixture == fixture}) == 1


SEQUENTIAL = replace(PLAN, startup_mode=StartupMode.SEQUENTIAL)


@pytest.mark.parametrize("bench", [SEQUENTIAL], indirect=True)
@pytest.mark.parametrize("broken", [2, 7], ids=["first life", "second life"])
def test_a_broken_step_of_a_sequential_life_is_asked_again_in_its_place(bench: Bench, broken: int) -> None:
    bench.live(ScriptedHandle(bench.plan, 1, {broken: Reason.DISCONNECT}))
    assert bench.store.recorded("c").pairs == set(pair_keys(PLAN)) and not bench.store.recorded("c").failed
    with bench.close() as reader:
        assert all(pair.admissible for pair in reader.pairs("c"))
        phases = [stored.request.phase for stored in reader.requests("c")]
        assert (phases.count(Phase.MEASURE), phases.count(Phase.RETRIED)) == (8, 1)
        [failure] = reader.failures("c")
        assert failure.reason is Reason.DISCONNECT


@pytest.mark.parametrize("bench", [SEQUENTIAL], indirect=True)
def test_a_step_that_keeps_breaking_costs_its_own_pair_alone(bench: Bench) -> None:
    bench.live(ScriptedHandle(bench.plan, 1, {2: Reason.DISCONNECT, 3: Reason.DISCONNECT}))
    recorded = bench.store.recorded("c")
    assert len(recorded.pairs) == 4 and len(recorded.failed) == 1
    with bench.close() as reader:
        assert [pair.admissible for pair in reader.pairs("c")].count(False) == 1


OTHER = replace(PLAN, server=ServerPlan("command", retries=1))
CODE = "/opt/kernels.so"
WAS = {"version": "0.31.0", "libraries": [{"path": CODE, "sha256": "aa"}]}


@pytest.mark.parametrize("bench", [OTHER], indirect=True)
@pytest.mark.parametrize(
    ("now", "words"),
    [
        (WAS, ""),
        ({}, ""),  # a server that says nothing is not contradicted
        (WAS | {"libraries": [{"path": "/opt/lib/other.so", "sha256": "bb"}]}, ""),
        (WAS | {"libraries": [{"path": CODE, "sha256": "bb"}], "libraries_host": "another"}, ""),
        (WAS | {"version": "0.32.0"}, r"its version was 0\.31\.0 and is 0\.32\.0"),
        (
            WAS | {"libraries": [{"path": CODE, "sha256": "bb"}]},
            f"{CODE} was aa and is bb",
        ),
    ],
)
def test_a_later_life_of_another_server_ends_the_campaign(bench: Bench, now: dict[str, Any], words: str) -> None:
    first, second = ScriptedHandle(OTHER, 1, {6: Reason.SERVER_DIED}), ScriptedHandle(OTHER, 2)
    first.live_identity, second.live_identity = WAS, now
    with pytest.raises(ServerFailed):
        bench.live(first)
    if not words:
        bench.live(second)
        return
    with pytest.raises(IdentityMismatch, match=words):
        bench.live(second)
