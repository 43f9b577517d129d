"""Solutions that data sets publish beside their problems: what proves that a frozen case can be passed.

They never enter a corpus. Files are read already; what a record lacks is no complaint here, the case is then unproven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from campaigns.corpora.source import Source

Record = Mapping[str, Any]
Opened = Mapping[str, Sequence[Source]]  # by dataset


def published(dataset: str, label: str, opened: Opened) -> dict[str, tuple[str, ...]]:
    """Case id -> whole programs, without repeats. `label` is the dataset's name in ids."""
    found: dict[str, dict[str, None]] = {}
    for task, program in _READ[dataset](opened) if dataset in _READ else ():
        found.setdefault(f"{label}/{task}", {})[program] = None
    return {case: tuple(programs) for case, programs in found.items()}


def _records(opened: Opened, *datasets: str) -> Iterator[Record]:
    return (record for name in datasets for source in opened[name] for record in source.records)


def _texts(record: Record, *names: str) -> tuple[str, ...]:
    """The fields of these names; none where one of them is no text, which the dataset's own reader complains of."""
    values = tuple(value for name in names if isinstance(value := record.get(name), str))
    return values if len(values) == len(names) else ()


def _humaneval(opened: Opened) -> Iterator[tuple[str, str]]:
    for record in _records(opened, "humaneval", "humanevalplus"):
        if texts := _texts(record, "task_id", "prompt", "canonical_solution"):
            yield texts[0].rpartition("/")[2], texts[1] + texts[2]


def _mbpp(opened: Opened) -> Iterator[tuple[str, str]]:
    """EvalPlus corrected some of the original solutions."""
    for record in _records(opened, "mbpp", "mbppplus"):
        if texts := _texts(record, "code"):
            yield str(record.get("task_id")), texts[0]


def _livecodebench(opened: Opened) -> Iterator[tuple[str, str]]:
    """Our own problems carry a reference; LeetCodeDataset has solutions, by slug. The official release has none."""
    records = list(_records(opened, "livecodebench"))
    hidden = [texts for record in records if (texts := _texts(record, "task_id", "prompt", "completion"))]
    by_slug = {slug: prompt + completion for slug, prompt, completion in hidden}
    for record in records:
        if texts := _texts(record, "question_id", "reference"):
            yield texts[0], texts[1]
        elif (texts := _texts(record, "question_id", "question_title")) and texts[1] in by_slug:
            yield texts[0], by_slug[texts[1]]


_READ = {"humaneval": _humaneval, "mbpp": _mbpp, "livecodebench": _livecodebench}
