"""Which corpus a configuration means."""

from __future__ import annotations

from pathlib import Path

from campaigns.corpora.embedded import embedded
from campaigns.corpora.manifest import Corpus, read
from campaigns.errors import UsageError


def load(source: str, path: str = "") -> Corpus:
    """The corpus of a configuration: `embedded`, or `file` with the path of a corpus or manifest file."""
    if source == "embedded":
        return embedded()
    if source != "file":
        raise UsageError(f"corpus.source={source}: choose none, embedded or file")
    if not path:
        raise UsageError("corpus.source=file needs corpus.path: the file that `campaign corpus freeze` wrote")
    return read(Path(path))
