"""MATH-500: competition problems whose answers are LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from campaigns.corpora.case import Case
from campaigns.corpora.source import Source
from campaigns.corpora.templates import render


def read(sources: Sequence[Source], templates: Mapping[str, str], name: str = "math500") -> list[Case]:
    return [_case(source, index, templates, name) for source in sources for index in range(len(source.records))]


def _case(source: Source, index: int, templates: Mapping[str, str], name: str) -> Case:
    problem, answer = source.need(index, problem=str, answer=str)
    return Case(
        id=f"{name}/{index}",
        dataset=name,
        source_sha256=source.sha256,
        record_index=index,
        messages=({"role": "user", "content": render(templates, "math500", problem=problem)},),
        answer=answer,
    )
