"""A request's grammar over token ids, as the engine asks for it: which tokens may follow, also behind drafts.

The grammar itself is llguidance's; this module walks it along the drafts and back. Where an answer begins with
reasoning, the grammar starts behind the token that closes it. Knows no schemas and no logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from torch import Tensor

from runtime.engine.sequence import TokenGate
from runtime.errors import RequestError
from runtime.text.generation import Generation
from runtime.workers.bans import AllowedTokens, BadWords, MinTokens, Texts, Together


class GrammarTokenizer:
    """llguidance's view of one checkpoint's vocabulary, made when it is first needed."""

    def __init__(self, model_dir: Path, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._path, self.vocab_size, self.eos_ids = model_dir / "tokenizer.json", vocab_size, tuple(eos_ids)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        return LLTokenizer(str(self._path), n_vocab=self.vocab_size, eos_token=list(self.eos_ids))

    @cached_property
    def texts(self) -> Texts:
        """What each token adds to the answer's text; special ones add none."""
        made = self._tokenizer
        return Texts([b"" if made.is_special_token(i) else made.decode_bytes([i]) for i in range(self.vocab_size)])

    def matcher(self, grammar: str) -> LLMatcher:
        return LLMatcher(self._tokenizer, grammar, log_level=0)


def gate_of(order: Generation, tokenizer: GrammarTokenizer) -> TokenGate | None:
    """Everything that `order` says of which tokens may come, None where any may."""
    gates: list[TokenGate] = []
    if order.grammar is not None:
        gates.append(GrammarGate(tokenizer, order.grammar, order.grammar_after))
    if order.allowed_token_ids is not None:
        gates.append(AllowedTokens(order.allowed_token_ids, tokenizer.vocab_size))
    if order.bad_words:
        gates.append(BadWords(order.bad_words, tokenizer.texts))
    if order.min_tokens:
        gates.append(MinTokens(order.min_tokens, order.eos_ids, tokenizer.vocab_size))
    return Together(gates) if len(gates) > 1 else gates[0] if gates else None


class GrammarGate:
    """The `TokenGate` of one request. `opens_after` is the token behind which the grammar begins; None: at once."""

    def __init__(self, tokenizer: GrammarTokenizer, grammar: str, opens_after: int | None) -> None:
        self._matcher = tokenizer.matcher(grammar)
        self._eos = torch.zeros(tokenizer.vocab_size, dtype=torch.bool)
        self._eos[list(tokenizer.eos_ids)] = True
        self._eos_ids = tokenizer.eos_ids
        self._opens_after = opens_after
        self._open = opens_after is None
        self._check()

    def allowed(self, drafts: Sequence[int]) -> Tensor:
        """Bool [len(drafts) + 1, V]; rows behind a draft that ends the answer or is not allowed stay all true."""
        rows = torch.ones(len(drafts) + 1, len(self._eos), dtype=torch.bool)
        was_open, consumed = self._open, 0
        for index in range(len(drafts) + 1):
            rows[index] = self._row()
            if index == len(drafts) or not rows[index, drafts[index]] or drafts[index] in self._eos_ids:
                break
            consumed += self._consume(drafts[index])
        self._open = was_open
        self._matcher.rollback(consumed)
        return rows

    def advance(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._consume(token)
        self._check()

    def _consume(self, token: int) -> int:
        """Move on by one token; 1 where the grammar took it."""
        if not self._open:
            self._open = token == self._opens_after
            return 0
        return int(self._matcher.consume_token(token))

    def _row(self) -> Tensor:
        if not self._open:
            return ~self._eos
        if self._matcher.is_stopped():
            return self._eos
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        row = np.unpackbits(bits, bitorder="little")[: len(self._eos)].astype(bool)
        return torch.from_numpy(row)

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n")[0]
            raise RequestError(f"the grammar cannot be followed: {reason}")
