"""`campaign tag`, `note` and `archive`: what people write to campaigns. Appended, never changed; figures stay."""

from __future__ import annotations

import argparse
import getpass
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaigns.errors import Exit, UsageError
from campaigns.judging.verdicts import counted
from campaigns.remarks import Annotation, Mark
from orchestrator.commands.options import CAMPAIGN, campaign_argument, said, store_option

_TAG = re.compile(r"[\w.:/=+@-]{1,64}")


def add_tag_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("tag", help="tags of a campaign, to find it by: history --tag, serve")
    campaign_argument(parser)
    parser.add_argument(
        "tags", metavar="TAG", nargs="*", default=[], type=_tag, help="to add; without any, those it has"
    )
    parser.add_argument("--remove", action="store_true", help="take these away instead")
    _by(parser)
    store_option(parser)
    parser.set_defaults(run=run_tag)


def add_note_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("note", help="notes on a campaign, kept with who wrote them and shown in its report")
    campaign_argument(parser)
    parser.add_argument("text", metavar="TEXT", nargs="?", type=said, help="to add; without it, those it has")
    _by(parser)
    store_option(parser)
    parser.set_defaults(run=run_note)


def add_archive_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "archive", help="leave campaigns without a result out of the lists; nothing is deleted"
    )
    parser.add_argument("ids", metavar="ID", nargs="+", help=CAMPAIGN)
    parser.add_argument("--reason", type=said, required=True, metavar="TEXT", help="why; kept with the campaign")
    parser.add_argument("--restore", action="store_true", help="take them back into the lists")
    _by(parser)
    store_option(parser)
    parser.set_defaults(run=run_archive)


def _by(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", type=said, metavar="NAME", help="who writes it (default: this user)")


def _tag(text: str) -> str:
    if not _TAG.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no tag: up to 64 letters, digits and . : / = + @ _ -")
    return text


def run_tag(options: argparse.Namespace) -> int:
    from results.store.reader import Reader

    with Reader.open(options.store) as reader:
        name = reader.resolve(options.id)
        tags = reader.tags().get(name, [])
    missing = [tag for tag in options.tags if options.remove and tag not in tags]
    if missing or (options.remove and not options.tags):
        raise UsageError(f"campaign {name} has no tag {' '.join(missing) or 'to remove'}; it has {_list(tags)}")
    new = [tag for tag in dict.fromkeys(options.tags) if options.remove or tag not in tags]
    _append(options, [(name, Mark.UNTAG if options.remove else Mark.TAG, tag) for tag in new])
    kept = [tag for tag in tags if tag not in new] + ([] if options.remove else new)
    print(f"campaign {name}: {_list(kept)}")
    return int(Exit.COMPLETE)


def _list(tags: Sequence[str]) -> str:
    return ", ".join(tags) or "no tag"


def run_note(options: argparse.Namespace) -> int:
    from results.store.reader import Reader

    with Reader.open(options.store) as reader:
        name = reader.resolve(options.id)
        notes = [note for note in reader.annotations(name) if note.mark is Mark.NOTE]
    if options.text is None:
        print("\n".join(f"{note.utc} {note.by}: {note.text}" for note in notes) or f"campaign {name}: no note")
        return int(Exit.COMPLETE)
    _append(options, [(name, Mark.NOTE, options.text)])
    print(f"campaign {name}: {counted(len(notes) + 1, 'note')}")
    return int(Exit.COMPLETE)


def run_archive(options: argparse.Namespace) -> int:
    """Only what gave no result: a result that lists leave out would be a choice among results."""
    from results.store.reader import ENDED_WITHOUT, Reader

    with Reader.open(options.store) as reader:
        names = list(dict.fromkeys(reader.resolve(name) for name in options.ids))
        archived = reader.archived()
        for name in names:
            status = reader.status(name)
            if options.restore and name not in archived:
                raise UsageError(f"campaign {name} is not archived: it is {status.value}, and in every list")
            if not options.restore and status not in ENDED_WITHOUT:
                raise UsageError(
                    f"campaign {name} is {status.value}: only failed, held and interrupted ones may leave the lists; "
                    "a result stays, tag it instead"
                )
    mark = Mark.RESTORE if options.restore else Mark.ARCHIVE
    _append(options, [(name, mark, options.reason) for name in names])
    print(f"{'restored' if options.restore else 'archived'}: {', '.join(names)}")
    return int(Exit.COMPLETE)


def _append(options: argparse.Namespace, marks: Sequence[tuple[str, Mark, str]]) -> None:
    from results.store.writer import Store

    if not marks:
        return
    utc, by = datetime.now(UTC).isoformat(timespec="microseconds"), options.by or _user()
    store: Path = options.store
    with Store.open(store) as writer:
        writer.annotations([Annotation(name, utc, mark, text, by) for name, mark, text in marks])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        raise UsageError("this user has no name here: say who writes with --by NAME") from None
