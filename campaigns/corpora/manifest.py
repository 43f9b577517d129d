"""A frozen corpus: one content-addressed file of cases, and the manifest that names what is in it.

File: JSON lines, first a header (mix, rule, templates, sources), then one case a line. Its SHA-256 is the corpus's
identity. Nothing in it depends on the machine, the time, file names or the label, so freezing twice gives equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from campaigns.corpora.case import Case, compact_json
from campaigns.errors import IdentityMismatch, UsageError
from campaigns.plan import Fixture

UNPROVEN = "frozen-corpus/1"
PROVEN = "frozen-corpus/2"  # each code case has a published solution that passes, or none is published
FORMATS = (UNPROVEN, PROVEN)


@dataclass(frozen=True)
class Corpus:
    header: Mapping[str, Any]
    cases: tuple[Case, ...]

    def __post_init__(self) -> None:
        twice = [name for name, n in Counter(case.id for case in self.cases).items() if n > 1]
        if twice:
            raise UsageError(f"case {twice[0]} occurs twice: was one source given two times?")

    @cached_property
    def content(self) -> bytes:
        lines = [self.header, *(case.to_json() for case in self.cases)]
        return "".join(compact_json(line) + "\n" for line in lines).encode()

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def manifest(self) -> dict[str, Any]:
        """What the file holds, small enough to read; free of any label."""
        cases = [
            {"id": c.id, "dataset": c.dataset, "source_sha256": c.source_sha256, "record_index": c.record_index}
            | {"sha256": c.sha256}
            for c in self.cases
        ]
        return {"corpus_sha256": self.sha256, **self.header, "cases": cases}

    def counts(self) -> dict[str, int]:
        """Cases of each dataset, in the order of the file."""
        return dict(Counter(case.dataset for case in self.cases))

    def fixtures(self, seeds: tuple[int, ...], max_tokens: int | None = None) -> tuple[Fixture, ...]:
        """What a campaign sends: every case with the same seeds and cap."""
        return tuple(Fixture(c.id, c.body(), seeds, c.dataset, max_tokens) for c in self.cases)

    @property
    def is_proven(self) -> bool:
        """Whether freezing ran published solutions; before, a prompt might show other tests than were scored."""
        return bool(self.header["format"] == PROVEN)

    def case(self, case_id: str) -> Case | None:
        return next((case for case in self.cases if case.id == case_id), None)


def write(corpus: Corpus, label: str, folder: Path, *, force: bool = False) -> tuple[Path, Path]:
    """The corpus file, named by its hash, and LABEL.manifest.json; a corpus that is there already is verified instead.

    A manifest that names another corpus is overwritten with `force` alone.
    """
    if not label or "/" in label or label.startswith("."):
        raise UsageError(f"NAME={label!r} cannot name a file; use letters, digits and dashes")
    path, manifest = folder / f"{corpus.sha256}.jsonl", folder / f"{label}.manifest.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _write_whole(path, corpus.content)
        elif hashlib.sha256(path.read_bytes()).hexdigest() != corpus.sha256:
            raise IdentityMismatch(f"{path}: the content does not have the hash in its name; move the file away")
        described = (json.dumps({"label": label, "file": path.name, **corpus.manifest()}, indent=1) + "\n").encode()
        if manifest.exists() and not force and manifest.read_bytes() != described:
            raise UsageError(f"{manifest} is there already: give another NAME, or overwrite it with --force")
        _write_whole(manifest, described)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); give another --output") from error
    return path, manifest


def _write_whole(path: Path, content: bytes) -> None:
    """Never half a file under its final name."""
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(content)
    draft.replace(path)


def read(path: Path) -> Corpus:
    """A frozen corpus, by its own file or by its manifest; every hash in it is checked."""
    try:
        data = path.read_bytes()
        if path.name.endswith(".manifest.json"):
            return _by_manifest(path, json.loads(data))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); name a frozen corpus or its manifest") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no JSON ({error}); name a frozen corpus or its manifest") from error
    return _parse(path, data)


def _by_manifest(path: Path, manifest: Any) -> Corpus:
    file = manifest.get("file") if isinstance(manifest, dict) else None
    if not isinstance(file, str) or Path(file).name != file:
        raise UsageError(f"{path}: names no corpus file beside it; name a frozen corpus or its manifest")
    corpus = read(path.with_name(file))
    told = {name: value for name, value in manifest.items() if name not in ("label", "file")}
    if told != json.loads(json.dumps(corpus.manifest())):
        raise IdentityMismatch(
            f"{path}: describes corpus {manifest.get('corpus_sha256')}, beside it lies {corpus.sha256}; freeze again"
        )
    return corpus


def _parse(path: Path, data: bytes) -> Corpus:
    try:
        header, *rows = [json.loads(line) for line in data.decode().split("\n") if line]
        if header.get("format") not in FORMATS:
            known = " or ".join(FORMATS)
            raise UsageError(f"{path}: format {header.get('format')!r} is not {known}; freeze the corpus again")
        corpus = Corpus(header, tuple(Case.from_json(row) for row in rows))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if not any(known.encode() in data.partition(b"\n")[0] for known in FORMATS):
            raise UsageError(f"{path}: no frozen corpus; name one that `campaign corpus freeze` wrote") from error
        raise IdentityMismatch(f"{path}: no intact frozen corpus ({error}); freeze it again") from error
    found = hashlib.sha256(data).hexdigest()
    if found != corpus.sha256 or path.stem != found:  # only its name says what the header and the list of cases were
        raise IdentityMismatch(
            f"{path}: content has sha256 {found}, not the one in its name; freeze it again, or rename the file back"
        )
    return corpus


def differences(a: Corpus, b: Corpus) -> Iterator[str]:
    """What separates two corpora, one line each; nothing when they are equal."""
    for key in sorted(a.header.keys() | b.header.keys()):
        if a.header.get(key) != b.header.get(key):
            yield f"header {key}: {_short(a.header.get(key))} != {_short(b.header.get(key))}"
    left, right = ({case.id: case for case in corpus.cases} for corpus in (a, b))
    yield from (f"only in the first: {name}" for name in left if name not in right)
    yield from (f"only in the second: {name}" for name in right if name not in left)
    for name in (name for name in left if name in right and left[name] != right[name]):
        yield f"changed: {name}: {', '.join(_changed_fields(left[name], right[name]))}"
    shared = [[c.id for c in corpus.cases if c.id in left and c.id in right] for corpus in (a, b)]
    if shared[0] != shared[1]:
        yield "the order of the cases differs"


def _short(value: Any) -> str:
    text = compact_json(value)
    return text if len(text) < 200 else f"{text[:160]}… (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"


def _changed_fields(a: Case, b: Case) -> Sequence[str]:
    first, second = a.to_json(), b.to_json()
    return [name for name in first if first[name] != second[name] and name != "sha256"]
