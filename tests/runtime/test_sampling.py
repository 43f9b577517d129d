"""The sampling distribution against a sorted FP64 reference written in numpy: ties, infinities, every cut."""

import itertools
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.accept import OP, Rule, separate
from kernels.accept.laws import Distribution, distribution, shortlisted
from kernels.checking.cases import cases_of
from kernels.routes import Routes
from runtime.engine.between import rule_of
from runtime.engine.vocabulary import Vocabulary
from runtime.errors import RequestError, SamplingError
from runtime.operators import Operators
from runtime.speculation.draft import draws_of, walk
from runtime.speculation.sampling import SamplingParams


def reference(row: np.ndarray, params: SamplingParams) -> dict[int, float]:
    """Token to probability, by one sort in FP64 and loops over it."""
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if params.temperature == 0:
        return {order[0]: 1.0}
    values = [float(row[i]) / params.temperature for i in order]
    if params.top_k and params.top_k < len(order):
        kept = sum(value >= values[params.top_k - 1] for value in values)
        order, values = order[:kept], values[:kept]
    weights = [1.0 if value == values[0] else float(np.exp(value - values[0])) for value in values]
    weights = [weight if weight >= params.min_p else 0.0 for weight in weights]
    total, mass, law = sum(weights), 0.0, {}
    for token, weight in zip(order, weights, strict=True):
        if weight > 0 and (params.top_p == 1 or mass < params.top_p):
            law[token] = weight / total
        mass += weight / total
    total = sum(law.values())
    return {token: p / total for token, p in law.items()}


def broken(logits: torch.Tensor) -> torch.Tensor:
    return separate.broken(Vocabulary(logits.shape[-1], Operators(Routes())).largest(logits))


def law_of(result: Distribution, row: int = 0) -> dict[int, float]:
    pairs = zip(result.ids[row].tolist(), result.p[row].tolist(), strict=True)
    return {token: p for token, p in pairs if p > 0}


def agrees(mine: dict[int, float], expected: dict[int, float]) -> bool:
    return mine.keys() == expected.keys() and all(abs(mine[t] - p) < 1e-12 for t, p in expected.items())


PARAMS = [
    SamplingParams(temperature=t, top_k=k, top_p=p, min_p=m)
    for t, k, p, m in itertools.product((0, 0.6, 1.0), (0, 1, 3, 20), (0.3, 0.95, 1.0), (0.0, 0.1))
]


@pytest.mark.parametrize("levels", (1, 2, 3, 8, 10_000))
def test_every_cut_agrees_with_the_sorted_reference(levels: int, device: torch.device) -> None:
    """Few levels make ties at the k-th place and at the nucleus boundary common."""
    generator = np.random.default_rng(levels)
    for params in PARAMS:
        rows = (generator.integers(0, levels, (6, 37)) / levels * 6).astype(np.float32)
        result = distribution(torch.from_numpy(rows).to(device), params)
        for i, row in enumerate(rows):
            assert agrees(law_of(result, i), reference(row, params)), (params, row)


@given(
    st.lists(st.sampled_from([-np.inf, -2.0, 0.0, 0.5, 1.0, 3.0, np.inf]), min_size=2, max_size=12),
    st.integers(0, 8),
    st.floats(0.05, 1.0),
    st.sampled_from([0.0, 0.2, 1.0]),
)
@settings(max_examples=300, deadline=None)
def test_ties_and_infinities(values: list[float], k: int, top_p: float, min_p: float) -> None:
    row, params = np.array(values, dtype=np.float32), SamplingParams(top_k=k, top_p=top_p, min_p=min_p)
    if not np.isfinite(row).any() and not (row == np.inf).any():
        assert bool(broken(torch.from_numpy(row)[None]))
        return
    assert not bool(broken(torch.from_numpy(row)[None]))
    assert agrees(law_of(distribution(torch.from_numpy(row)[None], params)), reference(row, params))


@pytest.mark.parametrize("temperature", (5e-324, 1e-310, 1e-301, 1e-300, 1e-200))
def test_a_temperature_near_zero_is_nearly_greedy_and_never_flat(temperature: float) -> None:
    logits, params = torch.tensor([[3.0, -2.0, 7.0, 7.0, 6.999]]), SamplingParams(temperature=temperature)
    assert law_of(distribution(logits, params)) == {2: 0.5, 3: 0.5}
    scores, candidates = logits[:, None].expand(1, 5, 5), torch.arange(5)[None]
    drawn = draws_of(params, torch.tensor([1]), torch.tensor([4]))
    assert walk(scores, candidates, drawn).q[0, 0].tolist() == [0.0, 0.0, 0.5, 0.5, 0.0]


def test_a_tie_at_the_kth_place_is_kept_whole() -> None:
    law = law_of(distribution(torch.tensor([[5.0, 1.0, 3.0, 1.0, 1.0, 0.0]]), SamplingParams(top_k=3)))
    assert law.keys() == {0, 2, 1, 3, 4}


def test_a_tie_at_the_nucleus_boundary_is_split_by_id() -> None:
    law = law_of(distribution(torch.zeros(1, 4), SamplingParams(top_p=0.5)))
    assert law == {0: 0.5, 1: 0.5}


def test_infinite_logits_share_all_mass() -> None:
    law = law_of(distribution(torch.tensor([[float("inf"), 3.0, float("inf"), float("-inf")]]), SamplingParams()))
    assert law == {0: 0.5, 2: 0.5}


def test_greedy_takes_the_smallest_id_of_a_tie() -> None:
    assert law_of(distribution(torch.tensor([[1.0, 7.0, 7.0]]), SamplingParams(temperature=0))) == {1: 1.0}


@pytest.mark.parametrize("levels", (2, 3, 6, 10_000))
def test_shortlist_equals_the_whole_vocabulary_or_says_that_it_cannot(levels: int) -> None:
    generator, flagged = torch.Generator().manual_seed(levels), 0
    for k in (1, 2, 5, 20):
        params = SamplingParams(top_k=k, top_p=0.9)
        for _ in range(20):
            logits = torch.randint(0, levels, (1, 40), generator=generator).float() / levels * 5
            values, ids = logits.sort(dim=-1, descending=True, stable=True)
            short = shortlisted(values[:, : k + 1], ids[:, : k + 1], params, 40)
            if bool(short.cut_tie):
                flagged += 1
                assert values[0, k - 1] == values[0, k]
            else:
                assert law_of(short) == law_of(distribution(logits, params))
    assert (flagged > 0) == (levels < 10_000)


@pytest.mark.parametrize("bad", ([float("nan"), 1.0, 2.0], [float("-inf")] * 3))
def test_rows_without_an_order_are_flagged(bad: list[float]) -> None:
    assert bool(broken(torch.tensor([[0.0, 1.0, 2.0], bad])))


def test_nan_fails_the_request_and_the_engine_goes_on(make: Any) -> None:
    engine = make.engine()
    prompt = make.prompt_of(12)
    expected = make.answer(engine, prompt, max_tokens=10).tokens
    head = engine.decoder.target.head.weight
    kept, head[3] = head[3].clone(), float("nan")
    with pytest.raises(SamplingError, match="NaN"):
        make.answer(engine, prompt, max_tokens=10)
    head[3] = kept
    assert make.answer(engine, prompt, max_tokens=10).tokens == expected


def test_all_that_a_request_samples_by_reaches_the_verdict_and_is_tried_by_its_cases() -> None:
    """A schedule that does not know a new parameter then differs from its reference."""
    given = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.01}
    assert vars(rule_of(SamplingParams(**given), complete=True)) == given | {"complete": True}
    assert {field.name for field in fields(SamplingParams)} == {*given, "seed"}
    rules = [vars(case.make("cpu").rule) for case in cases_of(OP, "cpu")]
    assert all(len({rule[field.name] for rule in rules}) > 1 for field in fields(Rule))


@pytest.mark.parametrize(
    "wrong",
    ({"temperature": -1}, {"temperature": float("inf")}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.5}, {"min_p": 2}),
)
def test_senseless_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(wrong))):
        SamplingParams(**wrong)
