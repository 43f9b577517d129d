"""How a campaign's words are found: methodology 3. Campaigns of older versions keep theirs (`rules2`).

A fixture's startups speak for it; the campaign's startups are the means over its fixtures, which share them, and its
interval and floor are its own. `decision` decides the words, here they get their numbers and reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from campaigns.judging import decision, rules2
from campaigns.judging.decision import Bars, Figures, holm_shares, t_p
from campaigns.judging.looks import nominal
from campaigns.judging.measured import interval_of, of_fixture, of_mean, of_startups
from campaigns.judging.past import FEW
from campaigns.judging.repeats import remembering, suspected
from campaigns.judging.statistics import MIN_STARTUPS_INTERVAL, PairEffect, median_or_none
from campaigns.judging.verdicts import (
    Evidence,
    Judged,
    Judgement,
    Sample,
    Setting,
    Verdict,
    counted,
    show,
    show_interval,
)

_VERDICTS = {
    decision.INCONCLUSIVE: Verdict.INCONCLUSIVE,
    decision.FASTER: Verdict.FASTER,
    decision.SLOWER: Verdict.SLOWER,
    decision.EQUIVALENT: Verdict.EQUIVALENT,
    decision.ORDER_SENSITIVE: Verdict.ORDER_SENSITIVE,
    decision.BELOW_RESOLUTION: Verdict.BELOW_RESOLUTION,
}
DEFAULT = Setting()
Judge = Callable[[Mapping[str, Sample], Setting], Judged]


def rules_of(methodology: int) -> Judge:
    """The rules of the version under which a campaign was begun."""
    return judge_campaign if methodology >= 3 else rules2.judge_campaign


def judge_campaign(samples: Mapping[str, Sample], setting: Setting = DEFAULT) -> Judged:
    """Every fixture, and the campaign: the geometric mean over its fixtures, equal weights."""
    bars = Bars(margin=math.log1p(setting.margin))
    measured = {name: of_fixture(sample, setting) for name, sample in samples.items()}
    if len(measured) == 1:
        [(name, only)] = measured.items()
        told = _told(only, samples[name], setting, bars, bars.alpha)
        return Judged({name: told}, told)
    fixtures = _family(measured, samples, setting, bars, bars.family)
    overruling = _family(measured, samples, setting, bars, bars.overruling)
    return Judged(fixtures, _campaign(fixtures, overruling, samples, setting, bars))


def judge(pairs: Sequence[PairEffect], n_recorded: int, **more: Any) -> Judgement:
    """A campaign of one fixture; `more` are fields of its Sample."""
    return judge_campaign({"": Sample(pairs, n_recorded, **more)}).campaign


# -- words -----------------------------------------------------------------------------------------------------------


def _family(
    measured: Mapping[str, Judgement], samples: Mapping[str, Sample], setting: Setting, bars: Bars, alpha: float
) -> dict[str, Judgement]:
    """Each at the level that Holm leaves it; fixtures without an interval test nothing and take no share."""
    tested = [name for name, each in measured.items() if each.interval is not None]
    p = np.array([_p(measured[name]) for name in tested])
    counts = np.array([measured[name].n_startups for name in tested])
    found = holm_shares(p, alpha, lambda share: nominal(setting.looks, counts, share)) if tested else p
    shares = dict(zip(tested, found.tolist(), strict=True))
    return {
        name: _told(each, samples[name], setting, bars, shares.get(name, alpha), one_of_many=True)
        for name, each in measured.items()
    }


def _p(measured: Judgement) -> float:
    figures = _as_figures(measured, None)
    return float(t_p(figures.mean, figures.se, figures.freedom))


def _as_figures(measured: Judgement, resolution: float | None) -> Figures:
    values = np.array(list(measured.startup_medians.values()))
    contrasts = np.array(list(measured.contrast.startups.values())) if measured.contrast else np.array([])
    seen = len(contrasts) >= MIN_STARTUPS_INTERVAL
    assert measured.effect is not None and measured.floor is not None, measured
    return Figures(
        freedom=len(values) - 1,
        effect=np.array(measured.effect),
        mean=values.mean(),
        se=values.std(ddof=1) / math.sqrt(len(values)),
        floor=np.array(measured.floor.value),
        contrast=np.array(contrasts.mean() if seen else np.nan),
        contrast_se=np.array(contrasts.std(ddof=1) / math.sqrt(len(contrasts)) if seen else np.nan),
        contrast_signs=np.array(bool(measured.contrast and measured.contrast.beyond_chance)),
        resolution=resolution or 0.0,
    )


def _told(
    measured: Judgement, sample: Sample, setting: Setting, bars: Bars, alpha: float, *, one_of_many: bool = False
) -> Judgement:
    if not measured.n_pairs:
        if sample.n_recorded:
            because = f"none of {counted(sample.n_recorded, 'pair')} is admissible"
            return replace(measured, verdict=Verdict.INADMISSIBLE, because=because)
        return replace(measured, verdict=Verdict.NOTHING_MEASURED, because="no pair was recorded")
    if measured.n_startups < MIN_STARTUPS_INTERVAL:
        few = f"{counted(measured.n_startups, 'startup')}: three are needed for an interval"
        return replace(measured, because=few)
    if measured.interval is None:
        assert setting.looks is not None, measured
        early = f"{counted(measured.n_startups, 'startup')}: the first look is after {setting.looks.first}"
        return replace(measured, verdict=Verdict.INCONCLUSIVE, because=early)
    at = replace(bars, equivalence=float(nominal(setting.looks, measured.n_startups, bars.equivalence)))
    level = nominal(setting.looks, measured.n_startups, alpha)
    verdict = _VERDICTS[int(decision.words(_as_figures(measured, sample.resolution), level, at))]
    adjusted = interval_of(list(measured.startup_medians.values()), alpha, setting) if one_of_many else None
    told = replace(measured, verdict=verdict, adjusted=adjusted)
    told = replace(told, because=_because(told, sample.resolution, bars.margin))
    notes = _notes(told) if one_of_many else (*_look(told, setting, float(level)), *_notes(told))
    told = _remembered(replace(told, notes=notes), sample, bars)
    return _limited(told, sample, setting, bars)


def _remembered(told: Judgement, sample: Sample, bars: Bars) -> Judgement:
    """What was measured on repeats is no figure of new prompts where a server is faster on what it has answered before.

    A slower candidate stays slower.
    """
    assert told.floor is not None, told
    bar = max(told.floor.value, bars.margin)
    found = remembering(sample.repeats, bar)
    if not found or told.verdict is Verdict.SLOWER:
        return replace(told, notes=(*told.notes, *(found or suspected(sample.repeats, bar))))
    return replace(told, verdict=Verdict.REPEAT_SENSITIVE, because=f"{'; '.join(found)}; {told.because}")


def _look(told: Judgement, setting: Setting, level: float) -> Iterator[str]:
    if setting.looks is not None:
        yield (
            f"look {told.look} of at most {setting.looks.most}: a p of {level:.2g} or less counts, so that all looks "
            "together err in 5 %, and the interval holds at all of them"
        )


def _because(told: Judgement, resolution: float | None, margin: float) -> str:
    assert told.effect is not None and told.interval is not None and told.floor is not None, told
    if told.verdict is Verdict.EQUIVALENT:
        assert told.interval_90 is not None, told
        return f"90 % interval {show_interval(told.interval_90)} inside the margin of {show(margin, sign=False)}"
    decisive = told.adjusted or told.interval
    level = f"{100 * decisive.level:.4g} % interval" if told.adjusted else "interval"
    floor = math.copysign(told.floor.value, told.effect)
    numbers = f"effect {show(told.effect)}, {level} {show_interval(decisive)}, noise floor {show(floor)}"
    if told.verdict is Verdict.ORDER_SENSITIVE:
        return f"{_order(told)}: the verdict depends on which arm goes first; {numbers}"
    if told.verdict is Verdict.BELOW_RESOLUTION:
        return f"{numbers}, below the resolution {show(resolution or 0.0, sign=False)}"
    return numbers


def _order(told: Judgement) -> str:
    contrast = told.contrast
    assert contrast is not None and contrast.value is not None and contrast.interval is not None, contrast
    signs = f"{contrast.agreeing} of {contrast.n_signs} neighbours agree"
    return f"order contrast {show(contrast.value)} ({show_interval(contrast.interval)}, {signs})"


def _notes(told: Judgement) -> tuple[str, ...]:
    notes = []
    contrast = told.contrast
    seen = contrast is not None and contrast.interval is not None and contrast.interval.excludes_zero()
    if seen and contrast is not None and contrast.beyond_chance and told.verdict is not Verdict.ORDER_SENSITIVE:
        notes.append(f"{_order(told)}; ABBA cancels it, the verdict stands")
    if told.bands is not None:
        few = f"; fewer than {FEW} startups may all lie in one" if told.banded else ""
        notes.append(f"startups of this host and build fall into bands {show(told.bands, sign=False)} apart{few}")
    return tuple(notes)


def _limited(told: Judgement, sample: Sample, setting: Setting, bars: Bars) -> Judgement:
    """Evidence that the host or a server that had not settled takes away."""
    why = [setting.overloaded] if setting.overloaded else []
    drift = median_or_none(list(sample.settle.values()))
    assert told.effect is not None, told
    sizes = {Verdict.FASTER: abs(told.effect), Verdict.SLOWER: abs(told.effect), Verdict.EQUIVALENT: bars.margin}
    if drift is not None and abs(drift) > sizes.get(told.verdict, math.inf):
        why.append(f"the control drifted by {show(drift)} inside its startups, more than what is told")
    if told.evidence is not Evidence.SUPPORTED or not why:
        return replace(told, notes=(*told.notes, *why))
    notes = (*told.notes, *(f"{reason}: indicative, not supported" for reason in why))
    return replace(told, evidence=Evidence.INDICATIVE, notes=notes)


# -- the campaign ----------------------------------------------------------------------------------------------------


def _campaign(
    fixtures: Mapping[str, Judgement],
    overruling: Mapping[str, Judgement],
    samples: Mapping[str, Sample],
    setting: Setting,
    bars: Bars,
) -> Judgement:
    entered = [name for name, each in fixtures.items() if each.n_pairs]
    if not entered:
        recorded = sum(sample.n_recorded for sample in samples.values())
        return _told(of_startups({}, Sample((), 0), setting), Sample((), recorded), setting, bars, bars.alpha)
    mean, sample = of_mean([fixtures[name] for name in entered], [samples[name] for name in entered], setting)
    told = _told(mean, sample, setting, bars, bars.alpha)
    told = _named(told, fixtures, entered)
    slower = [name for name, each in fixtures.items() if each.verdict is Verdict.SLOWER]
    if not slower or told.verdict in (Verdict.SLOWER, Verdict.SCREEN):
        return told
    word = decision.campaign_words(_codes([told])[0], _codes(fixtures.values()), _codes(overruling.values()))
    because = f"{len(slower)} of {counted(len(fixtures), 'fixture')} slower ({slower[0]}: {fixtures[slower[0]].because}"
    return replace(told, verdict=_VERDICTS[int(word)], because=f"{because}); {told.because}")


def _named(told: Judgement, fixtures: Mapping[str, Judgement], entered: Sequence[str]) -> Judgement:
    """What the mean is of. A fixture that gave nothing makes the campaign's evidence partial."""
    missing = [name for name in fixtures if name not in entered]
    many = f"{len(entered)} of {len(fixtures)}" if missing else f"{len(fixtures)}"
    lacks = f" (without {', '.join(missing)})" if missing else ""
    told = replace(told, because=f"geometric mean of {many} fixtures{lacks}, equal weights: {told.because}")
    return replace(told, evidence=Evidence.PARTIAL) if missing and told.evidence is not Evidence.SCREEN else told


_CODES = {verdict: code for code, verdict in _VERDICTS.items()}


def _codes(judgements: Iterable[Judgement]) -> decision.Words:
    return np.array([_CODES.get(each.verdict, decision.INCONCLUSIVE) for each in judgements], dtype=np.int8)
