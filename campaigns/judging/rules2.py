"""The rules of methodology versions 1 and 2, kept so that a store tells what it told when it was measured.

Known faults, mended in version 3: an order effect hides a slower candidate, the campaign's word is held against the
widest fixture, fixtures are not adjusted for their number, and the A/A floor does not shrink with the startups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from campaigns.judging.statistics import (
    Interval,
    NoiseFloor,
    OrderContrast,
    PairEffect,
    by_startup,
    median_or_none,
    nested_bootstrap,
    order_contrast,
    sign_flip_p,
    startup_medians,
    t_interval,
)
from campaigns.judging.verdicts import (
    Judged,
    Judgement,
    Sample,
    Setting,
    Verdict,
    counted,
    evidence,
    show,
    show_interval,
)

_MIN_AA_STARTUPS = 8  # fewer give no 95th percentile


def judge_campaign(samples: Mapping[str, Sample], setting: Setting) -> Judged:
    fixtures = {name: _judge(sample, setting) for name, sample in samples.items()}
    return Judged(fixtures, _overall(list(fixtures.values()), setting))


def _judge(sample: Sample, setting: Setting, floor: NoiseFloor | None = None) -> Judgement:
    deltas = by_startup(sample.pairs)
    medians = startup_medians(deltas)
    values = list(medians.values())
    interval = t_interval(values)
    effects = [pair.delta_log for pair in sample.pairs]
    measured = Judgement(
        evidence=evidence(len(medians)),
        verdict=Verdict.SCREEN,
        because="",
        n_pairs=len(effects),
        startup_medians=medians,
        startup_pairs={startup: len(values) for startup, values in deltas.items()},
        effect=median_or_none(values),
        interval=interval,
        interval_90=t_interval(values, 0.90),
        bootstrap=nested_bootstrap(deltas, setting.seed, setting.resamples) if setting.resamples else None,
        p=sign_flip_p(values, setting.seed),
        floor=floor or _noise_floor(sample.past.aa, interval, sample.resolution),
        contrast=order_contrast(sample.pairs),
        pair_range=(min(effects), max(effects)) if effects else None,
    )
    verdict, because = _decide(measured, sample, setting)
    return replace(measured, verdict=verdict, because=because)


def _noise_floor(aa_medians: Sequence[float], own: Interval | None, resolution: float | None) -> NoiseFloor | None:
    if len(aa_medians) >= _MIN_AA_STARTUPS:
        return NoiseFloor(float(np.quantile(np.abs(aa_medians), 0.95)), f"A/A, {len(aa_medians)} startups")
    aa = t_interval(aa_medians)
    if aa is not None:
        return NoiseFloor(aa.half_width, f"A/A half width, {len(aa_medians)} startups")
    return NoiseFloor(max(own.half_width, resolution or 0.0), "no A/A") if own is not None else None


def _exceeds(contrast: OrderContrast, floor: float) -> bool:
    return bool(contrast.value and abs(contrast.value) > floor and contrast.n_signs and contrast.beyond_chance)


def _decide(measured: Judgement, sample: Sample, setting: Setting) -> tuple[Verdict, str]:
    if not measured.n_pairs:
        if sample.n_recorded:
            return Verdict.INADMISSIBLE, f"none of {sample.n_recorded} pairs is admissible"
        return Verdict.NOTHING_MEASURED, "no pair was recorded"
    if measured.n_startups < 3:
        return Verdict.SCREEN, f"{counted(measured.n_startups, 'startup')}: three are needed for an interval"
    assert measured.floor is not None, measured
    contrast = measured.contrast
    if contrast is not None and contrast.value is not None and _exceeds(contrast, measured.floor.value):
        return Verdict.ORDER_SENSITIVE, (
            f"order contrast {show(contrast.value)} beyond the noise floor {show(measured.floor.value, sign=False)}, "
            f"{contrast.agreeing} of {contrast.n_signs} neighbours agree"
        )
    return _decide_effect(measured, measured.floor, sample.resolution or 0.0, math.log1p(setting.margin))


def _decide_effect(measured: Judgement, floor: NoiseFloor, resolution: float, margin: float) -> tuple[Verdict, str]:
    effect, interval, interval_90 = measured.effect, measured.interval, measured.interval_90
    assert effect is not None and interval is not None, measured
    numbers = f"effect {show(effect)}, interval {show_interval(interval)}, noise floor {show(floor.value, sign=False)}"
    if interval.excludes_zero() and abs(effect) > floor.value and effect * interval.low > 0:
        if abs(effect) < resolution:
            return Verdict.BELOW_RESOLUTION, f"{numbers}, below the resolution {show(resolution, sign=False)}"
        return (Verdict.FASTER if effect < 0 else Verdict.SLOWER), numbers
    if interval_90 is not None and interval_90.inside(margin) and resolution < margin:
        return Verdict.EQUIVALENT, (
            f"90 % interval {show_interval(interval_90)} inside the margin of {show(margin, sign=False)}"
        )
    if abs(effect) < resolution:
        return Verdict.BELOW_RESOLUTION, f"{numbers}, below the resolution {show(resolution, sign=False)}"
    return Verdict.INCONCLUSIVE, numbers


def _overall(judgements: Sequence[Judgement], setting: Setting) -> Judgement:
    if len(judgements) == 1:
        return judgements[0]
    measured = [judgement for judgement in judgements if judgement.n_pairs]
    if not measured:
        recorded = sum(1 for j in judgements if j.verdict is Verdict.INADMISSIBLE)
        return _judge(Sample((), recorded), setting)
    shared = set.intersection(*(set(judgement.startup_medians) for judgement in measured))
    means = [
        PairEffect(s, math.fsum(j.startup_medians[s] for j in measured) / len(measured), True) for s in sorted(shared)
    ]
    floors = [judgement.floor for judgement in measured if judgement.floor is not None]
    widest = max(floors, key=lambda floor: floor.value, default=None)
    mean = _judge(Sample(means, len(means)), setting, widest)
    mean = replace(mean, n_pairs=sum(j.n_pairs for j in measured), contrast=None)
    for word in (Verdict.SLOWER, Verdict.ORDER_SENSITIVE):
        hit = [judgement for judgement in judgements if judgement.verdict is word]
        if hit:
            return replace(mean, verdict=word, because=f"{len(hit)} of {len(judgements)} groups: {hit[0].because}")
    return replace(mean, because=f"geometric mean of {len(judgements)} groups, equal weights: {mean.because}")
