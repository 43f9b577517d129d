"""Which records of a pool become cases. The rule is frozen too, since the public campaign never told its own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from campaigns.corpora.case import Case
from campaigns.errors import UsageError


class Selecting(StrEnum):
    SHUFFLE42 = "shuffle42"
    SEQUENTIAL = "sequential"
    IDS = "ids"
    ELIGIBLE_ONLY = "eligible-only"


# The pool: records in the order of their source; several sources of a dataset stand in the order of their SHA-256.
RULES = {
    Selecting.SHUFFLE42: "indices of the pool shuffled by random.Random(42).shuffle, the first n in that order",
    Selecting.SEQUENTIAL: "the first n of the pool in the order of the source",
    Selecting.IDS: "the cases whose ids were given, in that order",
    Selecting.ELIGIBLE_ONLY: "cases that every denominator counts, then as shuffle42",
}


@dataclass(frozen=True)
class Selection:
    order: Selecting = Selecting.SHUFFLE42
    ids: tuple[str, ...] = ()  # for IDS: of all datasets together

    def pick(
        self, dataset: str, pool: Sequence[Case], count: int, usable: Callable[[Case], bool] = lambda case: True
    ) -> list[Case]:
        """The first `count` cases in the rule's order that are `usable`, which is asked of no other.

        With IDS all named ones of this pool, whatever the count.
        """
        twice = [name for name, n in Counter(case.id for case in pool).items() if n > 1]
        if twice:
            raise UsageError(f"{dataset}: case {twice[0]} occurs twice in the sources; give each source one time")
        if self.order is Selecting.IDS:
            return self._named(pool, usable)
        usable_ones = filter(usable, self._in_order(pool))
        chosen = list(islice(usable_ones, count))
        if len(chosen) < count:
            raise UsageError(
                f"{dataset}: {count} cases wanted, the pool of rule {self.order} has {len(chosen)}; "
                f"give more sources or --count {dataset}={len(chosen)}"
            )
        return chosen

    def _named(self, pool: Sequence[Case], usable: Callable[[Case], bool]) -> list[Case]:
        by_id = {case.id: case for case in pool}
        chosen = [by_id[name] for name in self.ids if name in by_id]
        for case in chosen:
            if not usable(case):
                raise UsageError(
                    f"--ids {case.id}: no published solution passes its tests, so no answer can; leave it out"
                )
        return chosen

    def _in_order(self, pool: Sequence[Case]) -> Iterator[Case]:
        if self.order is Selecting.ELIGIBLE_ONLY:
            pool = [case for case in pool if case.eligible]
        indices = list(range(len(pool)))
        if self.order is not Selecting.SEQUENTIAL:
            random.Random(42).shuffle(indices)
        return (pool[index] for index in indices)
