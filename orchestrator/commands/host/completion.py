"""`campaign completion` and `complete`: the words that a shell may offer next.

The scripts ask this program, so that they know the commands, options, campaigns, groups and arms that there are now.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from campaigns.errors import CampaignError, Exit

_BASH = r"""_campaign() {
  local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}" word="${COMP_WORDS[COMP_CWORD]}" found
  [[ $word == "=" ]] && word=""
  found=($(campaign complete "$line" 2>/dev/null))
  [[ $line == *=* && ${line##* } == *=* ]] && found=("${found[@]#*=}")
  COMPREPLY=($(compgen -W "${found[*]}" -- "$word"))
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -F _campaign campaign
"""
_ZSH = r"""#compdef campaign
_campaign() {
  local -a found
  found=("${(@f)$(campaign complete "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
  compadd -Q -S '' -- $found
}
compdef _campaign campaign
"""
_FISH = r"""complete -c campaign -f -a '(campaign complete (commandline -cp | string collect) 2>/dev/null)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_HELP = """bash: campaign completion bash > ~/.local/share/bash-completion/completions/campaign;
zsh: campaign completion zsh > a folder of $fpath, as _campaign;
fish: campaign completion fish > ~/.config/fish/completions/campaign.fish"""


def add_completion_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("completion", help="a script that completes words of this program", epilog=_HELP)
    parser.add_argument("shell", choices=tuple(_SCRIPTS), metavar="bash|zsh|fish", help="which shell it is for")
    parser.set_defaults(run=run_completion)
    asked = subparsers.add_parser("complete", help="what may stand next on a command line; asked by those scripts")
    asked.add_argument("line", metavar="LINE", help="the line so far, `campaign` included")
    asked.set_defaults(run=run_complete)


def run_completion(options: argparse.Namespace) -> int:
    print(_SCRIPTS[options.shell], end="")
    return int(Exit.COMPLETE)


def run_complete(options: argparse.Namespace) -> int:
    words = options.line.split(" ")[1:]
    for word in sorted(set(candidates(options.top, words))):
        print(word)
    return int(Exit.COMPLETE)


def candidates(top: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[str]:
    """Whole words that may stand where the last of `words` does."""
    *before, begun = words or [""]
    parser = top
    for word in before:
        parser = _choices(parser).get(word, parser)
    yield from (word for word in _possible(parser, before) if word.startswith(begun))


def _possible(parser: argparse.ArgumentParser, before: Sequence[str]) -> Iterator[str]:
    wanted = _wants_value(parser, before[-1]) if before else None
    if wanted is not None:
        yield from (str(choice) for choice in wanted.choices or ())
        return
    yield from _choices(parser)
    named = (action for action in parser._actions if not action.option_strings)
    yield from (str(choice) for action in named for choice in action.choices or ())
    yield from (option for action in parser._actions for option in action.option_strings if option.startswith("--"))
    if any(action.dest in ("id", "ids") for action in parser._actions):
        yield from ("last", *_ids(_after(before, "--store")))
    if parser.prog in ("campaign run", "campaign plan"):
        yield from ("--store", "--config-dir", "--strict", "--report", "--quiet")
        yield from _settings(_after(before, "--config-dir"))


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def _wants_value(parser: argparse.ArgumentParser, option: str) -> argparse.Action | None:
    return next((a for a in parser._actions if option in a.option_strings and a.nargs is None), None)


def _after(words: Sequence[str], option: str) -> str:
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if word == option), "")


def _ids(store: str) -> list[str]:
    """Of the store's campaigns, newest last; a store that cannot be read offers none."""
    from results.store.place import DEFAULT
    from results.store.reader import Reader

    with suppress(CampaignError), Reader.open(Path(store) if store else DEFAULT) as reader:
        return [campaign.campaign_id for campaign in reader.campaigns()]
    return []


def _settings(folder: str) -> Iterator[str]:
    """GROUP=FILE for every group, and KEY= for every key."""
    from orchestrator.settings.folders import groups, options
    from orchestrator.settings.keys import kind_of, paths, wanted

    files = options((Path(folder),) if folder else ())
    for group in groups():
        yield from (f"{group}={name}" for name in files[group.partition("@")[0]])
    yield from (f"{path}=" for path in paths() if not wanted(kind_of(path)).startswith("a group"))
