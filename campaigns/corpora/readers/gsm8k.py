"""GSM8K: grade-school word problems; the final number stands behind `#### ` on the last line of the solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from campaigns.corpora.case import Case
from campaigns.corpora.source import Source
from campaigns.corpora.templates import render


def read(sources: Sequence[Source], templates: Mapping[str, str], name: str = "gsm8k") -> list[Case]:
    return [_case(source, index, templates, name) for source in sources for index in range(len(source.records))]


def _case(source: Source, index: int, templates: Mapping[str, str], name: str) -> Case:
    question, solution = source.need(index, question=str, answer=str)
    _, marker, number = solution.rpartition("#### ")
    if not marker:
        raise source.wrong(index, "the answer has no line '#### NUMBER'")
    return Case(
        id=f"{name}/{index}",
        dataset=name,
        source_sha256=source.sha256,
        record_index=index,
        messages=({"role": "user", "content": render(templates, "gsm8k", question=question)},),
        answer=number.strip().replace(",", ""),
    )
