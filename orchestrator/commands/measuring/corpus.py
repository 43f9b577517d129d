"""`campaign corpus`: freeze, show, verify and compare frozen corpora."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from campaigns.errors import Exit, UsageError
from campaigns.printable import json_text
from orchestrator.commands.options import SANDBOX, force_option, sandbox_setting
from orchestrator.output.terminal import Lasting

_EVERY_S = 5.0  # between two lines of progress

_SOURCES = {
    "gsm8k": "test.jsonl of GSM8K",
    "math500": "test.jsonl of MATH-500",
    "humaneval": "HumanEval.jsonl.gz",
    "humanevalplus": "HumanEvalPlus-OriginFmt.jsonl.gz of EvalPlus",
    "mbpp": "mbpp.jsonl; its test split is used",
    "mbppplus": "MbppPlus-OriginFmt.jsonl.gz of EvalPlus",
    "livecodebench": "an official release, or its public problems; files of LeetCodeDataset add hidden tests",
    "structured": "a folder of function-calling questions and answers, a folder of JSON schemas, or JSON lines",
}
_EXAMPLE = (
    """example:
  campaign corpus freeze public --output outputs/corpora --gsm8k D/gsm8k/test.jsonl --math500 D/math500/test.jsonl \\
    --humaneval D/HumanEval.jsonl.gz --humanevalplus D/HumanEvalPlus-OriginFmt.jsonl.gz --mbpp D/mbpp.jsonl \\
    --mbppplus D/MbppPlus-OriginFmt.jsonl.gz --livecodebench D/test6.jsonl --structured D/bfcl_v4
Published solutions run in the sandbox of `campaign score`; a case that none of them passes is left out.
"""
    + SANDBOX
    + """
The last line printed is the SHA-256 of the corpus; equal files and options give it on every machine."""
)


def add_corpus_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("corpus", help="freeze and inspect the prompts of a quality campaign")
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=type(parser))
    _add_freeze(actions)
    _add_show(actions)
    verify = actions.add_parser("verify", help="check every hash in a frozen corpus")
    verify.add_argument("corpus", metavar="CORPUS", help="a frozen file, its manifest, or `embedded`")
    verify.set_defaults(run=run_corpus, action=_verify)
    diff = actions.add_parser("diff", help="what separates two frozen corpora; exit 2 when something does")
    diff.add_argument("a", metavar="A", help="a frozen file, its manifest, or `embedded`")
    diff.add_argument("b", metavar="B", help="likewise")
    diff.set_defaults(run=run_corpus, action=_diff)


def run_corpus(options: argparse.Namespace) -> int:
    code: int = options.action(options)
    return code


def _add_freeze(actions: Any) -> None:
    parser = actions.add_parser(
        "freeze",
        help="datasets in their published formats -> one content-addressed file",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="label of the manifest; not part of the hashed bytes")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the two files go")
    for name, text in _SOURCES.items():
        parser.add_argument(f"--{name}", type=Path, action="append", default=[], metavar="PATH", help=text)
    parser.add_argument(
        "--order",
        choices=("shuffle42", "sequential", "ids", "eligible-only"),
        default="shuffle42",
        help="how cases are chosen (default: %(default)s)",
    )
    parser.add_argument("--ids", default="", help="with --order ids: case ids, separated by commas")
    parser.add_argument("--count", action="append", default=[], metavar="DATASET=N", help="instead of the default mix")
    parser.add_argument("--template", type=Path, metavar="FILE", help="JSON {name: text} that replaces prompt texts")
    force_option(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.set_defaults(run=run_corpus, action=_freeze, settings=[])


def _add_show(actions: Any) -> None:
    parser = actions.add_parser("show", help="what a frozen corpus holds")
    parser.add_argument("corpus", metavar="CORPUS", help="a frozen file, its manifest, or `embedded`")
    parser.add_argument("--case", default="", metavar="ID", help="print one case in full")
    parser.set_defaults(run=run_corpus, action=_show)


def _freeze(options: argparse.Namespace) -> int:
    from campaigns.corpora.embedded import embedded
    from campaigns.corpora.freezing import Recipe, freeze
    from campaigns.corpora.manifest import write
    from campaigns.corpora.selection import Selecting, Selection
    from campaigns.corpora.templates import read_templates
    from orchestrator.scoring.proving import SolutionRuns
    from orchestrator.scoring.sandbox import Tried

    ids = tuple(word.strip() for word in options.ids.split(",") if word.strip())
    if bool(ids) != (options.order == "ids"):
        raise UsageError("--order ids and --ids ID,ID go together")
    recipe = Recipe(
        paths={name: tuple(getattr(options, name)) for name in _SOURCES},
        mix=_mix(options.count),
        selection=Selection(Selecting(options.order), ids),
        templates=read_templates(options.template),
    )
    tell = (lambda _: None) if options.quiet else _told_at_times()
    corpus = freeze(recipe, embedded(), SolutionRuns(Tried(sandbox_setting(options.settings)), tell))
    path, manifest = write(corpus, options.name, options.output, force=options.force)
    _print_counts(corpus.counts(), len(corpus.cases))
    print("\n".join(_proof(corpus)))
    print(path)
    print(manifest)
    print(corpus.sha256)
    return int(Exit.COMPLETE)


def _told_at_times() -> Callable[[str], None]:
    """Proving takes minutes: the first case at once, then one every few seconds."""
    began, told, done = time.monotonic(), -math.inf, 0

    def tell(case: str) -> None:
        nonlocal told, done
        done += 1
        now = time.monotonic()
        if now - told >= _EVERY_S:
            told = now
            line = f"running the published solutions of {case}, case {done}, {now - began:.0f} s"
            print(line, file=Lasting(sys.stderr), flush=True)

    return tell


def _mix(counts: Sequence[str]) -> dict[str, int]:
    from campaigns.corpora.freezing import MIX

    mix = dict(MIX)
    for word in counts:
        name, _, number = word.partition("=")
        if name not in mix or not number.isdecimal():
            raise UsageError(f"--count {word}: write DATASET=N with one of {', '.join(mix)}")
        mix[name] = int(number)
    if not any(mix.values()):
        raise UsageError("--count leaves no case at all")
    return mix


def _show(options: argparse.Namespace) -> int:
    corpus = _open(options.corpus)
    if options.case:
        return _show_case(corpus, options.case)
    print(f"corpus {corpus.sha256}")
    print(f"rule   {corpus.header['order']}: {corpus.header['rule']}")
    _print_counts(corpus.counts(), len(corpus.cases))
    print("\n".join(_proof(corpus)))
    for case in corpus.cases:
        kinds = ", ".join(t.name + (" (ineligible)" if t.ineligible else "") for t in case.tests)
        print(f"{case.sha256[:12]}  {case.id}{'  ' + kinds if kinds else ''}")
    return int(Exit.COMPLETE)


def _show_case(corpus: Any, case_id: str) -> int:

    case = corpus.case(case_id)
    if case is None:
        raise UsageError(f"--case {case_id}: the corpus has no such case; `corpus show` lists them")
    print(json_text(case.to_json(), indent=1))
    return int(Exit.COMPLETE)


def _verify(options: argparse.Namespace) -> int:
    corpus = _open(options.corpus)
    print(f"{len(corpus.cases)} cases intact")
    print("\n".join(_proof(corpus)))
    print(corpus.sha256)
    return int(Exit.COMPLETE)


def _diff(options: argparse.Namespace) -> int:
    from campaigns.corpora.manifest import differences

    lines = list(differences(_open(options.a), _open(options.b)))
    print("\n".join(lines) if lines else "equal")
    return int(Exit.SLOWER if lines else Exit.COMPLETE)


def _open(name: str) -> Any:
    from campaigns.corpora.choice import load

    return load("embedded") if name == "embedded" else load("file", name)


def _proof(corpus: Any) -> Iterator[str]:
    """What is known of its programs: proven, left out and why, outside a denominator and why."""
    if corpus.is_proven:
        proof = corpus.header["proof"]
        passed, unknown = proof["passed"], proof["unpublished"]
        yield f"{passed} code cases proven by a published solution; none is published for {unknown}"
        for reason, ids in _by_reason(corpus.header["left_out"].items()):
            yield f"left out {len(ids)}: {reason}: {', '.join(ids)}"
    else:
        yield f"not proven ({corpus.header['format']}): a prompt may show other tests than the scorer runs"
    ineligible = [
        (f"{case.id}", f"{t.name}: {t.ineligible}") for case in corpus.cases for t in case.tests if t.ineligible
    ]
    for reason, ids in _by_reason(ineligible):
        yield f"ineligible {len(ids)}: {reason}: {', '.join(ids)}"


def _afterwards(case: Any) -> Sequence[str]:
    """Features of its schema that the server is not asked to follow."""
    answer = case.answer
    return answer.get("checked_afterwards", ()) if isinstance(answer, dict) else ()


def _by_reason(told: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    ids: dict[str, list[str]] = {}
    for case, reason in told:
        ids.setdefault(reason, []).append(case)
    return list(ids.items())


def _print_counts(counts: dict[str, int], total: int) -> None:
    print(", ".join(f"{dataset} {n}" for dataset, n in counts.items()) + f": {total} cases")
