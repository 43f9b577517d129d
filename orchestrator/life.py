"""One server life, measured: checks, warm-ups, blocks of pairs, each fact stored as soon as it exists.

Knows the handle of a running startup and the store. Which blocks are missing, and what to do when the life ends early,
is the campaign's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from campaigns.errors import IdentityMismatch, NothingAdmissible, ServerFailed
from campaigns.exactness.compare import compare
from campaigns.hashes import token_sha256
from campaigns.order import first_role, life_warmups
from campaigns.plan import Block, CampaignPlan, PairKey, Phase, Role, StartupMode, Step
from campaigns.reasons import FAILED, Reason
from campaigns.records import Calibration, Campaign, Failure, Pair, Request
from campaigns.routes import routes
from orchestrator.measuring.together import Together
from orchestrator.output.eta import Left
from orchestrator.output.journal import Journal
from orchestrator.output.progress import View
from orchestrator.preparation import identity
from orchestrator.preparation.prepare import Prepared
from orchestrator.preparation.prompts import budget_from_server
from results.store.writer import Store

if TYPE_CHECKING:
    from orchestrator.startups.startup import StartupHandle

# What asking again may mend; a redirect or an empty answer comes again.
BROKEN = FAILED - {Reason.NO_CONTENT, Reason.REDIRECT}


@dataclass(frozen=True)
class Desk:
    """What every life of a campaign writes to."""

    store: Store
    campaign: Campaign
    prepared: Prepared
    journal: Journal
    view: View
    stop_requested: Callable[[bool], None] = lambda _: None  # told whether a block is done; raises where it is to end

    @property
    def plan(self) -> CampaignPlan:
        return self.prepared.plan

    def doing(self, what: str) -> None:
        """Told to who looks at a terminal, and through the journal to who looks at a page."""
        self.journal.write("now", what=what)
        self.view.doing(what)


class Life:
    """The blocks of one startup attempt, run on one leased handle."""

    def __init__(self, desk: Desk, handle: StartupHandle, startup: int, attempt: int) -> None:
        self._desk, self._handle = desk, handle
        self._startup, self._attempt = startup, attempt
        self._budgets = dict(desk.prepared.budgets)
        self._warm_identity: Mapping[str, Any] | None = None
        self._counters: dict[Role, Counter[str]] = {role: Counter() for role in Role}  # of this life
        self._together = Together()

    def run(self, blocks: Sequence[Block]) -> None:
        """Start, check, measure. Raises when the life cannot go on; what was measured is already stored."""
        record = self._handle.start()
        self._desk.store.startup(record)
        self._desk.journal.write("startup", startup=self._startup, attempt=self._attempt, processes=record.processes)
        ready_s = (record.ready_ns or 0) * 1e-9
        self._desk.doing(f"startup {self._startup + 1}: ready after {ready_s:.1f} s; prompts are checked, warm-ups run")
        self._check_tokens()
        try:
            if self._desk.plan.startup_mode is StartupMode.SEQUENTIAL:
                self._run_sequential(blocks)
            else:
                self._warm_life(blocks[0])
                for block in blocks:
                    self._run_block(block)
        finally:
            self._note_arrivals(record.calibration)
        self._check_identity("last")

    # -- blocks ------------------------------------------------------------------------------------------------------

    def _run_block(self, block: Block) -> None:
        """All pairs of one fixture and seed; measured again as a whole when a request breaks."""
        for trial in range(self._desk.plan.server.retries + 1):
            final = trial == self._desk.plan.server.retries
            number = self._open(block)
            self._warm(block, block.warmups, number)
            if self._measure(block, number, keep_going=final):
                return

    def _measure(self, block: Block, number: int, *, keep_going: bool) -> bool:
        """False when a request broke and the block should be tried again."""
        seen: dict[PairKey, dict[Role, Request]] = {key: {} for key in block.keys}
        for key, steps in groupby(block.steps, key=lambda step: step.key):
            requests, whole = self._take(block, tuple(steps), number)
            if not whole and not keep_going:
                return False
            seen[key].update({request.role: request for request in requests})
            if len(seen[key]) == 2:
                self._pair(seen[key][Role.CONTROL], seen[key][Role.CANDIDATE])
                self._desk.stop_requested(key == block.keys[-1])
        return True

    def _run_sequential(self, blocks: Sequence[Block]) -> None:
        """Every step of one arm in its own server life, then every step of the other; pairs are matched by index."""
        first = first_role(self._desk.plan.seed, "sequential", self._startup)
        numbers = {block: self._open(block) for block in blocks}
        seen: dict[PairKey, Request] = {}
        for role in (first, first.other):
            if role is not first:
                self._check_identity("last")
                self._desk.store.startup(self._handle.activate(role))
                self._warm_identity = None
            for block in blocks:
                self._warm(block, block.warmups or life_warmups(self._desk.plan), numbers[block], (role,))
                for step in (step for step in block.steps if step.role is role):
                    request = self._take_alone(block, step, numbers[block])
                    if step.key in seen:
                        both = {request.role: request, seen[step.key].role: seen[step.key]}
                        self._pair(both[Role.CONTROL], both[Role.CANDIDATE])
                        self._desk.stop_requested(step.key == block.keys[-1])
                    seen[step.key] = request

    def _take(self, block: Block, steps: Sequence[Step], number: int) -> tuple[list[Request], bool]:
        """Send, store, and tell whether none broke; raises where the server died."""
        requests = self._handle.run(steps, self._budgets[block.fixture], number)
        self._keep(requests)
        broken = [request for request in requests if _broke(request)]
        for request in broken:
            self._note_broken(request)
        return requests, not broken

    def _take_alone(self, block: Block, step: Step, number: int) -> Request:
        """A step of one arm's life. The other arm's server is gone or to come, so that the step is repeated and not its
        block; what broke stays under a phase of its own.
        """
        for _ in range(self._desk.plan.server.retries):
            [request] = self._handle.run((step,), self._budgets[block.fixture], number)
            if not _broke(request) or Reason.SERVER_DIED in request.reasons:
                break
            broken = replace(request, phase=Phase.RETRIED)
            self._keep([broken])
            self._note_broken(broken)
        else:
            return self._take(block, (step,), number)[0][0]
        self._keep([request])
        if _broke(request):
            self._note_broken(request)
        return request

    def _open(self, block: Block) -> int:
        return self._desk.store.block(self._desk.campaign.campaign_id, block, self._attempt)

    # -- warm-ups and checks -----------------------------------------------------------------------------------------

    def _warm_life(self, block: Block) -> None:
        count = life_warmups(self._desk.plan)
        if count:
            self._warm(block, count, 0)

    def _warm(self, block: Block, count: int, number: int, roles: tuple[Role, ...] = tuple(Role)) -> None:
        self._keep(self._handle.warm(block, count, roles, self._budgets[block.fixture], number))
        if self._warm_identity is None:
            self._warm_identity = self._check_identity("warm")
        self._check_routes()

    def _check_routes(self) -> None:
        """A schedule that has refused every call so far will refuse the others: no pair could ever be admissible.

        One that nobody has called yet may still be called, and the pairs will tell.
        """
        for role, counters in self._counters.items():
            arm = self._desk.plan.arm(role)
            told = [phrase for r in routes(arm.schedules, counters) if r.only_refused for phrase in r.told()]
            if told:
                raise NothingAdmissible(
                    f"arm {arm.name} cannot run on this server: {'; '.join(told)} and no call was taken: name another "
                    "schedule (python -m kernels.list), or serve what this one takes"
                )

    def _check_identity(self, moment: str) -> Mapping[str, Any]:
        """The live server against the disk, and against itself after warm-up: libraries load lazily."""
        live = self._handle.identity()
        self._desk.store.identity(self._desk.campaign.campaign_id, self._startup, self._attempt, moment, live)
        differences = identity.mismatches(self._desk.prepared.expected, live)
        differences += identity.changes(self._warm_identity or {}, live)
        if moment == "warm" and self._desk.plan.server.adapter != "dflash2":  # ours is held against what was prepared
            differences += identity.others(self._earlier_identities(), live)
        if differences:
            raise IdentityMismatch(
                f"startup {self._startup + 1}: the server is not what was prepared: {'; '.join(differences)}; "
                "stop whatever changed the files and start again"
            )
        return live

    def _earlier_identities(self) -> list[Mapping[str, Any]]:
        """Of lives before this one, whose servers were all seen: two, where one follows the other."""
        lives: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
        for startup, attempt, told in self._desk.store.warm_identities(self._desk.campaign.campaign_id):
            lives.setdefault((startup, attempt), []).append(told)
        lives.pop((self._startup, self._attempt), None)
        whole = 2 if self._desk.plan.startup_mode is StartupMode.SEQUENTIAL else 1
        return [told for each in lives.values() if len(each) >= whole for told in each]

    def _check_tokens(self) -> None:
        """Untimed: the server's own ids must be the ones that were counted before the lease."""
        fixtures = self._desk.plan.fixtures
        live = self._handle.token_ids(fixtures)
        for fixture in fixtures:
            ours, theirs = self._desk.prepared.prompt_ids.get(fixture.id), live.get(fixture.id)
            if ours is not None and theirs is not None and ours != theirs:
                raise IdentityMismatch(
                    f"fixture {fixture.id}: the server's /tokenize gives {len(theirs)} ids (sha256 "
                    f"{token_sha256(theirs)[:12]}) and the checkpoint's files give {len(ours)} "
                    f"({token_sha256(ours)[:12]}): the tokenizer or chat template is not the same"
                )
            if fixture.id not in self._budgets:
                count = len(theirs) if theirs is not None else None
                self._budgets[fixture.id] = budget_from_server(fixture, count, self._handle.capacity())

    # -- facts -------------------------------------------------------------------------------------------------------

    def _keep(self, requests: Iterable[Request]) -> None:
        kept = list(requests)
        for request in kept:
            self._desk.store.request(request)
            if request.rounds:  # an answer that ended with its prefill never called what rounds call
                self._counters[request.role].update(request.counters)
        self._together.add(kept)
        self._desk.view.requests(kept)
        self._desk.store.samples(self._desk.campaign.campaign_id, self._startup, self._attempt, self._handle.samples())

    def _pair(self, control: Request, candidate: Request) -> None:
        pair = compare(control, candidate, self._desk.plan.required_exactness)
        if not (self._arm_was_taken(control) and self._arm_was_taken(candidate)):
            pair = replace(pair, admissible=False, reasons=(*pair.reasons, Reason.ARM_NOT_DISTINCT))
        self._desk.store.pair(pair)
        self._journal_pair(pair, self._desk.view.pair(pair))

    def _arm_was_taken(self, request: Request) -> bool:
        """Whether every schedule of the arm was hit. A server without counters cannot be asked, and an answer that
        ended with its prefill had no use for those of rounds: nothing of it is timed.
        """
        schedules = self._desk.plan.arm(request.role).schedules
        return (
            not request.counters
            or not request.rounds
            or all(route.hits for route in routes(schedules, request.counters))
        )

    def _journal_pair(self, pair: Pair, left: Left) -> None:
        facts = {"exactness": int(pair.exactness), "admissible": pair.admissible, "reasons": pair.reasons}
        left_facts = {"left_s": round(left.seconds, 1), "left_at_least": left.at_least}
        self._desk.journal.write("pair", key=pair.key, **facts, **left_facts)

    def _note_arrivals(self, calibration: Calibration | None) -> None:
        if (found := self._together.finding(calibration)) is not None:
            reason, message = found
            campaign_id, utc = self._desk.campaign.campaign_id, datetime.now(UTC).isoformat(timespec="milliseconds")
            self._desk.store.failure(Failure(campaign_id, utc, reason, message, self._startup, self._attempt))
            self._desk.journal.write("arrivals", startup=self._startup, attempt=self._attempt, message=message)

    def _note_broken(self, request: Request) -> None:
        """Keep the failure as evidence; a dead server ends the life."""
        reason = next(reason for reason in request.reasons if reason in BROKEN)
        message = request.error or f"request of {request.arm} ended with {reason}"
        campaign_id, key = self._desk.campaign.campaign_id, request.key
        utc = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._desk.store.failure(Failure(campaign_id, utc, reason, message, self._startup, self._attempt, key))
        self._desk.journal.write("failure", key=key, reason=reason, message=message)
        if reason is Reason.SERVER_DIED:
            raise ServerFailed(f"startup {self._startup + 1}: the server died during a request: {message}")


def _broke(request: Request) -> bool:
    return bool(BROKEN & set(request.reasons))
