"""The embedded corpus: 148 own problems of the public mix, so that everything works with nothing downloaded.

The files in builtin/ have the published datasets' formats and go through the same readers. Datasets are named
`builtin-…`: a score on them is no score on the public sets.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from campaigns.corpora.freezing import Recipe, freeze
from campaigns.corpora.manifest import Corpus
from campaigns.corpora.selection import Selecting, Selection

FOLDER = Path(__file__).parent / "builtin"
PREFIX = "builtin-"


@cache
def embedded() -> Corpus:
    paths = {path.stem: (path,) for path in sorted(FOLDER.glob("*.jsonl"))}
    return freeze(Recipe(paths, selection=Selection(Selecting.SEQUENTIAL), prefix=PREFIX))
