"""Two ranks against one: the greedy tokens of both, and what a round costs each.

    python benchmarks/tensor_parallel.py [--cases nano:float32 27b:float32 27b:bfloat16 …] [--device cuda]

Rank 0 answers alone first; then both ranks answer the same prompt together. `nano` is the embedded checkpoint, `27b`
the shape of `qwen3_8_27b.json` with random dense weights made on the device, each rank cutting its share out of the
same draws. A case may end in `:graphs`, which captures the rounds as CUDA graphs, collectives included.

In FP32 (TF32 off) the tokens have to be equal, or the exit code is 1. In 16 bits two ranks round differently from one:
the partial products of a row-parallel projection are rounded before they are added. There the first token that differs
is printed with the gap between its logit and the best one, as the single rank sees them.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from side_by_side import one_process_a_rank

CASES = ("nano:float32", "27b:float32", "27b:bfloat16")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES)
    shape = Path(__file__).with_name("qwen3_8_27b.json")
    parser.add_argument("--shape", type=Path, default=shape, help="JSON of two configurations (default: %(default)s)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--timeout-s", type=float, default=300)
    parser.add_argument("--rank", type=int, help="set for the processes that this one starts")
    parser.add_argument("--meeting", help="likewise: the folder in which ranks find each other")
    options = parser.parse_args()
    if not options.shape.is_file():
        parser.error(f"--shape {options.shape} is no file; give one like {shape}")
    return options


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch

from runtime.audits.audit import forced
from runtime.config import DraftConfig, TargetConfig, read_json
from runtime.engine.engine import Engine
from runtime.engine.sequence import GenerateRequest, RoundRecord
from runtime.engine.shape import EngineOptions, EngineShape
from runtime.models.parallel import ShardedWeights, shard_config, shard_draft
from runtime.models.random_weights import random_weights
from runtime.models.shapes import draft_shapes, target_shapes
from runtime.speculation.sampling import SamplingParams

ROOT = Path(__file__).resolve().parents[1]
NANO = ROOT / "runtime/checkpoints/nano"
RUNNERS_UP = 8


@dataclass(frozen=True)
class Answer:
    """Greedy tokens, and medians over the rounds that are not warm-up; `best` are a row's best (id, logit)."""

    tokens: list[int]
    prefill_ms: float
    verify_ms: float
    round_ms: float
    rounds: int
    routes: Any
    best: list[list[tuple[int, float]]]


@dataclass(frozen=True)
class Case:
    model: str
    dtype: str
    graphs: bool

    @classmethod
    def of(cls, text: str) -> Case:
        model, dtype, *rest = text.split(":")
        return cls(model, dtype, rest == ["graphs"])


def build(case: Case, shape_file: Path, device: str, rank: int, size: int, rendezvous: str) -> Engine:
    options = EngineOptions(
        max_model_len=1024,
        device=f"cuda:{rank}" if device == "cuda" else device,
        dtype=case.dtype,
        cuda_graphs=case.graphs,
        rank=rank,
        world_size=size,
        rendezvous=rendezvous,
    )
    if case.model == "nano":
        return Engine.load(NANO, options)
    raw = read_json(shape_file)
    config, draft = TargetConfig.from_hf(raw["target"]), DraftConfig.from_hf(raw["drafter"])
    shape = EngineShape.of(shard_config(config, size), shard_draft(draft, size), options)
    shape.check_memory()
    weights: Any = random_weights(target_shapes(config), 1, shape.device, shape.dtype)
    if size > 1:
        weights = ShardedWeights(weights, config, rank, size)
    drafter: Any = random_weights(draft_shapes(draft), 2, shape.device, shape.dtype)
    if shape.draft != draft:
        drafter = ShardedWeights(drafter, draft, rank, size)
    return Engine.assemble(shape, weights, drafter, ())


def answer(engine: Engine, prompt: list[int], num_tokens: int) -> Answer:
    request = GenerateRequest(prompt, SamplingParams(temperature=0), max_tokens=num_tokens, eos_ids=())
    events = [event for event in engine.generate(request) if hasattr(event, "token_ids")]
    prefill, *rounds = events
    settled = [record for record in rounds if isinstance(record, RoundRecord)][len(rounds) // 4 :]
    return Answer(
        tokens=[token for event in events for token in event.token_ids],
        prefill_ms=prefill.prefill_ns / 1e6,
        verify_ms=median(record.verify_ns for record in settled) / 1e6,
        round_ms=median(record.total_ns for record in settled) / 1e6,
        rounds=len(rounds),
        routes=settled[-1].routes,
        best=[],
    )


def best(engine: Engine, prompt: list[int], tokens: list[int]) -> list[list[tuple[int, float]]]:
    """Of the row behind each known token the largest logits."""
    values, ids = forced(engine, prompt, tokens[:-1]).topk(RUNNERS_UP)
    return [list(zip(row, scores, strict=True)) for row, scores in zip(ids.tolist(), values.tolist(), strict=True)]


def run_rank(options: argparse.Namespace) -> int:
    """This rank's part of every case; rank 0 prints the results as JSON lines and returns 1 where FP32 differs."""
    torch.set_num_threads(1)
    alone = {text: _answered(text, options, 0, 1) for text in options.cases} if options.rank == 0 else {}
    code = 0
    for text in options.cases:
        together = _answered(text, options, options.rank, options.size)
        if options.rank == 0:
            line = compared(text, alone[text], together)
            print(json.dumps({**line, "ranks": options.size}), flush=True)
            code |= int(line["first_difference"] is not None and Case.of(text).dtype == "float32")
    return code


def _answered(text: str, options: argparse.Namespace, rank: int, size: int) -> Answer:
    began, case = time.perf_counter(), Case.of(text)
    meeting = f"{options.meeting}/{text.replace(':', '-')}"
    engine = build(case, options.shape, options.device, rank, size, meeting)
    vocab_size = engine.decoder.target.config.vocab_size
    prompt = torch.randint(0, vocab_size, (options.prompt,), generator=torch.Generator().manual_seed(7)).tolist()
    built = time.perf_counter()
    found = answer(engine, prompt, options.tokens)
    if size == 1:
        found = Answer(**{**asdict(found), "best": best(engine, prompt, found.tokens)})
    print(f"{text} rank {rank} of {size}: built in {built - began:.1f} s, answered in "
          f"{time.perf_counter() - built:.1f} s", file=sys.stderr, flush=True)  # fmt: skip
    group = engine.group
    del engine
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    if group is not None:
        group.close()
    return found


def compared(text: str, alone: Answer, together: Answer) -> dict[str, Any]:
    first = next(
        (i for i, pair in enumerate(zip(alone.tokens, together.tokens, strict=True)) if pair[0] != pair[1]), None
    )
    line: dict[str, Any] = {"case": text, "tokens": len(alone.tokens), "first_difference": first}
    gaps = [row[0][1] - row[1][1] for row in alone.best]
    line |= {"median_gap": median(gaps), "smallest_gap": min(gaps)}
    if first is not None:
        scores = dict(alone.best[first])
        rival = scores.get(together.tokens[first])
        line["gap_at_difference"] = None if rival is None else scores[alone.tokens[first]] - rival
    for name, found in (("one", alone), ("all", together)):
        line[name] = {key: value for key, value in asdict(found).items() if key not in ("tokens", "best")}
    return line


if OPTIONS is not None:
    sys.exit(one_process_a_rank(OPTIONS, run_rank))
