"""The bytes that a token stands for: a token may hold part of a character, which no string can say."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from llguidance import LLTokenizer


class Spelling:
    """One model's tokens as bytes, and llguidance's view of the vocabulary, which is made when it is first needed."""

    def __init__(self, model_dir: Path) -> None:
        self._path = model_dir / "tokenizer.json"

    @cached_property
    def tokenizer(self) -> LLTokenizer:
        return LLTokenizer(str(self._path))

    def bytes_of(self, token_id: int) -> bytes:
        """Empty for an id that the tokenizer does not have: a model may have more rows than tokens."""
        known = token_id < self.tokenizer.vocab_size
        return self.tokenizer.decode_bytes([token_id]) if known else b""
