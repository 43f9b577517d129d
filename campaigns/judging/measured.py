"""What startups say in numbers, of a fixture and of the mean over fixtures; no word is found here (`rules`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from campaigns.judging.decision import Bars
from campaigns.judging.looks import nominal
from campaigns.judging.past import noise_floor
from campaigns.judging.repeats import mean_repeats
from campaigns.judging.statistics import (
    Interval,
    by_startup,
    mean_contrast,
    median_or_none,
    nested_bootstrap,
    order_contrast,
    sign_flip_p,
    startup_medians,
    t_interval,
)
from campaigns.judging.verdicts import Judgement, Sample, Setting, Verdict, evidence


def of_fixture(sample: Sample, setting: Setting) -> Judgement:
    deltas = by_startup(sample.pairs)
    found = of_startups(startup_medians(deltas), sample, setting)
    effects = [pair.delta_log for pair in sample.pairs]
    return replace(
        found,
        n_pairs=len(effects),
        startup_pairs={startup: len(values) for startup, values in deltas.items()},
        bootstrap=None
        if setting.looks or not setting.resamples
        else nested_bootstrap(deltas, setting.seed, setting.resamples),
        contrast=order_contrast(sample.pairs),
        pair_range=(min(effects), max(effects)) if effects else None,
    )


def of_mean(fixtures: Sequence[Judgement], samples: Sequence[Sample], setting: Setting) -> tuple[Judgement, Sample]:
    """Over fixtures, in the startups that all of them have."""
    shared = sorted(set.intersection(*(set(each.startup_medians) for each in fixtures)))
    resolutions = [sample.resolution for sample in samples if sample.resolution is not None]
    sample = Sample(
        (),
        sum(sample.n_recorded for sample in samples),
        max(resolutions, default=None),
        setting.past,
        _over_fixtures([sample.levels for sample in samples]),
        _over_fixtures([sample.settle for sample in samples]),
        mean_repeats([sample.repeats for sample in samples]),
    )
    found = of_startups(_over_fixtures([each.startup_medians for each in fixtures]), sample, setting)
    return replace(
        found,
        n_pairs=sum(each.n_pairs for each in fixtures),
        startup_pairs={s: sum(each.startup_pairs[s] for each in fixtures) for s in shared},
        contrast=mean_contrast([each.contrast for each in fixtures if each.contrast is not None]),
    ), sample


def _over_fixtures(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    shared = set.intersection(*(set(each) for each in values))
    return {s: math.fsum(each[s] for each in values) / len(values) for s in sorted(shared)}


def of_startups(medians: dict[int, float], sample: Sample, setting: Setting) -> Judgement:
    """Everything that startups alone say, without a word yet."""
    values = list(medians.values())
    interval = interval_of(values, Bars.alpha, setting)
    apart = sample.past.bands([level for s, level in sample.levels.items() if s in medians])
    return Judgement(
        evidence=evidence(len(values)),
        verdict=Verdict.SCREEN,
        because="",
        n_pairs=0,
        startup_medians=medians,
        startup_pairs={},
        effect=median_or_none(values),
        interval=interval,
        interval_90=interval_of(values, Bars.equivalence, setting),
        p=None if setting.looks else sign_flip_p(values, setting.seed),
        floor=noise_floor(sample.past, len(values), interval, sample.resolution, apart),
        bands=apart,
        look=setting.looks.number(len(values)) if setting.looks else 0,
    )


def interval_of(values: Sequence[float], alpha: float, setting: Setting) -> Interval | None:
    """Of a campaign that is looked at the repeated interval, which holds at all looks together (Jennison and Turnbull
    1989); none before its first look."""
    looks = setting.looks
    level = float(nominal(looks, len(values), alpha))
    interval = t_interval(values, 1 - level) if level else None
    if interval is None or looks is None:
        return interval
    method = f"repeated {interval.method}, look {looks.number(len(values))} of at most {looks.most}"
    return replace(interval, level=1 - alpha, method=method)
