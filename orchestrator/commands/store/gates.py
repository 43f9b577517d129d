"""`campaign gates`, `promote` and `probe import`: the ledger of a candidate, a person's word on it, and its checks."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaigns.errors import Exit, UsageError
from campaigns.judging.gates import KINDS, PROMOTE, Entry, Gate, GateStatus, ledger
from campaigns.judging.verdicts import Verdict, counted
from campaigns.nearest import nearest
from orchestrator.commands.options import config_option, decision_options, positive, store_option, table_option

_CONF = Path(__file__).parents[3] / "conf" / "gates"
_DECISIONS = (PROMOTE, "hold", "reject")


def add_gates_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("gates", help="the ledger of a schedule or an arm: what passed, what is missing")
    _ledger_options(parser)
    own = "gates of one's own, laid out as conf/gates/default.yaml: end with 2 unless every one is passed"
    parser.add_argument("--require", type=Path, metavar="FILE", help=own)
    table_option(parser)
    parser.set_defaults(run=run_gates)


def _ledger_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="SCHEDULE-OR-ARM", help="operator/schedule, or the name of an arm")
    parser.add_argument("--library", default="", metavar="SHA256", help="which build (default: the newest probe's)")
    parser.add_argument(
        "--gates", default="default", metavar="NAME", help="conf/gates/NAME.yaml (default: %(default)s)"
    )
    store_option(parser)


def run_gates(options: argparse.Namespace) -> int:
    from results.reports.layout import lay_out

    entries = _entries(options)
    rows = [(e.gate.title, e.status.value, ", ".join(e.evidence), e.missing) for e in entries]
    print(lay_out(options.format, ("gate", "status", "evidence", "missing next"), rows), end="")
    unmet = [entry for entry in entries if entry.status is GateStatus.FAILED]
    if options.require is not None:
        unmet = [entry for entry in entries if entry.status is not GateStatus.PASSED]
        for entry in unmet:
            print(f"campaign: required and {entry.status.value}: {entry.gate.title}: {entry.missing}", file=sys.stderr)
    return int(Exit.SLOWER if unmet else Exit.COMPLETE)


def _entries(options: argparse.Namespace) -> tuple[Entry, ...]:
    from orchestrator.preparation.subjects import check_subject
    from results.history.evidence import evidence
    from results.store.reader import Reader

    required = getattr(options, "require", None)  # of `gates` alone
    gates = load_gates(options.gates) if required is None else read_gates(required)
    with Reader.open(options.store) as reader:
        check_subject(options.subject, reader)
        found = evidence(reader, options.subject, options.library)
        print("".join(f"{line}\n" for line in reader.damaged.lines()), end="", file=sys.stderr)
    libraries = {probe.library_sha256 for probe in found.probes}
    if options.library and options.library not in libraries:
        known = nearest(options.library, sorted(filter(None, libraries)))
        raise UsageError(f"--library {options.library}: no probe of {options.subject} is about it; {known}")
    return ledger(gates, found)


def load_gates(name: str) -> tuple[Gate, ...]:
    """conf/gates/NAME.yaml as frozen gates; UsageError for an unknown file, key or kind."""
    path = _CONF / f"{name}.yaml"
    if not path.is_file():
        raise UsageError(f"--gates {name}: there are {', '.join(sorted(p.stem for p in _CONF.glob('*.yaml')))}")
    return read_gates(path)


def read_gates(path: Path) -> tuple[Gate, ...]:
    """A file of gates; UsageError that names its line for what no gate can be."""
    from orchestrator.settings.conf_files import load, shown

    if not path.is_file():
        raise UsageError(f"{path} is no file: name one of gates, laid out as conf/gates/default.yaml")
    lines = load(path).get("gates")
    if not isinstance(lines, list) or not lines:
        raise UsageError(f"{shown(path)}: it has no list `gates`, as conf/gates/default.yaml has")
    return tuple(_gate(line, shown(path)) for line in lines)


def _gate(line: Any, file: str) -> Gate:
    if not isinstance(line, dict):
        raise UsageError(f"{file}: {line!r} is no gate: write name, title and kind")
    where, known = f"{file}, gate {line.get('name')!r}", {field.name: field for field in fields(Gate)}
    if unknown := sorted(set(line) - set(known)):
        raise UsageError(f"{where}: {unknown[0]} is no key of a gate; {nearest(unknown[0], known)}")
    if missing := [name for name in ("name", "title", "kind") if not isinstance(line.get(name), str)]:
        raise UsageError(f"{where}: {missing[0]} is missing, or no text")
    if line["kind"] not in KINDS:
        raise UsageError(f"{where}: kind {line['kind']!r} is none of {', '.join(KINDS)}")
    for name in ("min_startups", "min_cases", "max_capped", "max_effect_pct"):
        if name in line and (isinstance(line[name], bool) or not isinstance(line[name], int | float)):
            raise UsageError(f"{where}: {name} is {line[name]!r}, no number")
    verdicts = line.get("verdicts", ())
    if not isinstance(verdicts, list | tuple) or set(verdicts) - set(Verdict):
        raise UsageError(f"{where}: verdicts is {verdicts!r}; it lists some of {', '.join(Verdict)}")
    return Gate(**{**line, "verdicts": tuple(verdicts)})


def add_promote_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("promote", help="record what a person decided about a candidate")
    _ledger_options(parser)
    decision_options(parser)
    parser.add_argument("--decision", choices=_DECISIONS, default=PROMOTE, help="default: %(default)s")
    parser.add_argument("--despite-open", action="store_true", help="promote although gates are not passed")
    parser.set_defaults(run=run_promote)


def run_promote(options: argparse.Namespace) -> int:
    from campaigns.remarks import Decision
    from results.store.writer import Store

    entries = [entry for entry in _entries(options) if entry.gate.kind != "decision"]
    unmet = [entry.gate.title for entry in entries if entry.status is not GateStatus.PASSED]
    if options.decision == PROMOTE and unmet and not options.despite_open:
        raise UsageError(f"{options.subject} has not passed {', '.join(unmet)}: --despite-open records it all the same")
    state = [asdict(entry) for entry in entries]
    utc = datetime.now(UTC).isoformat(timespec="milliseconds")
    decision = Decision(utc, options.subject, options.decision, options.by, options.reason, json.dumps(state))
    with Store.open(options.store) as store:
        store.decision(decision)
    print(f"{options.subject}: {options.decision}, by {options.by}; not passed: {', '.join(unmet) or 'nothing'}")
    return int(Exit.COMPLETE)


def add_probe_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("probe", help="checks of kernels and audits")
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=type(parser))
    importing = actions.add_parser("import", help="store JSON lines of kernel gates and audits as probes")
    importing.add_argument("file", type=Path, metavar="FILE", help="what kernels.gate or runtime.audits.audit wrote")
    importing.add_argument("--subject", default="", metavar="SCHEDULE-OR-ARM", help="for lines that name none")
    importing.add_argument("--library", default="", metavar="SHA256", help="for lines that name none")
    store_option(importing)
    importing.set_defaults(run=run_probe_import)
    beside = actions.add_parser("neighbours", help="measure what startups on one host do to each other's times")
    beside.add_argument("overrides", nargs="*", metavar="key=value", help="as for run, with campaign.mode=aa")
    turns = "turns alone, and as many beside K - 1 working neighbours (default: %(default)s)"
    beside.add_argument("--turns", type=positive(int), default=4, metavar="N", help=turns)
    config_option(beside)
    store_option(beside)
    beside.set_defaults(run=run_probe_neighbours)


def run_probe_neighbours(options: argparse.Namespace) -> int:
    from orchestrator.launch import composed
    from orchestrator.output.progress import ANSWER
    from orchestrator.settings.folders import with_folders
    from orchestrator.settings.overrides import store_override
    from orchestrator.studies.neighbours import probe

    words = ["campaign.startups=1", *options.overrides, store_override(options.store)]
    found = probe(composed(with_folders(words, options.config_dir), build=True), options.turns, ANSWER)
    line = json.loads(found.line_json)
    low, high = line["ci_pct"] or (None, None)
    interval = "three turns give the first interval" if low is None else f"95 % {low:+.2f} to {high:+.2f} %"
    beside, alone = line["pair_sd_beside_pct"], line["pair_sd_alone_pct"]
    print(
        f"{found.subject}: times are {line['slower_pct']:+.2f} % beside neighbours ({interval}), and pairs of equal "
        f"arms lie {beside:.2g} % apart instead of {alone:.2g} %: {found.status}"
    )
    return int(Exit.SLOWER if found.status == GateStatus.FAILED.value else Exit.COMPLETE)


def run_probe_import(options: argparse.Namespace) -> int:
    from orchestrator.preparation.subjects import check_subject
    from results.store.reader import Reader
    from results.store.writer import Store
    from results.transfer.probes import parse, unrecorded

    if not options.file.is_file():
        raise UsageError(f"{options.file} is no file: name one of JSON lines")
    if options.subject:
        check_subject(options.subject)
    lines = options.file.read_text(encoding="utf-8").splitlines()
    probes = list(parse(lines, subject=options.subject, library_sha256=options.library))
    with Store.open(options.store) as store:
        with Reader.open(options.store) as reader:
            for subject in dict.fromkeys(probe.subject for probe in probes):
                check_subject(subject, reader)
            fresh = unrecorded(probes, reader.probes())
        store.probes(fresh)
    counts = {status.value: sum(p.status == status for p in fresh) for status in GateStatus}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    known = f", {len(probes) - len(fresh)} there already" if len(fresh) < len(probes) else ""
    added = f"{counted(len(fresh), 'probe')} added{f' ({told})' if told else ''}"
    print(f"{added}{known}: {counted(len(lines), 'line')} read")
    return int(Exit.COMPLETE)
