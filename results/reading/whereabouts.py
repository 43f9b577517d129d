"""Where the startups of a campaign ran, and how much of their spread lies between those places."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from campaigns.judging.components import Component, component
from results.reading.groups import Group
from results.store.reader import Life


@dataclass(frozen=True)
class Place:
    """What one startup ran on, in its newest attempt."""

    host: str
    boot_id: str
    device_uuids: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{', '.join(self.device_uuids)} on {self.host}"


@dataclass(frozen=True)
class Whereabouts:
    """Components are of logarithms; None where they cannot be told."""

    places: Mapping[int, Place]  # by startup
    effect: Component | None  # of the startups' paired effects, between devices
    level: Component | None  # of the control's level, between devices

    @property
    def n_hosts(self) -> int:
        return len({(place.host, place.boot_id) for place in self.places.values()})

    @property
    def n_devices(self) -> int:
        return len({place.name for place in self.places.values()})

    def lines(self) -> Iterator[str]:
        """Nothing where all startups ran on the same devices."""
        if self.n_devices < 2:
            return
        yield f"{len(self.places)} startups ran on {self.n_devices} sets of devices of {self.n_hosts} hosts"
        if self.effect is None:
            yield (
                "each set of devices had one startup: how much devices differ cannot be told from how much startups do"
            )
        for what, found in (("the paired effect", self.effect), ("the control's level", self.level)):
            if found is not None:
                yield (
                    f"{what} varies between devices by {_percent(found.between)} (standard deviation), between "
                    f"startups of one device by {_percent(found.within)}; F test p = {found.p:.2g}"
                )


def whereabouts(lives: Sequence[Life], effects: Mapping[int, float], groups: Sequence[Group]) -> Whereabouts:
    """`effects` are the campaign's, by startup."""
    newest = {life.startup.startup: life.startup for life in sorted(lives, key=lambda life: life.startup.attempt)}
    places = {number: Place(s.host, s.boot_id, s.device_uuids) for number, s in newest.items()}
    devices = {number: place.name for number, place in places.items()}
    return Whereabouts(places, component(effects, devices), component(_levels(groups), devices))


def _levels(groups: Sequence[Group]) -> dict[int, float]:
    """Mean logarithm of the control's level over fixtures, of the startups that measured all of them."""
    known = [{s: ms for s, ms in group.control.startup_levels_ms.items() if ms} for group in groups]
    shared = set.intersection(*map(set, known)) if known else set()
    return {startup: math.fsum(math.log(levels[startup]) for levels in known) / len(known) for startup in shared}


def _percent(log_sd: float) -> str:
    return f"{100 * math.expm1(log_sd):.2g} %"
