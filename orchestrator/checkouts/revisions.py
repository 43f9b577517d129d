"""Revisions of a git repository, each in a work tree of its own, built there. Knows git and folders, no campaign."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns.errors import UsageError, WorldError
from orchestrator.checkouts.trees import tree_sha256

_SHOWN = 12  # characters of a commit's id


class BuildFailed(WorldError):
    pass


@dataclass(frozen=True)
class Revision:
    sha: str
    subject: str

    @property
    def short(self) -> str:
        return self.sha[:_SHOWN]


class Repository:
    def __init__(self, folder: Path) -> None:
        """UsageError where `folder` lies in no repository."""
        self._root = folder.expanduser().absolute()
        self.root = self._root = Path(self._git("rev-parse", "--show-toplevel"))

    def resolve(self, name: str) -> str:
        try:
            return self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except UsageError:
            raise UsageError(f"{name}: {self.root} has no such commit; name one as git does") from None

    def line(self, good: str, bad: str) -> list[Revision]:
        """From `good` to `bad` along first parents, both included: what a merge brought is the merge's."""
        first, last = self.resolve(good), self.resolve(bad)
        if first == last:
            raise UsageError(f"{good} and {bad} are one commit: there is nothing between them")
        told = self._git("log", "--first-parent", "--reverse", "--format=%H %s", last, f"^{first}", "--").splitlines()
        found = [Revision(*line.partition(" ")[::2]) for line in told]
        if not found or self._parent(found[0].sha) != first:
            raise UsageError(
                f"{bad} does not descend from {good} by first parents: name one that it does, "
                f"as {self._git('merge-base', first, last, lenient=True)[:_SHOWN] or 'an older commit'}"
            )
        return [Revision(first, self._git("log", "-1", "--format=%s", first)), *found]

    def _parent(self, sha: str) -> str:
        return self._git("rev-parse", f"{sha}^", lenient=True)

    def check_out(self, revision: Revision, folder: Path) -> None:
        """A clean work tree; one that is left there is done away with."""
        self.remove(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._git("worktree", "add", "--force", "--detach", str(folder), revision.sha)

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._git("worktree", "prune", lenient=True)

    def _git(self, *words: str, lenient: bool = False) -> str:
        """What git says; nothing where it refuses and that is no matter. `GIT_DIR` and its like mean another place."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            done = subprocess.run(
                ["git", "-C", str(self._root), *words], capture_output=True, text=True, env=environment, check=False
            )
        except OSError as error:
            raise WorldError(f"git cannot be run ({error.strerror}): install it, revisions are read with it") from error
        if done.returncode and not lenient:
            raise UsageError(f"git {words[0]} in {self._root}: {(done.stderr.strip().splitlines() or ['refused'])[-1]}")
        return "" if done.returncode else done.stdout.strip()


def build(tree: Path, command: str, log: Path) -> str:
    """Run `command` by the shell in `tree`, its output in `log`; the SHA-256 of the tree afterwards.

    Raises BuildFailed; whatever ends the wait ends the build with all that it started.
    """
    if command:
        with log.open("wb") as output:
            child = subprocess.Popen(
                ["sh", "-c", command], cwd=tree, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        try:
            code = child.wait()
        finally:
            _end(child)
        if code:
            raise BuildFailed(f"its build ended with {code}: {_last(log)} ({log})")
    return tree_sha256(tree, ["."])


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _last(log: Path) -> str:
    lines: Sequence[str] = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"
