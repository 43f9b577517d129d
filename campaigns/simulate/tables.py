"""The tables of docs/statistics.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from campaigns.judging import decision
from campaigns.judging.looks import Looks
from campaigns.plan import Order
from campaigns.simulate.judged import ended, judged, seen, told
from campaigns.simulate.promises import coverage, drift_bias, plan_met, predicted_power
from campaigns.simulate.worlds import AR1, NORMAL, ONE_IN_FIVE, TWO_VALUED, Model

_FIXTURES = (1, 2, 4, 8, 16)
_STARTUPS = (3, 5, 8, 16)


def tables(n: int, seed: int) -> Iterator[str]:
    for title, header, rows in _TABLES:
        yield f"### {title}"
        yield _table(header, rows(n, seed))


def _band_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    found = []
    for shape in (ONE_IN_FIVE, TWO_VALUED):
        for startups in (3, 4, 5, 8):
            model = Model(startups, 6, between=0.005, within=0.003, shape=shape)
            shares = [told(model, n, seed, past=past).differ for past in (0, 10, 20)]
            found.append((shape, str(startups), *(_share(share) for share in shares)))
        for looks in (Looks(3, 16), Looks(5, 16)):
            model = Model(looks.last, 6, between=0.005, within=0.003, shape=shape)
            shares = [ended(model, looks, n, seed, past=past).told.differ for past in (0, 10, 20)]
            found.append((shape, _looked(looks), *(_share(share) for share in shares)))
    yield from sorted(found, key=lambda row: float(row[2]), reverse=True)


def _aa_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for noise in (NORMAL, AR1):
        for startups in (3, 4, 5, 8, 16):
            found = [told(Model(startups, fixtures=f, noise=noise), 5 * n, seed + f) for f in _FIXTURES]
            cells = [f"{_share(each.differ)} ({_share(each.exit_2)})" for each in found]
            yield noise, str(startups), *cells
        for looks in (Looks(3, 5), Looks(3, 16), Looks(5, 16)):
            ends = [ended(Model(looks.last, fixtures=f, noise=noise), looks, 5 * n, seed + f) for f in _FIXTURES]
            yield noise, _looked(looks), *(f"{_share(e.told.differ)} ({_share(e.told.exit_2)})" for e in ends)


def _looked(looks: Looks) -> str:
    return f"looks {looks.first} … {looks.last}"


def _look_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for truth in (0.0, 0.003, 0.005, 0.01, 0.02, 0.05):
        found = ended(Model(16, truth=truth), Looks(3, 16), n, seed)
        slower = found.effects[found.told.campaign == decision.SLOWER]
        yield (
            f"{100 * truth:+g} %",
            f"{found.startups.mean():.1f}",
            f"{np.quantile(found.startups, 0.8):.0f}",
            _share(found.told.differ),
            _share(found.told.share(decision.EQUIVALENT)),
            f"{100 * slower.mean():+.2f} %" if len(slower) else "–",
        )


def _careless_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Who tests at 5 % after every startup and stops at the first word that pleases."""
    model = Model(16, between=0.02)
    deltas, fooled = model.draw(np.random.default_rng(seed), n), np.zeros(n, bool)
    for startups in range(3, model.startups + 1):
        words = judged(seen(deltas[:, :, :startups], model.control_first[:startups])).campaign
        fooled |= np.isin(words, (decision.FASTER, decision.SLOWER))
        if startups in _STARTUPS:
            yield str(startups), _share(float(fooled.mean()))


def _power_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for truth in (-0.005, -0.02):
        for startups in _STARTUPS:
            models = [Model(startups, fixtures=f, truth=truth) for f in _FIXTURES]
            yield f"{100 * truth:+g} %", str(startups), *(_share(told(model, n, seed).faster) for model in models)


def _one_slower_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for startups in _STARTUPS:
        found = []
        for fixtures in _FIXTURES[1:]:
            truth = (0.05, *[-0.01] * (fixtures - 1))
            each = told(Model(startups, fixtures=fixtures, truth=truth), n, seed)
            found.append(f"{_share(each.exit_2)} ({_share(each.faster)})")
        yield str(startups), *found


def _order_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for truth in (0.05, -0.01, 0.0):
        for startups in (3, 5, 8):
            models = [Model(startups, truth=truth, order=order) for order in (0.0, 0.005, 0.01, 0.02, 0.04)]
            word = {0.05: decision.SLOWER, -0.01: decision.FASTER, 0.0: decision.ORDER_SENSITIVE}[truth]
            yield (
                f"{100 * truth:+g} %",
                _WORDS[word],
                str(startups),
                *(_share(told(model, n, seed).share(word)) for model in models),
            )


_WORDS = {decision.SLOWER: "slower", decision.FASTER: "faster", decision.ORDER_SENSITIVE: "order-sensitive"}


def _floor_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    """First where an A/A campaign costs more power, in points, than it saves false alarms."""
    rows: list[tuple[float, tuple[str, ...]]] = []
    for truth in (0.005, 0.01):
        for startups in (3, 5, 8, 16, 30):
            aa = Model(startups, between=0.005)
            false = [told(aa, n, seed, past=past).differ for past in (0, 10)]
            power = [told(replace(aa, truth=truth), n, seed, past=past).slower for past in (0, 10)]
            cost = power[0] - power[1] - (false[0] - false[1])
            rows.append((cost, (f"{100 * truth:+g} %", str(startups), *map(_share, (*power, *false)))))
    yield from (row for _, row in sorted(rows, reverse=True))


def _plan_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for startups in (3, 5, 8):
        met, planned = plan_met(Model(startups), 0.005, n, seed)
        yield str(startups), "0.5 %", f"{planned:.1f}", _share(met)


def _coverage_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for shape, between, within in (
        (NORMAL, 0.0, 0.005),
        (NORMAL, 0.003, 0.005),
        (NORMAL, 0.005, 0.003),
        (TWO_VALUED, 0.005, 0.003),
    ):
        for startups in (3, 5, 8):
            found = coverage(Model(startups, 6, between, within, shape=shape), n, seed)
            yield shape, f"{between:.1%}, {within:.1%}", str(startups), *(_share(share) for share in found)


def _predicted_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for startups, between in ((3, 0.003), (5, 0.003), (8, 0.005)):
        model = Model(startups, between=between, within=0.003, truth=0.01)
        yield f"{between:.1%}, 0.3%", str(startups), _share(predicted_power(model)), _share(told(model, n, seed).slower)


def _drift_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for order, pairs in ((Order.BLOCKED, 6), ("abab", 6), (Order.ABBA, 6), (Order.ABBA, 5)):
        yield str(order), str(pairs), f"{100 * drift_bias(order, pairs):.2f} %"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


Rows = Callable[[int, int], Iterator[tuple[str, ...]]]
_BY_F = tuple(f"F = {f}" for f in _FIXTURES)
_TABLES: tuple[tuple[str, tuple[str, ...], Rows], ...] = (
    ("Worst first: startups in bands 1 % apart, truth zero, told to differ (%)",
     ("band", "S", "no earlier startups", "10 A/A startups", "20 A/A startups"), _band_rows),
    ("A/A campaigns told to differ, in brackets with exit code 2 (%, of five times as many)",
     ("pair noise", "S", *_BY_F), _aa_rows),
    ("Stopping when decided, looks 3 … 16",
     ("truth", "startups", "80 % end by", "told to differ %", "equivalent %", "effect where slower"), _look_rows),
    ("Looking without a rule from the third startup on, truth zero: ever told to differ (%)",
     ("last S", "fooled"), _careless_rows),
    ("All fixtures faster by the same, told faster (%)", ("truth", "S", *_BY_F), _power_rows),
    ("One fixture +5 %, the others -1 %: exit code 2, in brackets told faster (%)",
     ("S", *_BY_F[1:]), _one_slower_rows),
    ("Order effects (%)", ("truth", "told", "S", *(f"order {o} %" for o in (0, 0.5, 1, 2, 4))), _order_rows),
    ("Worst first: ten A/A startups, between 0.5 % (%)",
     ("truth", "S", "found, none", "found, ten", "false, none", "false, ten"), _floor_rows),
    ("Plans from a pilot: half width met (%)", ("startups of the pilot", "wanted", "planned S", "met"), _plan_rows),
    ("Coverage of nominal 95 % intervals, truth zero (%)",
     ("startup effects", "between, within", "S", "t", "bootstrap", "pooled pairs"), _coverage_rows),
    ("An effect of 1 %: power as predicted, and told (%)",
     ("between, within", "S", "predicted", "told slower"), _predicted_rows),
    ("A linear drift of 1 % over twelve requests", ("order", "K", "bias of the headline"), _drift_rows),
)  # fmt: skip


def _table(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
