"""One campaign as a report, from the store alone, at any later time. Formats are functions of one `Summary`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape

from campaigns.errors import UsageError
from campaigns.printable import json_text
from results.reading.summary import Summary, summarise
from results.store.reader import Reader

Render = Callable[[Summary, Reader, bool], str]


def render(reader: Reader, campaign_id: str, format: str, *, all_quantiles: bool = False) -> str:
    """`format`: md, json, jsonl, html or csv. `all_quantiles` prints refused quantiles too, marked with n."""
    return render_summary(summarise(reader, campaign_id), reader, format, all_quantiles=all_quantiles)


def render_summary(summary: Summary, reader: Reader, format: str, *, all_quantiles: bool = False) -> str:
    if format not in FORMATS:
        raise UsageError(f"there is no report format {format!r}: take one of {', '.join(FORMATS)}")
    return FORMATS[format](summary, reader, all_quantiles)


def marked(content: str, format: str, told: str, found: Sequence[str]) -> str:
    """A report of rows that do not hold: its first line says so; as JSON it has them as `does_not_hold`."""
    warning = f"NOT TO BE TRUSTED: {told}"
    if format in ("json", "jsonl"):
        fields = {"does_not_hold": list(found), **json.loads(content)}
        return json_text(fields, indent=2 if format == "json" else None) + "\n"
    if format == "html":
        return content.replace("<body>", f"<body><p><strong>{escape(warning)}</strong></p>", 1)
    return f'"{warning}"\n{content}' if format == "csv" else f"**{warning}**\n\n{content}"


def _markdown(summary: Summary, reader: Reader, all_quantiles: bool) -> str:
    from results.reports.markdown import markdown, table_markdown

    text = markdown(summary, reader.scores(summary.campaign.campaign_id), all_quantiles=all_quantiles)
    if not all_quantiles:
        return text
    from results.reports.tables.pooled import pooled_rounds

    return f"{text}\n{table_markdown(pooled_rounds(summary, reader))}\n"


def _json(summary: Summary, reader: Reader, all_quantiles: bool) -> str:
    from results.reports.report_json import report_json

    return report_json(summary, reader.scores(summary.campaign.campaign_id))


def _jsonl(summary: Summary, reader: Reader, all_quantiles: bool) -> str:
    """The same in one line: for logs that hold one campaign a line."""
    from results.reports.report_json import content

    return json_text(content(summary, reader.scores(summary.campaign.campaign_id))) + "\n"


def _html(summary: Summary, reader: Reader, all_quantiles: bool) -> str:
    from results.reports.html import html

    return html(summary, reader, reader.scores(summary.campaign.campaign_id), all_quantiles=all_quantiles)


def _csv(summary: Summary, reader: Reader, all_quantiles: bool) -> str:
    from results.reports.report_csv import report_csv

    return report_csv(summary)


def _github(summary: Summary, reader: Reader, all_quantiles: bool) -> str:
    from results.reports.for_ci import github

    return github(summary)


def _junit(summary: Summary, reader: Reader, all_quantiles: bool) -> str:
    from results.reports.for_ci import junit

    return junit(summary)


FORMATS: dict[str, Render] = {
    "md": _markdown,
    "json": _json,
    "jsonl": _jsonl,
    "html": _html,
    "csv": _csv,
    "github": _github,
    "junit": _junit,
}
