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
        bare = self._git("rev-parse", "--is-bare-repository") == "true"
        self.root = self._root = Path(self._git("rev-parse", "--absolute-git-dir" if bare else "--show-toplevel"))
        if not str(self.root).isprintable():
            raise UsageError(f"{str(self.root)!a}: no campaign can keep this path; clone the repository elsewhere")

    def resolve(self, name: str) -> str:
        try:
            return self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except UsageError:
            shallow = self._git("rev-parse", "--is-shallow-repository", lenient=True) == "true"
            remedy = "it is a shallow clone: git fetch --unshallow" if shallow else "name one as git does"
            raise UsageError(f"{name}: {self.root} has no such commit; {remedy}") from None

    def line(self, good: str, bad: str) -> list[Revision]:
        """From `good` to `bad` along first parents, both included: what a merge brought is the merge's."""
        first, last = self.resolve(good), self.resolve(bad)
        if first == last:
            raise UsageError(f"{good} and {bad} are one commit: there is nothing between them")
        found = self._log("--first-parent", "--reverse", last, f"^{first}")
        if not found or self._git("rev-parse", f"{found[0].sha}^", lenient=True) != first:
            raise UsageError(self._unrelated(good, bad, first, last))
        return [*self._log("-1", first), *found]

    def _log(self, *asked: str) -> list[Revision]:
        """A subject may hold anything but a line feed, and no setting of a person's own may add lines."""
        told = self._git("log", "--no-show-signature", "--format=%H %s", *asked, "--")
        plain = told.encode(errors="surrogateescape").decode(errors="replace")
        return [Revision(*line.partition(" ")[::2]) for line in plain.split("\n") if line]

    def _unrelated(self, good: str, bad: str, first: str, last: str) -> str:
        """Why there is no line from the one to the other, and what to write instead."""
        if self._git("rev-parse", "--is-shallow-repository") == "true":
            return f"{self.root} is a shallow clone, which ends between {good} and {bad}: git fetch --unshallow"
        if self._git("merge-base", first, last, lenient=True) == last:
            return f"{bad} is older than {good}: the older one comes first, as campaign bisect {bad} {good}"
        line = self._git("rev-list", "--first-parent", last).split()
        older = set(self._git("rev-list", first).split())
        known = next((sha for sha in line if sha in older), "")
        remedy = f"the newest that it does is {known[:_SHOWN]}" if known else "they have no commit in common"
        return f"{bad} does not descend from {good} by first parents: {remedy}"

    def check_out(self, revision: Revision, folder: Path) -> None:
        """A clean work tree with its submodules; one that is left there is done away with. BuildFailed without them:
        code that is not there may be one that a server goes on without.
        """
        self.remove(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._git("worktree", "add", "--force", "--detach", str(folder), revision.sha)
        if (folder / ".gitmodules").exists():
            try:
                self._git("-C", str(folder), "submodule", "update", "--quiet", "--init", "--recursive")
            except UsageError as error:
                raise BuildFailed(f"its submodules cannot be had: {error}") from error

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._git("worktree", "prune", lenient=True)

    def _git(self, *words: str, lenient: bool = False) -> str:
        """What git says; nothing where it refuses and that is no matter. `GIT_DIR` and its like mean another place."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            done = subprocess.run(
                ["git", "-C", str(self._root), *words],
                capture_output=True, encoding="utf-8", errors="surrogateescape", env=environment, check=False,
            )  # fmt: skip
        except OSError as error:
            raise WorldError(f"git cannot be run ({error.strerror}): install it, revisions are read with it") from error
        if done.returncode and not lenient:
            verb = words[2] if words[0] == "-C" else words[0]
            raise UsageError(f"git {verb} in {self._root}: {_why(done.stderr)}")
        return "" if done.returncode else done.stdout.removesuffix("\n")


def _why(said: str) -> str:
    """What git refused, and its last line, which may be the remedy."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["refused"]
    told = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
    return told if told == lines[-1] else f"{told}; {lines[-1]}"


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
