"""Text to token ids and back, from a Hugging Face `tokenizer.json`, and the chat template beside it.

No torch and no transformers: the API process stays light. Knows nothing of HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.sandbox
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class TemplateError(Exception):
    """The chat template refused the messages; the text says why."""


class TextTokenizer:
    """One model's tokenizer. `num_ids` counts ids, added tokens included."""

    def __init__(self, model_dir: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.num_ids = self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Other threads run meanwhile: a batch, of one text too, does not hold the interpreter's lock."""
        (encoded,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def id_of(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)  # type: ignore[no-any-return]

    def token_of(self, token_id: int) -> str | None:
        return self._tokenizer.id_to_token(token_id)  # type: ignore[no-any-return]

    def stream(self, skip_special_tokens: bool = True) -> Detokenizer:
        return Detokenizer(self._tokenizer, skip_special_tokens)


class Detokenizer:
    """Ids to text piece by piece; a piece ends only where its characters are complete."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._stream = DecodeStream(skip_special_tokens=skip_special_tokens)
        self._ids: list[int] = []
        self._emitted = 0

    def push(self, ids: Iterable[int]) -> str:
        pieces = []
        for token_id in ids:
            self._ids.append(token_id)
            pieces.append(self._stream.step(self._tokenizer, token_id) or "")
        text = "".join(pieces)
        self._emitted += len(text)
        return text

    def flush(self) -> str:
        """What is left at the end: an unfinished character becomes U+FFFD."""
        rest: str = self._tokenizer.decode(self._ids, skip_special_tokens=self._skip)[self._emitted :]
        self._emitted += len(rest)
        return rest


class ChatTemplate:
    """The model's Jinja chat template, rendered in a sandbox as transformers does."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_template_error
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._template = environment.from_string(source)
        self._names = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
        self._special_tokens = dict(special_tokens)

    @staticmethod
    def of_folder(model_dir: Path) -> ChatTemplate | None:
        """`chat_template.jinja`, else the entry in `tokenizer_config.json`; None where the model has none."""
        config = json.loads((model_dir / "tokenizer_config.json").read_text(encoding="utf-8"))
        separate = model_dir / "chat_template.jinja"
        source = separate.read_text(encoding="utf-8") if separate.is_file() else config.get("chat_template")
        if not isinstance(source, str):
            return None
        return ChatTemplate(source, {name: _content(config.get(name)) for name in ("bos_token", "eos_token")})

    def knows(self, name: str) -> bool:
        """Whether the template reads a variable of this name."""
        return name in self._names

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        /,
        **settings: Any,
    ) -> str:
        """Text of the conversation. `settings` are the template's own knobs, such as `enable_thinking`."""
        values = {**self._special_tokens, **settings}
        values |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render(values)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise TemplateError(f"the chat template refused the messages: {error}") from error


def _content(token: Any) -> str:
    if isinstance(token, Mapping):
        return str(token.get("content", ""))
    return token or ""


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_template_error(message: str) -> None:
    raise jinja2.TemplateError(message)
