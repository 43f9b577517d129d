"""What the documentation promises beside words: coverage, power, bias by drift, plans that are met."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from campaigns.design.planning import needed_startups, variances
from campaigns.judging.decision import Floats, t_quantile
from campaigns.judging.statistics import by_startup, nested_bootstrap
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, Order, Role, ServerPlan
from campaigns.simulate.worlds import Model

_RESAMPLES = 299  # enough for a coverage; a report takes more


def coverage(model: Model, n: int, seed: int) -> tuple[float, float, float]:
    """Share of 95 % intervals that hold a truth of zero: t on startup medians, nested bootstrap, and t on pooled pairs,
    which must not be done. NaN where there is no interval."""
    deltas = model.draw(np.random.default_rng(seed), n)[:, 0]
    boot = math.nan
    if model.startups >= 5:
        samples = ({s: list(row) for s, row in enumerate(campaign)} for campaign in deltas)
        intervals = [nested_bootstrap(sample, 1, _RESAMPLES) for sample in samples]
        boot = float(np.mean([i is not None and i.low <= 0 <= i.high for i in intervals]))
    return _held(np.median(deltas, -1)), boot, _held(deltas.reshape(n, -1))


def _held(values: Floats) -> float:
    count = values.shape[-1]
    half = t_quantile(0.975, count - 1) * values.std(-1, ddof=1) / math.sqrt(count)
    return float((np.abs(values.mean(-1)) <= half).mean())


def predicted_power(model: Model) -> float:
    """Of the two-sided 5 % t test on startup medians, by the noncentral t distribution."""
    from scipy.stats import nct, t

    medians = np.median(replace(model, truth=0.0).draw(np.random.default_rng(0), 3000), -1)
    df, shift = model.startups - 1, abs(float(np.max(model.truth))) * math.sqrt(model.startups) / medians.std()
    limit = t.ppf(0.975, df)
    return float(nct.sf(limit, df, shift) + nct.cdf(-limit, df, shift))


def drift_bias(order: Order | str, pairs: int, drift: float = 0.01) -> float:
    """Headline of one startup whose requests slow down linearly, by `drift` over twelve, nothing else happening."""
    step = drift / 11
    deltas = [step] * pairs if order == "abab" else _deltas_of_plan(Order(order), pairs, step)
    return abs(float(np.median(deltas)))


def _deltas_of_plan(order: Order, pairs: int, step: float) -> list[float]:
    """From the order in which a real plan runs its requests."""
    arm, server = Arm("a"), ServerPlan("null")
    plan = CampaignPlan("drift", arm, arm, (Fixture("f", "{}", (0,)),), server, pairs=pairs, order=order)
    times: dict[tuple[int, Role], float] = {}
    for position, request in enumerate(blocks(plan, 0)[0].steps):
        times[request.key.repeat, request.role] = step * position
    return [times[k, Role.CANDIDATE] - times[k, Role.CONTROL] for k in range(pairs)]


def plan_met(pilot: Model, wanted: float, n: int, seed: int) -> tuple[float, float]:
    """(share of planned campaigns that meet the half width, mean number of startups), planned from pilots."""
    rng = np.random.default_rng(seed)
    met, planned = [], []
    for _ in range(n):
        found = variances(by_startup(pilot.campaign(rng)))
        assert found is not None, pilot
        startups = needed_startups(found, pilot.pairs, wanted)
        if startups is not None:
            medians = np.median(replace(pilot, startups=startups).draw(rng, 1)[0, 0], -1)
            half = float(t_quantile(0.975, startups - 1)) * medians.std(ddof=1) / math.sqrt(startups)
            met.append(half <= wanted)
            planned.append(startups)
    return float(np.mean(met)), float(np.mean(planned))
