"""`campaign bisect`: which commit changed speed or tokens."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaigns.errors import NoDevice, UsageError
from orchestrator.commands.options import config_option, quiet_option, resume_option, resumed, store_option, words_of
from results.store.place import check_place

if TYPE_CHECKING:
    from orchestrator.preparation.prepare import Prepared
    from orchestrator.studies.bisect import Arms

_BISECT = """Which commit between GOOD and BAD changed speed or tokens, e.g.
  campaign bisect v1.2 HEAD --build 'make -j4' server=command campaign=endpoint \\
    "server.command=[python,'{tree}/serve.py','--port','{port}']"
  campaign bisect 3f2a HEAD server=embedded campaign=endpoint      of this runtime
Both ends are compared first; then each probe halves the commits that are left (along first parents), in a work tree of
its own, built and hashed, by a campaign against GOOD that stops when it is decided. The commit that is left is measured
once more against the one before it, in startups that nothing has seen. A commit that cannot be built, started or judged
is stepped over. Every campaign is kept. Exit code: 0 found and seen again, 3 nothing to be told, 130 to be resumed."""

_DECIDED = {"campaign.stop": "decided", "campaign.startups": "16", "campaign.min_startups": "3"}


def add_bisect_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bisect",
        help="find the commit that changed speed or tokens",
        description=_BISECT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="campaign bisect GOOD BAD [--repo DIR] [--build CMD] [--by speed|tokens] [--store F] key=value…\n"
        "       campaign bisect --resume [ID] [--store F]",
    )
    parser.add_argument("words", nargs="*", metavar="GOOD BAD key=value…", help="git revisions; overrides as for run")
    here = "the repository (default: that of the current folder)"
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help=here)
    parser.add_argument("--build", default="", metavar="CMD", help="run by the shell in every work tree first")
    sought = "what is sought (default: tokens where the ends differ in them, else speed)"
    parser.add_argument("--by", default="", choices=("speed", "tokens"), help=sought)
    resume_option(parser, "bisection")
    config_option(parser)
    store_option(parser)
    quiet_option(parser)
    parser.set_defaults(run=run_bisect, settings=[], command="bisect")


def run_bisect(options: argparse.Namespace) -> int:
    from orchestrator.checkouts.revisions import Repository
    from orchestrator.output.progress import Output
    from orchestrator.settings.overrides import store_override
    from orchestrator.studies.bisect import bisect
    from orchestrator.studies.series import Series

    given = words_of(options)
    found = resumed(options, given)
    told = found.asked if found else _asked(options, given)
    repository = Repository(Path(told["repository"]))
    line = repository.line(told["good"], told["bad"])
    words = [str(word) for word in told["words"]]
    if found is None:
        _check(words)
    with found or Series.begin(options.store, "bisect", told) as series:
        output, store = Output(quiet=options.quiet), store_override(Path(series.asked["store"]))
        return int(bisect(series, repository, line, lambda arms: _composed([*words, store], arms), output))


def _asked(options: argparse.Namespace, given: Sequence[str]) -> dict[str, Any]:
    """All that is needed to go on with it; revisions by their hashes, since a branch moves."""
    from orchestrator.checkouts.revisions import Repository
    from orchestrator.settings.folders import with_folders

    check_place(options.store)
    revisions = [word for word in given if "=" not in word]
    if len(revisions) != 2:
        raise UsageError(f"campaign bisect GOOD BAD key=value…: two revisions, and here are {len(revisions)}")
    repository = Repository(options.repo)
    good, bad = map(repository.resolve, revisions)
    words = [word for word in given if "=" in word]
    return {
        "good": good,
        "bad": bad,
        "repository": str(repository.root),
        "build": options.build,
        "by": options.by,
        "store": str(options.store.absolute()),
        "words": with_folders(words, options.config_dir),
    }


def _check(words: Sequence[str]) -> None:
    """A wrong word is told before anything is built."""
    from orchestrator.studies.bisect import Arms

    for word in words:
        key = word.partition("=")[0].lstrip("+")
        if key in ("arm@campaign.candidate", "campaign.candidate") or key.startswith("campaign.candidate."):
            raise UsageError(f"{word}: both revisions run with the control's arm; name it as arm@campaign.control=…")
    with tempfile.TemporaryDirectory() as tree:
        both = ("check", Path(tree))
        if unknown := _composed([*words, "campaign.mode=aa"], Arms(both, both), build=False).unknown:
            raise NoDevice(unknown)


def _composed(words: Sequence[str], arms: Arms, *, build: bool = True) -> Prepared:
    """The campaign of two revisions, both with the control's arm."""
    from orchestrator.launch import composed

    given = {word.partition("=")[0].lstrip("+"): word.partition("=")[2] for word in words}
    arm = given.get("arm@campaign.control", "default")
    defaults = {"startup": "co_resident", "arm@campaign.control": arm, "arm@campaign.candidate": arm, **_DECIDED}
    own = [f"{key}={value}" for key, value in defaults.items() if key not in given]
    return composed([*own, *words, *_of(arms)], build=build)


def _of(arms: Arms) -> list[str]:
    from orchestrator.settings.overrides import quoted_value

    found = []
    for role, (name, tree) in (("control", arms.control), ("candidate", arms.candidate)):
        found += [f"campaign.{role}.name={quoted_value(name)}", f"campaign.{role}.tree={quoted_value(str(tree))}"]
    if arms.margin is not None:
        found.append(f"campaign.margin_percent={100 * arms.margin:.6g}")
    if arms.startups is not None:
        found += [f"campaign.startups={arms.startups}", "campaign.stop=planned", "campaign.min_startups=null"]
    return found
