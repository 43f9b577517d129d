"""What a checkpoint's `generation_config.json` says for requests that do not: the fields that vLLM takes from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.config import TargetConfig, eos_token_ids, read_json
from runtime.errors import ModelError
from runtime.text.generation import Sampling

NAME = "generation_config.json"


@dataclass(frozen=True)
class Defaults:
    """`max_tokens` is a limit for every request, None where the checkpoint has none."""

    sampling: Sampling
    repetition_penalty: float
    max_tokens: int | None
    eos_ids: tuple[int, ...]

    @staticmethod
    def read(model_dir: Path) -> Defaults:
        """Raises ModelError, which names the field, for a value that no request could send."""
        raw = read_json(model_dir / NAME)
        eos_ids = eos_token_ids(model_dir, TargetConfig.from_hf(read_json(model_dir / "config.json")))
        if not eos_ids and raw.get("eos_token_id") != []:  # an empty list says that none is meant
            raise ModelError(
                f"neither {NAME} nor config.json has an eos_token_id, so that no answer would end by itself"
            )
        return Defaults(
            sampling=Sampling(
                temperature=_number(raw, "temperature", 1.0, 0.0, 2.0),
                top_k=max(0, int(_number(raw, "top_k", 0, -1, 2**31 - 1))),
                top_p=_number(raw, "top_p", 1.0, 0.0, 1.0),
                min_p=_number(raw, "min_p", 0.0, 0.0, 1.0),
            ),
            repetition_penalty=_number(raw, "repetition_penalty", 1.0, 1e-3, 1e3),
            max_tokens=int(_number(raw, "max_new_tokens", 0, 1, 2**31 - 1)) or None,
            eos_ids=eos_ids,
        )


def _number(raw: Mapping[str, Any], name: str, default: float, least: float, most: float) -> float:
    value = raw.get(name)
    if value is None:  # as in Hugging Face's files, where null is a field that is not set
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ModelError(f"{NAME}: {name} is {value!r}; it must be between {least:g} and {most:g}, or absent")
    return float(value)
