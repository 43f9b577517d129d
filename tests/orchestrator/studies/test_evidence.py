"""What a race and a bisection take for evidence: of synthetic campaigns in real stores, whose truth is scripted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from campaigns.errors import CannotExecute, Exit, StoreUnwritable
from campaigns.plan import CampaignPlan, Role, StartupMode, Step
from campaigns.reasons import Reason
from campaigns.records import Request, StartupEnd, StartupStatus
from orchestrator.attempt import reason_of
from orchestrator.studies.bisect import Change, _difference, _unsteady
from orchestrator.studies.race import Entry
from results.reading.summary import Summary, summarise
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver
from tests.results.reports.test_report import PLAN

TWO = replace(PLAN, pairs=2, startups=2, warmups=1, startup_mode=StartupMode.CO_RESIDENT)


class Silent(Driver):
    """A server that sends no ids."""

    def request(self, campaign_id: str, step: Step, startup_attempt: int, block_attempt: int) -> Request:
        made = super().request(campaign_id, step, startup_attempt, block_attempt)
        return replace(made, token_ids=None, token_sha256=None)


def answers(otherwise: dict[Role, str]) -> Iterator[int]:
    """Seeds of answers: by role those of `always`, of each `startup`, or of no other request (`never` the same)."""
    numbers = count(1000)

    def script(step: Step, attempt: int) -> Script:
        seeds = {"always": 1, "changed": 2, "startup": 10 + step.key.startup, "never": next(numbers)}
        return Script(Trajectory(31, 10, 20), 16.0, token_seed=seeds[otherwise[step.role]])

    return script  # type: ignore[return-value]


def found(path: Path, otherwise: dict[Role, str], plan: CampaignPlan = TWO, kind: type[Driver] = Driver) -> Summary:
    with Store.open(path) as store:
        kind(store, plan, answers(otherwise)).run()  # type: ignore[arg-type]
    with Reader.open(path) as reader:
        return summarise(reader, reader.resolve("last"))


@pytest.mark.parametrize("kind", [Driver, Silent])
@pytest.mark.parametrize(
    ("control", "candidate", "startups", "sought"),
    [
        ("always", "changed", 1, True),
        ("always", "never", 1, True),  # a commit that made answers random changed them
        ("never", "never", 1, False),
        ("startup", "never", 2, False),  # alike in one life, and no life like another
        ("always", "always", 2, False),
    ],
)
def test_tokens_tell_commits_apart_only_where_the_older_one_answers_like_itself(
    tmp_path: Path, control: str, candidate: str, startups: int, sought: bool, kind: type[Driver]
) -> None:
    plan = replace(TWO, startups=startups, required_exactness=1 if kind is Silent else TWO.required_exactness)
    ends = found(tmp_path / "s", {Role.CONTROL: control, Role.CANDIDATE: candidate}, plan, kind)
    assert (_difference(ends, "") is not None) is sought
    unsteady = control != "always"
    assert bool(_unsteady(ends)) is unsteady
    assert Change(None).of(ends) is (None if unsteady else control != candidate)


@pytest.mark.parametrize(
    ("code", "reason", "unheard"),
    [
        (Exit.WORLD, None, True),  # no device, no room on the disk: not one startup began
        (Exit.WORLD, Reason.HELPER_LOST, True),
        (Exit.WORLD, reason_of(StoreUnwritable("it was locked for 30 s")), True),
        (Exit.WORLD, reason_of(CannotExecute("no such file")), False),
        (Exit.WORLD, Reason.SERVER_ERROR, False),  # its server died: this is what the arm does
        (Exit.COMPLETE, None, False),
        (Exit.NOTHING_ADMISSIBLE, None, False),
        (Exit.USAGE, None, True),
        (Exit.INTERRUPTED, None, True),
    ],
)
def test_what_the_machine_refused_says_nothing_of_an_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Exit, reason: Reason | None, unheard: bool
) -> None:
    with Store.open(tmp_path / "s") as store:
        ended = store.startup_end
        if reason is not None:
            failed = StartupEnd(StartupStatus.FAILED, CREATED, reason, "it ended")
            monkeypatch.setattr(store, "startup_end", lambda *life: ended(*life[:3], failed))
        name = Driver(store, TWO, answers(dict.fromkeys(Role, "always"))).run()  # type: ignore[arg-type]
    with Reader.open(tmp_path / "s") as reader:
        entry = Entry(1, "arm", name, code, summarise(reader, name))
    assert entry.unheard is unheard and bool(entry.fault) is (code is not Exit.COMPLETE)


def test_an_entry_that_cannot_be_read_says_nothing() -> None:
    assert Entry(1, "arm", "c0ffee", Exit.COMPLETE, None).unheard
