"""Rounds as integers, their hash, the summary beside them; frames repeat the definitions of campaigns.quantities."""

import hashlib
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns import quantities
from campaigns.exactness.compare import effect
from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from campaigns.provenance import METHODOLOGY_VERSION
from campaigns.reasons import Reason
from campaigns.records import Round
from results.reading import frames
from results.store.hashing import rounds_sha256
from results.store.reader import Reader
from results.store.rounds import COLUMNS, flatten, from_rows, lag1, summarise, to_matrix
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory, counts
from results.transfer.synthetic import Driver, without_engine

counts_or_none = st.none() | st.integers(0, 2**40)
many_rounds = st.lists(
    st.builds(
        Round,
        index=st.integers(1, 10**6),
        kind=st.sampled_from([None, "spec", "q1"]),
        client_ns=counts_or_none,
        client_tokens=counts_or_none,
        coalesced=st.booleans(),
        engine_ns=counts_or_none,
        rows=counts_or_none,
        drafted=st.none() | st.integers(0, 7),
        accepted=st.none() | st.integers(0, 7),
        emitted=st.none() | st.integers(0, 8),
        wake_ns=counts_or_none,
    ),
    max_size=8,
).map(tuple)


UNHURRIED = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@UNHURRIED
@given(many_rounds)
def test_integers_round_trip_and_hash_depends_on_every_value(rounds):
    flat = flatten(rounds)
    assert from_rows(zip(*[iter(flat)] * len(COLUMNS), strict=True)) == rounds
    assert all(value is None or type(value) is int for value in flat)
    matrix = to_matrix(flat)
    for row, column in ((0, 2), (-1, 13)) if rounds else ():
        changed = matrix.copy()
        changed[row, column] = 1 if np.isnan(changed[row, column]) else changed[row, column] + 1
        assert rounds_sha256(changed) != rounds_sha256(matrix)


def test_the_hash_is_stable():
    flat = flatten([Round(1, "spec", client_ns=5, coalesced=True), Round(2)])
    first = (1, 1, 5, -1, 1, *[-1] * 9)
    second = (2, -1, -1, -1, 0, *[-1] * 9)
    expected = hashlib.sha256(b"\x01" + struct.pack("<28q", *first, *second)).hexdigest()
    assert rounds_sha256(to_matrix(flat)) == expected


@UNHURRIED
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=200))
def test_quantiles_are_numpys(times):
    found = summarise(to_matrix(flatten([Round(i, "spec", client_ns=ns) for i, ns in enumerate(times, 1)])))
    expected = np.quantile(times, [0.5, 0.9, 0.99])
    names = ("client_round_p50_ns", "client_round_p90_ns", "client_round_p99_ns")
    assert [found[name] for name in names] == pytest.approx(expected.tolist())


def test_narrow_steps_are_no_rounds():
    spec = [Round(i, "spec", engine_ns=10 * i, drafted=7, accepted=i, emitted=i + 1) for i in (1, 2, 3)]
    found = summarise(to_matrix(flatten([*spec, Round(4, "q1", engine_ns=99, emitted=1)])))
    assert (found["n_engine_rounds"], found["engine_round_p50_ns"], found["sum_accepted"]) == (3, 20.0, 6)
    assert found["sum_emitted"] == 2 + 3 + 4 + 1
    assert json.loads(found["accepted_histogram"]) == [0, 1, 1, 1]


def test_one_unknown_count_makes_the_sum_unknown():
    spec = [Round(i, "spec", engine_ns=10, accepted=None if i == 2 else 3) for i in (1, 2, 3)]
    found = summarise(to_matrix(flatten(spec)))
    assert found["sum_accepted"] is None and found["accepted_histogram"] is None and found["sum_drafted"] is None


def test_a_request_without_rounds_has_a_summary_of_nothing():
    found = summarise(to_matrix(flatten([])))
    assert found["n_client_rounds"] == found["n_engine_rounds"] == 0
    assert found["sum_accepted"] is found["client_round_p50_ns"] is found["client_round_lag1"] is None


def test_lag1_by_hand():
    assert lag1(np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(0.25)
    assert lag1(np.array([5.0, 5.0, 5.0])) is None


@pytest.mark.parametrize("residual", [-7, -1, 0, 4])
def test_scripted_counts_add_up(residual):
    trajectory = Trajectory(1 + 65 + 197 + residual, 65, 197)
    drafted, accepted, emitted = counts(trajectory)
    assert len(drafted) == 65 and sum(accepted) == 197 and max(accepted) <= 7
    assert sum(emitted) == trajectory.tokens - 1 - max(0, residual)
    assert all(1 <= e <= a + 1 for e, a in zip(emitted, accepted, strict=True))


@pytest.mark.parametrize("engine", [True, False])
def test_frames_repeat_the_definitions(ram, engine):
    plan = CampaignPlan(
        "unit", Arm("a"), Arm("b"), (Fixture("alpha", "{}", (0,)),), ServerPlan("null"), startups=2, pairs=3
    )

    def script(step, attempt):
        tokens = 20 + 3 * step.key.repeat
        rounds = 5 + step.key.repeat
        ms = 16.0 + step.key.startup + (step.role is Role.CANDIDATE)
        return Script(Trajectory(tokens, rounds, 9), ms, 40 + rounds, growth=0.1)

    with Store.open(ram / "store.sqlite") as store:
        keep = store.request
        if not engine:
            store.request = lambda request: keep(without_engine(request))
        campaign_id = Driver(store, plan, script).run()
    with Reader.open(ram / "store.sqlite") as reader:
        frame = frames.requests(reader, campaign_id).set_index("request_id")
        for stored in reader.requests(campaign_id):
            row, request = frame.loc[stored.request_id], stored.request
            expected = {
                "ttft_ms": quantities.ttft_ms(request),
                "e2el_ms": quantities.e2el_ms(request),
                "tpot_ms": quantities.tpot_ms(request),
                frames.ENGINE_MS: quantities.round_ms(request, engine=True),
                frames.CLIENT_MS: quantities.round_ms(request, engine=False),
                "decode_tokens_per_s_engine": quantities.decode_tokens_per_s(request, engine=True),
                "decode_tokens_per_s_client": quantities.decode_tokens_per_s(request, engine=False),
                "sum_accepted": quantities.accepted(request),
                "sum_drafted": quantities.drafted(request),
                "residual": quantities.residual(request),
            }
            for name, value in expected.items():
                assert (np.isnan(row[name]) and value is None) or row[name] == pytest.approx(value, rel=1e-12), name
        assert frame[frames.ENGINE_MS].notna().all() == engine


_ODD = (  # what answers may be like, by the pair's repeat: (control, candidate)
    ({}, {}),
    ({}, {"first_tokens": 4, "first_characters": 9}),
    ({"first_tokens": None}, {"first_tokens": None}),
    ({"first_tokens": None}, {"first_tokens": None, "first_characters": 9}),
    ({"first_tokens": None}, {"first_tokens": None, "completion_tokens": 21}),
    ({"first_tokens": None}, {}),
    ({}, {"reasons": (Reason.FIRST_CHUNK_COALESCED,)}),
    ({"n_rounds": None}, {"n_rounds": None}),
    ({"completion_tokens": 1}, {}),
)


@pytest.mark.parametrize("methodology", [2, METHODOLOGY_VERSION])
def test_frames_repeat_the_effect_by_either_clock(ram, monkeypatch, methodology):
    plan = CampaignPlan(
        "unit", Arm("a"), Arm("b"), (Fixture("alpha", "{}", (0,)),), ServerPlan("null"), startups=1, pairs=len(_ODD)
    )

    def script(step, attempt):
        return Script(Trajectory(20, 5, 9), 16.0 + step.key.repeat + (step.role is Role.CANDIDATE))

    monkeypatch.setattr("results.transfer.synthetic.METHODOLOGY_VERSION", methodology)
    with Store.open(ram / "store.sqlite") as store:
        keep = store.request
        store.request = lambda r: keep(replace(r, **_ODD[r.key.repeat % len(_ODD)][r.role is Role.CANDIDATE]))
        campaign_id = Driver(store, plan, script).run()
    with Reader.open(ram / "store.sqlite") as reader:
        pairs = frames.pairs(reader, campaign_id).set_index("repeat")
        sides = {(s.request.key.repeat, s.request.role): s.request for s in reader.requests(campaign_id)}
    for repeat, row in pairs.iterrows():
        both = [sides[repeat, role] for role in Role]
        for source, strip in (("engine", lambda r: r), ("client", without_engine)):
            expected = effect(*map(strip, both), methodology)[0]
            found = row[f"effect_{source}"]
            assert (np.isnan(found) and expected is None) or found == pytest.approx(expected, abs=1e-12), (
                repeat,
                source,
            )
