"""Figures as matplotlib axes, from frames. Colours are placeholders that a page replaces by its own, light or dark.

Arms differ in marker and line as well as in colour. Every function draws on the axes it is given and returns it, or
None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from campaigns.judging.statistics import percent
from campaigns.records import CPU_UUID
from results.conditions.limits import Limit
from results.reading.groups import Group

# Each stands for a CSS variable; results.reports.svg replaces them.
INK, FAINT, CONTROL, CANDIDATE, BAND = "#010101", "#020202", "#030303", "#040404", "#050505"
STYLE: dict[str, Mapping[str, Any]] = {
    "control": {"color": CONTROL, "marker": "o", "linestyle": "-"},
    "candidate": {"color": CANDIDATE, "marker": "^", "linestyle": "--"},
}
_MAX_GROUPS = 12
_MAX_DATES = 12

Axes = Any  # matplotlib has no types; importing it takes a second that a Markdown report need not pay


def startup_levels(ax: Axes, group: Group) -> Axes | None:
    """Both arms' level in each startup, joined: what every startup says on its own."""
    both = [
        (group.control.startup_levels_ms.get(s), group.candidate.startup_levels_ms.get(s))
        for s in group.judgement.startup_medians
    ]
    both = [(control, candidate) for control, candidate in both if control and candidate]
    if not both:
        return None
    for control, candidate in both:
        ax.plot([0, 1], [control, candidate], color=FAINT, linewidth=1, zorder=1)
    ax.scatter([0] * len(both), [pair[0] for pair in both], color=CONTROL, marker="o", zorder=2, label="control")
    ax.scatter([1] * len(both), [pair[1] for pair in both], color=CANDIDATE, marker="^", zorder=2, label="candidate")
    ax.set_xticks([0, 1], ["control", "candidate"])
    ax.set_xlim(-0.4, 1.4)
    ax.set_ylabel("ms per round")
    return ax


def pair_effects(ax: Axes, group: Group, pairs: pd.DataFrame, effect_column: str) -> Axes | None:
    """Effect of every admissible pair by startup, the startup medians, and the noise band."""
    timed = pairs[pairs.admissible & pairs[effect_column].notna()]
    if timed.empty:
        return None
    effects = timed[effect_column].map(percent)
    jitter = np.linspace(-0.15, 0.15, len(timed)) if len(timed) > 1 else np.zeros(1)
    first = timed.control_first.to_numpy(dtype=bool)
    for mask, marker, label in ((first, "o", "control first"), (~first, "s", "candidate first")):
        x = timed.startup.to_numpy()[mask] + 1 + jitter[mask]
        ax.scatter(
            x, effects.to_numpy()[mask], s=14, marker=marker, facecolors="none", edgecolors=CANDIDATE, label=label
        )
    medians = group.judgement.startup_medians
    ax.scatter(
        [s + 1 for s in medians], [percent(m) for m in medians.values()], marker="_", s=400, color=INK, label="median"
    )
    if group.judgement.floor is not None:
        limit = percent(group.judgement.floor.value)
        ax.axhspan(-limit, limit, color=BAND, zorder=0, label="noise band")
    ax.axhline(0, color=FAINT, linewidth=1)
    ax.set_xticks(sorted(s + 1 for s in medians))
    ax.set_xlabel("startup")
    ax.set_ylabel("effect, %")
    ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def control_drift(ax: Axes, measured: pd.DataFrame, level_column: str) -> Axes | None:
    """The unchanged arm over campaign time, relative to its own median per fixture: shown, never subtracted."""
    control = measured[(measured.role == "control") & measured.admissible & measured[level_column].notna()]
    if control.empty:
        return None
    relative = 100 * (
        control[level_column] / control.groupby(["fixture", "seed"])[level_column].transform("median") - 1
    )
    order = np.arange(1, len(control) + 1)
    ax.plot(order, relative, color=CONTROL, marker="o", markersize=3, linewidth=1)
    borders = np.flatnonzero(np.diff(control.startup.to_numpy())) + 1.5
    for border in borders:
        ax.axvline(border, color=FAINT, linewidth=1, linestyle=":")
    ax.axhline(0, color=FAINT, linewidth=1)
    ax.set_xlabel("control request, in order of running (dotted: new startup)")
    ax.set_ylabel("control level, % of its median")
    return ax


def round_ecdf(ax: Axes, rounds: pd.DataFrame, column: str) -> Axes | None:
    """Share of single rounds that took at most so long, per arm."""
    drawn = False
    for role, rows in rounds[rounds[column].notna()].groupby("role"):
        times = np.sort(rows[column].to_numpy(dtype=float)) * 1e-6
        style = STYLE[str(role)]
        ax.plot(
            times,
            np.arange(1, len(times) + 1) / len(times),
            color=style["color"],
            linestyle=style["linestyle"],
            label=str(role),
        )
        drawn = True
    if not drawn:
        return None
    ax.set_xlabel("ms of a single round")
    ax.set_ylabel("share of rounds")
    ax.legend()
    return ax


def round_by_context(ax: Axes, rounds: pd.DataFrame, column: str) -> Axes | None:
    """Median round time by context position, in at most forty bins per arm."""
    timed = rounds[rounds[column].notna() & rounds.context.notna()]
    if timed.empty:
        return None
    edges = np.linspace(timed.context.min(), timed.context.max() + 1, 41)
    for role, rows in timed.groupby("role"):
        bins = np.digitize(rows.context, edges)
        medians = rows[column].groupby(bins).median() * 1e-6
        centres = [(edges[b - 1] + edges[b]) / 2 for b in medians.index]
        ax.plot(centres, medians.to_numpy(), label=str(role), markersize=3, linewidth=1, **STYLE[str(role)])
    ax.set_xlabel("tokens in context")
    ax.set_ylabel("ms per round, median")
    ax.legend()
    return ax


def levels_by_context(ax: Axes, sized: Sequence[tuple[int, Group]], limit: Limit | None) -> Axes | None:
    """Both arms' level over the context length, and what a round must take where the bytes it moves are known."""
    drawn = False
    for role in STYLE:
        levels = [(length, getattr(group, role).level_ms) for length, group in sized]
        points = [(length, level) for length, level in levels if level is not None]
        if points:
            ax.plot(*zip(*points, strict=True), label=role, **STYLE[role])
            drawn = True
    if not drawn:
        return None
    lengths = [length for length, _ in sized]
    if limit is not None:
        ax.plot(lengths, [limit.ms(n) for n in lengths], color=FAINT, linestyle=":", label=f"limit, {limit.device}")
    _context_axis(ax, lengths)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("ms per round")
    ax.legend()
    return ax


def effects_by_context(ax: Axes, sized: Sequence[tuple[int, Group]]) -> Axes | None:
    """Paired effect and its interval over the context length."""
    effects: list[tuple[int, float]] = []
    for length, group in sized:
        if group.judgement.effect is None:
            continue
        effects.append((length, percent(group.judgement.effect)))
        if (interval := group.judgement.interval) is not None:
            ax.plot([length] * 2, [percent(interval.low), percent(interval.high)], color=BAND, linewidth=4)
    if not effects:
        return None
    ax.plot(*zip(*effects, strict=True), **STYLE["candidate"])
    ax.axhline(0, color=FAINT, linewidth=1)
    _context_axis(ax, [length for length, _ in effects])
    ax.set_ylabel("paired effect, %")
    return ax


def _context_axis(ax: Axes, lengths: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [f"{n / 1024:.4g}K" for n in lengths])
    ax.minorticks_off()
    ax.set_xlabel("tokens of the prompt")


def acceptance(ax: Axes, group: Group) -> Axes | None:
    """Rounds by the number of accepted drafts."""
    arms = {"control": group.control.acceptance_histogram, "candidate": group.candidate.acceptance_histogram}
    if not any(arms.values()):
        return None
    for shift, (role, histogram) in zip((-0.2, 0.2), arms.items(), strict=True):
        total = sum(histogram) or 1
        x = np.arange(len(histogram)) + shift
        hatch = "" if role == "control" else "///"
        ax.bar(x, [100 * n / total for n in histogram], 0.4, color=STYLE[role]["color"], hatch=hatch, label=role)
    ax.set_xticks(range(max(map(len, arms.values()))))
    ax.set_xlabel("accepted drafts in a round")
    ax.set_ylabel("rounds, %")
    ax.legend()
    return ax


def device_panels(samples: pd.DataFrame) -> dict[str, pd.Series]:
    """What the devices said of themselves, by the label of its axis; only what any of them said."""
    cpu = samples.device_uuid.str.startswith(CPU_UUID)
    panels = {
        "SM clock, MHz": samples.sm_clock_mhz[~cpu],
        "power, W": samples.power_mw.astype(float) * 1e-3,
        "CPU clock, MHz": samples.sm_clock_mhz[cpu],
        "load of the host": samples.load[cpu],
    }
    return {label: values.dropna() for label, values in panels.items() if values.notna().any()}


def timeline(axes: Axes | tuple[Axes, ...], samples: pd.DataFrame, panels: Mapping[str, pd.Series]) -> Axes:
    """`device_panels` above each other, over the seconds of the campaign's own clock; one line per device."""
    axes = axes if isinstance(axes, tuple) else (axes,)
    start = samples.ns.min()
    for ax, (label, values) in zip(axes, panels.items(), strict=True):
        for index, (device, known) in enumerate(values.groupby(samples.device_uuid)):
            seconds, marker = (samples.ns[known.index] - start) * 1e-9, "o^sDv*PX"[index % 8]
            ax.plot(seconds, known, color=CONTROL, marker=marker, markersize=3, linewidth=1, label=str(device)[-8:])
        ax.set_ylabel(label)
    axes[-1].set_xlabel("s")
    if samples.device_uuid.nunique() > 1:
        axes[0].legend(ncols=2)
    return axes


def trend(ax: Axes, effects: pd.DataFrame) -> Axes | None:
    """Paired effects of one fixture over campaigns, a mark per candidate, each with the range of its startups.

    The band behind each is its noise floor: what equal arms may differ by in a campaign of as many startups.
    """
    if effects.empty:
        return None
    places = np.arange(len(effects))
    for i, name in enumerate(dict.fromkeys(effects.candidate)):
        mine = (effects.candidate == name).to_numpy()
        rows = effects[mine]
        spread = [rows.effect_pct - rows.lowest_pct, rows.highest_pct - rows.effect_pct]
        look = {"marker": "o^sDv*PX"[i % 8], "color": (CANDIDATE, CONTROL, INK)[i % 3], "linestyle": "none"}
        ax.errorbar(places[mine], rows.effect_pct, yerr=spread, ecolor=FAINT, capsize=3, label=str(name), **look)
    floors = effects.noise_floor_pct.to_numpy(dtype=float)
    known = np.isfinite(floors)
    if known.any():
        told = "noise floor: what equal arms may differ by"
        ax.bar(places[known], 2 * floors[known], 1.0, bottom=-floors[known], color=BAND, zorder=0, label=told)
    ax.axhline(0, color=FAINT, linewidth=1)
    every = max(1, -(-len(places) // _MAX_DATES))
    ax.set_xticks(places[::every], _dates(effects.created_utc)[::every], rotation=45, ha="right")
    ax.set_ylabel("paired effect, %")
    ax.set_title(f"{effects.fixture.iloc[0]}: effect of each campaign, bars span its startups", fontsize=10)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3))
    return ax


def _dates(utcs: pd.Series) -> list[str]:
    """Days, or minutes where two campaigns began on one day."""
    days = [str(utc)[:10] for utc in utcs]
    return days if len(set(days)) == len(days) else [str(utc)[5:16].replace("T", " ") for utc in utcs]


def with_context(rounds: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """Rounds with their arm and the context they started at: prompt, first tokens, and what earlier rounds emitted."""
    about = requests.set_index("request_id")[["role", "prompt_tokens", "first_tokens"]]
    joined = rounds.join(about, on="request_id")
    emitted = joined.emitted.fillna(joined.client_tokens).astype(float)
    before = emitted.groupby(joined.request_id).cumsum() - emitted
    return joined.assign(context=joined.prompt_tokens + joined.first_tokens + before)


def drawable(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """So many groups get figures of their own; a table has them all."""
    return groups[:_MAX_GROUPS]
