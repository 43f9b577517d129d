"""What differed, by pair; what the server counted of its drafts; arms that were declared different and were not."""

from dataclasses import replace

import pytest

from campaigns.exactness.differing import differing
from campaigns.plan import Arm, Role, StartupMode
from campaigns.records import HIDDEN, Round
from campaigns.routes import ACCEPTED, DRAFTED, DRAFTS
from results.reading.summary import summarise
from results.reports.headline import headline
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.synthetic import Driver
from tests.results.reports.test_report import PLAN, script

SMALL = replace(PLAN, startups=1, pairs=3, fixtures=PLAN.fixtures[:1])


class Changed(Driver):
    """A scripted campaign whose requests are changed before they are kept."""

    def __init__(self, *args, change=lambda request: request, **options):
        super().__init__(*args, **options)
        self.change = change

    def request(self, *args):
        return self.change(super().request(*args))


def measured(path, plan=SMALL, **options):
    with Store.open(path) as store:
        Changed(store, plan, script, **options).run()
    with Reader.open(path) as reader:
        name = reader.resolve("last")
        return summarise(reader, name), render(reader, name, "md")


ROUND = Round(1, accepted=3, drafted=7, emitted=4)
CHANGES = [
    ({"text": "answer 1o and more of it than fits"}, "text from character 8: '0' / 'o and more of it than fi'…"),
    ({"text": ""}, "text from character 0: 'answer 10' / nothing"),
    ({"reasoning_text": "hm"}, "reasoning from character 0: nothing / 'hm'"),
    ({"tool_calls_json": "[]"}, "tool calls from character 0: nothing / '[]'"),
    ({"token_ids": (1, 2, 4, 5)}, "ids from token 2: 3 / 4"),
    ({"token_ids": (1, 2)}, "ids from token 2: 3 / the end"),
    ({"completion_tokens": 42}, "candidate: 3 ids but usage 42"),
    ({"token_ids": None}, "candidate: no token ids"),
    ({"finish_reason": "length"}, "finish reason: stop / length"),
    ({"finish_reason": None}, "finish reason: stop / not told"),
    ({"completion_tokens": 42}, "tokens: 3 / 42"),
    ({"prompt_sha256": "ff" * 32}, "prompt: aaaaaaaaaaaa / ffffffffffff"),
    ({"rounds": (replace(ROUND, accepted=2),)}, "accepted from round 1: 3 / 2"),
    ({"rounds": (ROUND, ROUND)}, "drafted from round 2: the end / 7"),
]


@pytest.fixture(scope="module")
def request_(module_ram):
    with Store.open(module_ram / "s") as store:
        Driver(store, SMALL, script).run()
    with Reader.open(module_ram / "s") as reader:
        made = next(stored.request for stored in reader.requests(reader.resolve("last")))
    plain = {"text": "answer 10", "token_ids": (1, 2, 3), "completion_tokens": 3, "prompt_sha256": "aa" * 32}
    return replace(made, rounds=(ROUND,), role=Role.CONTROL, **plain)


@pytest.mark.parametrize(("change", "told"), CHANGES)
def test_each_difference_has_its_phrase(request_, change, told):
    assert not differing(request_, replace(request_, role=Role.CANDIDATE))
    assert told in differing(request_, replace(request_, role=Role.CANDIDATE, **change))


def test_a_report_names_the_pairs_and_what_differed(ram):
    def change(request):
        if request.role is Role.CONTROL or request.order_in_pair is None or not request.key.repeat:
            return request
        return replace(request, finish_reason="length", text=request.text + "!")

    found, text = measured(ram / "s", change=change)
    assert [(pair.repeat, len(pair.what)) for pair in found.differing] == [(1, 2), (2, 2)]
    line = "startup 1, release1k, seed 20260925, repeat 1: text from character 8: nothing / '!'; finish reason: stop / "
    assert f"## What differed (control / candidate)\n\n- {line}length\n" in text
    assert found.n_inexact_pairs == 2


def test_exact_pairs_differ_in_nothing(ram):
    found, text = measured(ram / "s")
    assert not found.differing and "## What differed" not in text


def test_the_counters_of_a_server_that_lists_no_rounds(ram):
    counted = {Role.CONTROL: {}, Role.CANDIDATE: {DRAFTS: 4, DRAFTED: 28, ACCEPTED: 7}}
    found, text = measured(ram / "s", change=lambda request: replace(request, counters=counted[request.role]))
    [arm] = found.speculation
    assert (arm.role, arm.n_requests, arm.n_drafted) == (Role.CANDIDATE, 3, 84)
    assert "12 drafts of 84 tokens, 21 accepted, 25.0 % of what was drafted, 1.750 a draft" in text


LIVES = replace(
    SMALL,
    startup_mode=StartupMode.CO_RESIDENT,
    control=Arm("graphs", env=(("GRAPHS", "1"),)),
    candidate=Arm("eager", env=(("GRAPHS", "0"),)),
)


@pytest.mark.parametrize(
    ("control", "candidate", "alike"),
    [("1", "1", True), ("1", "0", False), (HIDDEN, HIDDEN, False), (None, None, True), (None, "0", False)],
)
def test_servers_that_started_alike(ram, control, candidate, alike):
    """Both inherit what the launcher had set, say, by a wrapper that sets it again."""
    with Store.open(ram / "s") as store:
        keep, values = store.startup, {Role.CONTROL: control, Role.CANDIDATE: candidate}

        def keep_both(record):
            for role, value in values.items():
                keep(replace(record, role=role, environment={} if value is None else {"GRAPHS": value}))

        store.startup = keep_both
        Driver(store, LIVES, script).run()
    with Reader.open(ram / "s") as reader:
        found = summarise(reader, reader.resolve("last"))
    warned = [line for line in headline(found).warnings if "declared different" in line]
    assert bool(warned) == alike and all(f"GRAPHS={control or 'not set'}" in line for line in warned)
