"""Probes from JSON lines: what kernel gates and audits print. A line without a verdict is detail, not a probe.

A line that is recorded already is not recorded again. One that gives no time of its own says nothing of when it ran:
it is the recorded one only while no other result of the same check came after that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from campaigns.errors import UsageError
from campaigns.judging.gates import GateStatus, check_of
from campaigns.remarks import Probe
from results.store.hashing import canonical_json


def parse(lines: Iterable[str], *, subject: str = "", library_sha256: str = "") -> Iterator[Probe]:
    """`subject` and `library_sha256` stand in where a line names none. UsageError names the line."""
    for number, text in enumerate(lines, 1):
        if text.strip():
            probe = _probe(_object(text, number), number, subject, library_sha256)
            if probe is not None:
                yield probe


def unrecorded(probes: Iterable[Probe], recorded: Iterable[Probe]) -> list[Probe]:
    """Those that the store does not hold yet, each once."""
    known: set[tuple[str, ...]] = set()
    newest: dict[tuple[str, ...], Probe] = {}
    fresh = []
    for probe in sorted(recorded, key=lambda probe: probe.utc):
        known.add(_line(probe))
        newest[_check(probe)] = probe
    for probe in probes:
        last = newest.get(_check(probe))
        timed = "utc" in json.loads(probe.line_json)
        if _line(probe) in known if timed else last is not None and _line(last) == _line(probe):
            continue
        fresh.append(probe)
        known.add(_line(probe))
        newest[_check(probe)] = probe
    return fresh


def _line(probe: Probe) -> tuple[str, ...]:
    return probe.gate, probe.subject, probe.library_sha256, probe.status, probe.line_json


def _check(probe: Probe) -> tuple[str, ...]:
    return probe.gate, probe.subject, probe.library_sha256, *check_of(probe)


def _object(text: str, number: int) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise UsageError(f"line {number} is not JSON ({error}): give one object per line") from error
    if not isinstance(line, dict):
        raise UsageError(f"line {number} is not a JSON object: give one object per line")
    return line


def _probe(line: dict[str, Any], number: int, subject: str, library_sha256: str) -> Probe | None:
    status = line.get("status")
    if status is None and isinstance(line.get("passed"), bool):
        status = "passed" if line["passed"] else "failed"
    if status is None:
        return None
    if status not in {GateStatus.PASSED, GateStatus.FAILED, GateStatus.HELD}:
        raise UsageError(f"line {number}: status {status!r} is none of passed, failed, held")
    gate, about = line.get("gate") or line.get("kind"), _subject(line) or subject
    if not gate or not about:
        missing = "gate" if not gate else "subject (nor operator and schedule): give one with --subject"
        raise UsageError(f"line {number} has no {missing}")
    return Probe(
        utc=str(line.get("utc") or datetime.now(UTC).isoformat(timespec="milliseconds")),
        gate=str(gate),
        subject=str(about),
        status=str(status),
        library_sha256=str(line.get("library_sha256") or library_sha256),
        line_json=canonical_json(line),
    )


def _subject(line: dict[str, Any]) -> str:
    if line.get("subject"):
        return str(line["subject"])
    named = line.get("operator") and line.get("schedule")
    return f"{line['operator']}/{line['schedule']}" if named else ""
