"""A chunk of prompt attention at the 27B target's heads, by torch's paths and by the libraries that are installed.

    python benchmarks/prefill_attention.py [--context 131072 …] [--only cudnn,flashinfer-fa3] [--dtype bfloat16]

At each context the chunk is the last of a prompt of that length, at most `--chunk` rows. Every way is held against FP64
on three stretches of its rows before it is timed; one beyond the operator's bound has no figure. Ways take turns in a
drawn order, milliseconds are the median, and `first_s` is the first call: building, compiling, tuning. Prints a line of
JSON for each figure, then a table; a way that is not there or refuses is named with its own words.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, action="append", help="tokens up to the chunk's end; may be repeated")
    parser.add_argument("--chunk", type=int, default=13184, help="rows at most (default: %(default)s, the engine's)")
    parser.add_argument("--heads", type=int, nargs=2, default=(24, 4), metavar=("Q", "KV"))
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--only", default="", help="these ways, by commas (default: all)")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--patience-s", type=float, default=8.0, help="a call foretold to take longer is left out")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    options.context = options.context or [4096, 32768, 131072, 261888]
    return options


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from kernels.checking.compare import rel_l2
from kernels.prefill_attention import OP, problem_of

Call = Callable[[], Tensor]
CHECKED = 16  # rows of a stretch
BOUND = 4e-3  # of the operator's schedules


@dataclass(frozen=True)
class Chunk:
    """q [T, Hq, D] over k, v [L, Hkv, D]; row t sees keys 0 to L - T + t."""

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float

    @property
    def past(self) -> int:
        return len(self.k) - len(self.q)

    @property
    def flop(self) -> float:
        rows, heads, dim = self.q.shape
        return 4.0 * heads * dim * (rows * self.past + rows * (rows + 1) / 2)

    def wanted(self) -> dict[int, Tensor]:
        """FP64 of the first, the middle and the last rows, by their first row."""
        rows = len(self.q)
        found = {}
        for first in sorted({0, max(0, rows // 2 - CHECKED), max(0, rows - CHECKED)}):
            end = min(rows, first + CHECKED)
            keys = self.past + end
            found[first] = OP.reference(self.q[first:end], self.k[:keys], self.v[:keys], self.scale)
        return found


class Absent(Exception):
    """Why a way does not compute this chunk here."""


def scheduled(name: str) -> Callable[[Chunk], Call]:
    """A schedule of the product."""

    def way(chunk: Chunk) -> Call:
        schedule = OP.schedule(name)
        if refusal := schedule.refusal(problem_of(chunk.q, chunk.k)):
            raise Absent(refusal.reason)
        return lambda: schedule.run(chunk.q, chunk.k, chunk.v, chunk.scale)

    return way


def flex(chunk: Chunk) -> Call:
    """torch's flex_attention, compiled; its mask of blocks is made once, as it would be for a chunk's layers."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    past = torch.tensor(chunk.past, device=chunk.q.device)
    mask = create_block_mask(
        lambda b, h, row, key: key <= row + past, None, None, len(chunk.q), len(chunk.k), device=chunk.q.device
    )
    compiled = torch.compile(flex_attention)
    q, k, v = (x.transpose(0, 1)[None] for x in (chunk.q, chunk.k, chunk.v))
    return lambda: compiled(q, k, v, block_mask=mask, scale=chunk.scale, enable_gqa=True)[0].transpose(0, 1)


def flashinfer(backend: str) -> Callable[[Chunk], Call]:
    def way(chunk: Chunk) -> Call:
        from flashinfer import single_prefill_with_kv_cache as attend

        return lambda: attend(chunk.q, chunk.k, chunk.v, causal=True, sm_scale=chunk.scale, backend=backend)

    return way


def flash_attn_4(chunk: Chunk) -> Call:
    """The package flash-attn-4: CuTe's kernels, compiled on first use."""
    from flash_attn.cute import flash_attn_func

    return batched(flash_attn_func, chunk)


def fa3_fwd(chunk: Chunk) -> Call:
    """FlashAttention 3 as the package fa3-fwd has built it, without FP16."""
    from fa3_fwd_interface import flash_attn_func

    return batched(flash_attn_func, chunk)


def batched(attend: Callable[..., object], chunk: Chunk) -> Call:
    q, k, v = (x[None] for x in (chunk.q, chunk.k, chunk.v))

    def call() -> Tensor:
        found = attend(q, k, v, softmax_scale=chunk.scale, causal=True)
        return (found[0] if isinstance(found, tuple) else found)[0]

    return call


WAYS: dict[str, Callable[[Chunk], Call]] = {
    **{schedule.name: scheduled(schedule.name) for schedule in OP.schedules},
    "flex": flex,
    "flashinfer-fa2": flashinfer("fa2"),
    "flashinfer-fa3": flashinfer("fa3"),
    "flash-attn-4": flash_attn_4,
    "fa3-fwd": fa3_fwd,
}


@dataclass
class Seen:
    """What a way showed at one context."""

    first_s: float = 0.0
    apart: float = 0.0
    ms: list[float] = field(default_factory=list)
    said: str = ""

    def figure(self, flop: float) -> dict[str, object]:
        if self.said:
            return {"said": self.said}
        ms = median(self.ms)
        spread = [round(min(self.ms), 3), round(max(self.ms), 3)]
        rate = round(flop / ms / 1e9, 1)
        return {"ms": round(ms, 3), "ms_range": spread, "tflops": rate, "apart": self.apart, "first_s": self.first_s}


def timed(call: Call, device: str) -> tuple[float, Tensor]:
    """Milliseconds of one call on an idle device, launches included."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    out = call()
    wait()
    return (time.perf_counter() - began) * 1e3, out


def tried(way: Callable[[Chunk], Call], chunk: Chunk, wanted: dict[int, Tensor], device: str) -> tuple[Seen, Call]:
    """First call and check."""
    seen = Seen()
    try:
        call = way(chunk)
        took, out = timed(call, device)
        seen.first_s = round(took / 1e3, 2)
        seen.apart = round(max(rel_l2(out[row : row + len(want)], want) for row, want in wanted.items()), 6)
    except Exception as error:  # whatever a library or its compiler raises: it is told
        words = (str(error).strip().splitlines() or [""])[0][:200]
        seen.said = words if isinstance(error, Absent) else f"{type(error).__name__}: {words}"
        return seen, lambda: chunk.q
    if not seen.apart < BOUND:
        seen.said = f"{seen.apart:.2g} from FP64; the bound is {BOUND:g}"
    return seen, call


def at(context: int, options: argparse.Namespace, known_ms: dict[str, float]) -> dict[str, Seen]:
    """All ways at one context; `known_ms` per 10^12 operations, of contexts before."""
    draw = torch.Generator(options.device).manual_seed(context)
    kind, rows = getattr(torch, options.dtype), min(options.chunk, context)
    q_heads, kv_heads = options.heads

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, options.dim, device=options.device, generator=draw).to(kind)

    chunk = Chunk(normal(rows, q_heads), normal(context, kv_heads), normal(context, kv_heads), options.dim**-0.5)
    wanted, found, calls = chunk.wanted(), {}, {}
    for name in filter(None, options.only.split(",")) if options.only else WAYS:
        foretold_s = known_ms.get(name, 0.0) * chunk.flop / 1e15
        if foretold_s > options.patience_s:
            found[name] = Seen(said=f"not run: about {foretold_s:.0f} s a call")
            continue
        found[name], calls[name] = tried(WAYS[name], chunk, wanted, options.device)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    calls = {name: call for name, call in calls.items() if not found[name].said}
    order, rng = list(calls), random.Random(context)
    for turn in range(options.turns):
        rng.shuffle(order)
        for name in order:
            if turn and sum(found[name].ms) > 2_000:  # milliseconds: enough of a slow way
                continue
            found[name].ms.append(timed(calls[name], options.device)[0])
    for name, seen in found.items():
        if seen.ms:
            known_ms[name] = median(seen.ms) / chunk.flop * 1e12
        said = {"context": context, "rows": rows, "dtype": options.dtype, "way": name}
        print(json.dumps(said | seen.figure(chunk.flop)), flush=True)
    return found


def table(found: dict[int, dict[str, Seen]]) -> str:
    """Milliseconds of every way at every context, and what its first call took."""
    lines = ["| way | " + " | ".join(f"{context:,}" for context in found) + " | first call, s | apart at most |"]
    lines.append("|---|" + "---:|" * (len(found) + 2))
    for name in dict.fromkeys(name for ways in found.values() for name in ways):
        seen = [ways[name] for ways in found.values()]
        cells = [f"{median(s.ms):.2f}" if s.ms else "" for s in seen]
        first, apart = max(s.first_s for s in seen), max(s.apart for s in seen)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {first:.1f} | {apart:.1e} |")
    said: dict[str, list[str]] = {}
    for context, ways in found.items():
        for name, one in ways.items():
            if one.said:
                said.setdefault(f"{name}: {one.said}", []).append(f"{context:,}")
    return "\n".join([*lines, "", *(f"{words} (at {' and '.join(contexts)})" for words, contexts in said.items())])


def main(options: argparse.Namespace) -> int:
    known_ms: dict[str, float] = {}
    with torch.inference_mode():
        found = {context: at(context, options, known_ms) for context in options.context}
    print(f"\nmilliseconds of the last chunk, at most {options.chunk} rows, {options.dtype}\n")
    print(table(found), flush=True)
    return 0


if OPTIONS is not None:
    sys.exit(main(OPTIONS))
