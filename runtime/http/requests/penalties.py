"""Penalties and biases of tokens as requests ask for them: `presence_penalty`, `logit_bias` and their like."""

from __future__ import annotations

from runtime.http.errors import bad
from runtime.http.requests import fields
from runtime.text.generation import Penalties

_MOST = 2.0  # OpenAI's and vLLM's range of the two that are subtracted
_MOST_REPETITION = 100.0
_MOST_BIAS = 100.0


def read_penalties(body: fields.Body, usual_repetition: float, num_ids: int) -> Penalties:
    """`usual_repetition` is the checkpoint's, for requests that name none."""
    repetition = fields.number(body, "repetition_penalty", 0.0, _MOST_REPETITION)
    if repetition == 0.0:
        raise bad("repetition_penalty must be above 0; 1 asks for nothing", "repetition_penalty")
    return Penalties(
        presence=fields.number(body, "presence_penalty", -_MOST, _MOST) or 0.0,
        frequency=fields.number(body, "frequency_penalty", -_MOST, _MOST) or 0.0,
        repetition=usual_repetition if repetition is None else repetition,
        bias=_bias(body, num_ids),
    )


def _bias(body: fields.Body, num_ids: int) -> tuple[tuple[int, float], ...]:
    """In the order of ids, without those that add nothing."""
    asked = fields.mapping(body, "logit_bias") or {}
    found = {}
    for name in asked:
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < num_ids):
            raise bad(f"logit_bias must name token ids from 0 to {num_ids - 1}, not {name[:60]!r}", "logit_bias")
        found[int(name)] = fields.number({"logit_bias": asked[name]}, "logit_bias", -_MOST_BIAS, _MOST_BIAS) or 0.0
    return tuple((token, bias) for token, bias in sorted(found.items()) if bias)
