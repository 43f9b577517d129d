"""Checkpoints whose weights are declared instead of stored, to measure shapes that no disk here holds.

    python -m runtime.models.random_model FOLDER --shape benchmarks/qwen3_8_27b.json --format nvfp4 --seed 1

writes configurations, a tokenizer and `random_weights.json`, some hundred kilobytes. An engine that loads the folder
makes the weights on its device from names, shapes and the seed: the same values at every start on the same kind of
device, which `fingerprint` shows. Such a model predicts nothing and knows no end-of-sequence token; a drafter for it is
never right but by chance, unless `--accepted N` builds both so that it is (`runtime.models.agreement`). It shows what a
shape costs.
"""

import argparse
import hashlib
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels.projection import fp8
from kernels.projection.nvfp4 import GROUP, Nvfp4Weight
from runtime.config import DraftConfig, TargetConfig, read_json
from runtime.errors import ModelError
from runtime.identity import TOKENIZER_FILES
from runtime.models.agreement import RATES, Cycle, agreeing_draft, agreeing_target
from runtime.models.layers import Weight
from runtime.models.quant import quantisable, readable
from runtime.models.random_weights import RandomWeights, random_weights
from runtime.models.shapes import draft_shapes, target_shapes

DECLARATION = "random_weights.json"
FORMATS = ("dense", "nvfp4", "nvfp4-both", "nvfp4-all", "fp8")
TOKENIZER = Path(__file__).resolve().parents[1] / "checkpoints" / "nano"
# Root mean square of a uniformly random E2M1 code.
CODE_RMS = (68.5 / 8) ** 0.5
# Words per step of a checksum: what its temporaries may cost.
STRIDE = 1 << 24


@dataclass(frozen=True)
class Declaration:
    """`format` is how linears come: `dense`; the target's in `nvfp4`, with one global scale per input width; those
    of target and drafter, `nvfp4-both`; or the head's too, `nvfp4-all`; the target's in `fp8`. `accepted`: so many
    drafts a round are right by construction (`runtime.models.agreement`), which needs a head of its own in 16 bits;
    None leaves that to chance."""

    seed: int
    format: str
    accepted: int | None = None

    def __post_init__(self) -> None:
        if self.accepted is not None and self.format == "nvfp4-all":
            raise ModelError("a drafter that is right by construction needs a 16-bit head: take the format nvfp4-both")

    @classmethod
    def of(cls, folder: Path) -> "Declaration | None":
        """What `folder` declares; None where it holds its weights."""
        path = folder / DECLARATION
        if not path.is_file():
            return None
        raw = read_json(path)
        seed, form, accepted = raw.get("seed"), raw.get("format"), raw.get("accepted")
        known = raw.keys() <= {"seed", "format", "accepted"} and accepted in (None, *RATES)
        if not isinstance(seed, int) or form not in FORMATS or not known:
            raise ModelError(
                f"{path} must hold an integer seed and a format, {' or '.join(FORMATS)}, and may hold accepted, "
                f"{RATES[0]} to {RATES[-1]}; it holds {raw}"
            )
        return cls(seed, form, accepted)

    def said(self) -> dict[str, Any]:
        """Without what it leaves to chance."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def target(
        self, config: TargetConfig, draft: DraftConfig | None, device: torch.device, dtype: torch.dtype, keep: bool
    ) -> "Made":
        """The target's weights; quantised linears stay codes with `keep`, else they come as their values."""
        dense = random_weights(target_shapes(config), self.seed, device, dtype)
        chosen = {"dense": _none, "nvfp4-all": readable}.get(self.format, quantisable)
        made = _made(dense, chosen, "fp8" if self.format == "fp8" else "nvfp4", keep)
        if self.accepted is None or draft is None:
            return Made(made)
        return Made(agreeing_target(made, dense, config, draft.mask_token_id, self.cycle(config)))

    def cycle(self, config: TargetConfig | DraftConfig) -> Cycle:
        assert self.accepted is not None
        return Cycle(self.accepted, config.vocab_size, config.hidden_size)

    def draft(self, config: DraftConfig, device: torch.device, dtype: torch.dtype, keep: bool) -> "Made":
        """The drafter's, likewise."""
        dense = random_weights(draft_shapes(config), self.seed + 1, device, dtype)
        made = _made(dense, quantisable if self.format in ("nvfp4-both", "nvfp4-all") else _none, "nvfp4", keep)
        return Made(made if self.accepted is None else agreeing_draft(made, dense, config, self.cycle(config)))


def _none(name: str) -> bool:
    return False


def _made(dense: RandomWeights, chosen: Callable[[str], bool], form: str, keep: bool) -> Mapping[str, Weight]:
    codes = RandomCodes(dense, dict.fromkeys(filter(chosen, dense), form))
    if not codes.kept:
        return dense
    return codes if keep else Dequantised(codes, dense.dtype)


class RandomCodes(Mapping[str, Weight]):
    """Random 4-bit matrices under `kept`, scaled as dense ones are, or FP8 ones, which are dense ones rounded; other
    tensors as `dense` makes them."""

    def __init__(self, dense: RandomWeights, kept: Mapping[str, str]) -> None:
        self.shapes, self.dense, self.seed, self.device = dense.shapes, dense, dense.seed, dense.device
        self.kept = kept

    def __getitem__(self, name: str) -> Weight:
        form = self.kept.get(name)
        if form is None:
            return self.dense[name]
        return fp8.quantise(self.dense[name]) if form == "fp8" else self._four_bits(name)

    def _four_bits(self, name: str) -> Nvfp4Weight:
        n, k = self.shapes[name]
        if k % GROUP:
            raise ModelError(f"{name} has {k} inputs; 4-bit weights need a multiple of {GROUP}")
        generator = torch.Generator(self.device).manual_seed(self.seed * 1_000_003 + self.dense.order[name])
        packed = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=self.device, generator=generator)
        scales = torch.ones(n, k // GROUP, device=self.device).to(torch.float8_e4m3fn)
        return Nvfp4Weight(packed, scales, CODE_RMS * math.sqrt(k), n)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


class Dequantised(Mapping[str, Tensor]):
    """The values of quantised weights in `dtype`."""

    def __init__(self, codes: RandomCodes, dtype: torch.dtype) -> None:
        self.codes, self.dtype = codes, dtype

    def __getitem__(self, name: str) -> Tensor:
        weight = self.codes[name]
        return weight if isinstance(weight, Tensor) else weight.dequantised().to(self.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.codes)

    def __len__(self) -> int:
        return len(self.codes)


class Made(Mapping[str, Weight]):
    """Weights as they are made, each with its checksum, which stays on the device until `fingerprint` asks."""

    def __init__(self, weights: Mapping[str, Weight]) -> None:
        self.weights = weights
        self.kept: Mapping[str, str] = getattr(weights, "kept", {})
        self._sums: dict[str, tuple[str, Tensor]] = {}

    def __getitem__(self, name: str) -> Weight:
        weight = self.weights[name]
        parts = (weight,) if isinstance(weight, Tensor) else weight.parts
        described = " ".join(f"{part.dtype} {tuple(part.shape)}" for part in parts)
        self._sums[name] = (described, torch.stack([checksum(part) for part in parts]))
        return weight

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def lines(self) -> Iterator[str]:
        """Name, layout and checksum of every weight that was made."""
        for name in sorted(self._sums):
            described, sums = self._sums[name]
            yield f"{name} {described} {sums.tolist()}\n"


def fingerprint(*made: Made) -> str:
    """SHA-256 over the checksums of everything made. It tells starts apart; it is no proof against a forger."""
    digest = hashlib.sha256()
    for weights in made:
        digest.update("".join(weights.lines()).encode())
    return digest.hexdigest()


def checksum(tensor: Tensor) -> Tensor:
    """Two sums modulo 2^64 of a tensor's bytes as words, each word weighted by its place: int64 [2], on its device.

    Integer sums do not depend on the order of additions, so every run gives the same ones.
    """
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    words = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).view(torch.int64)
    total = torch.zeros(2, dtype=torch.int64, device=tensor.device)
    for first in range(0, len(words), STRIDE):
        part = words[first : first + STRIDE]
        place = torch.arange(first, first + len(part), device=tensor.device) * 2 + 1
        mixed = (part ^ (part >> 29)) * 0x2545F4914F6CDD1D
        total += torch.stack(((part * place).sum(), ((mixed ^ (mixed >> 32)) * place).sum()))
    return total


def write(folder: Path, shape: Mapping[str, Any], declaration: Declaration, tokenizer: Path) -> None:
    """A folder that a server takes as a model. The configurations are checked before anything is written."""
    config = TargetConfig.from_hf(shape["target"])
    DraftConfig.from_hf(shape["drafter"])
    (folder / "drafter").mkdir(parents=True, exist_ok=True)
    text = {k: v for k, v in shape["target"].get("text_config", {}).items() if k != "eos_token_id"}
    target = {k: v for k, v in shape["target"].items() if k != "eos_token_id"} | ({"text_config": text} if text else {})
    _write(folder / "config.json", target)
    _write(folder / "drafter" / "config.json", shape["drafter"])
    ends = [] if declaration.accepted is None else [declaration.cycle(config).end]
    _write(folder / "generation_config.json", {"eos_token_id": ends})
    _write(folder / DECLARATION, declaration.said())
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main(words: list[str] | None = None) -> int:
    options = _parse(words)
    try:
        shape = read_json(options.shape, "--shape wants a file like benchmarks/qwen3_8_27b.json")
        if not {"target", "drafter"} <= shape.keys():
            raise ModelError(f"--shape {options.shape} must hold two configurations, target and drafter")
        if not (options.tokenizer / "tokenizer.json").is_file():
            raise ModelError(f"--tokenizer {options.tokenizer} has no tokenizer.json; name a checkpoint's folder")
        declaration = Declaration(options.seed, options.format, options.accepted)
        write(options.folder, shape, declaration, options.tokenizer)
    except ModelError as error:
        print(f"random_model: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"random_model: {options.folder} cannot be written ({error.strerror})", file=sys.stderr)
        return 1
    return 0


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m runtime.models.random_model", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", type=Path, help="where to write; a model folder for the server")
    parser.add_argument("--shape", type=Path, required=True, help='JSON of {"target": config, "drafter": config}')
    of = "of linears: dense; the target's in 4 bits, or both models'; or all of them with the head; the target's in FP8"
    parser.add_argument("--format", choices=FORMATS, default="nvfp4", help=of)
    parser.add_argument("--seed", type=int, default=1)
    rate = "drafts of a round that are right by construction (synthetic); default: by chance"
    parser.add_argument("--accepted", type=int, choices=RATES, help=rate)
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER, help="folder whose tokenizer files are copied")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
