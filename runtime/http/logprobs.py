"""Log-probabilities of an answer's tokens as OpenAI spells them: a list of entries in chats, columns in completions."""

from __future__ import annotations

from typing import Any

from runtime.text.generation import Step, TokenLogprobs
from runtime.text.spelling import Spelling


class TokenSpeller:
    """How a token is written in a report of log-probabilities: its text, or `token_id:N` where `as_ids`."""

    def __init__(self, spelling: Spelling, as_ids: bool) -> None:
        self._spelling, self._as_ids = spelling, as_ids

    def token(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_ids else self.raw(token_id).decode(errors="replace")

    def raw(self, token_id: int) -> bytes:
        return self._spelling.bytes_of(token_id)


def chat_entries(step: Step, speller: TokenSpeller) -> list[dict[str, Any]]:
    return [
        {**_entry(token_id, found.logprob, speller), "top_logprobs": [_entry(*pair, speller) for pair in found.top]}
        for token_id, found in zip(step.token_ids, step.logprobs, strict=True)
    ]


class Columns:
    """Completions' columns of the steps so far; offsets count characters of the answer, as its tokens are written."""

    def __init__(self, speller: TokenSpeller) -> None:
        self._speller, self._offset = speller, 0

    def of(self, step: Step) -> dict[str, list[Any]]:
        tokens = [self._speller.token(token_id) for token_id in step.token_ids]
        offsets = []
        for token_id in step.token_ids:
            offsets.append(self._offset)
            self._offset += len(self._speller.raw(token_id).decode(errors="replace"))
        return {
            "text_offset": offsets,
            "token_logprobs": [found.logprob for found in step.logprobs],
            "tokens": tokens,
            "top_logprobs": [self._top(pair) for pair in zip(step.token_ids, step.logprobs, strict=True)],
        }

    def _top(self, pair: tuple[int, TokenLogprobs]) -> dict[str, float]:
        """The best ones, and the token itself wherever it stands."""
        token_id, found = pair
        ranked = dict((*found.top, (token_id, found.logprob)))
        return {self._speller.token(one): logprob for one, logprob in ranked.items()}


def joined(columns: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    names = ("text_offset", "token_logprobs", "tokens", "top_logprobs")
    return {name: [item for part in columns for item in part[name]] for name in names}


def _entry(token_id: int, logprob: float, speller: TokenSpeller) -> dict[str, Any]:
    return {"token": speller.token(token_id), "logprob": logprob, "bytes": list(speller.raw(token_id))}
