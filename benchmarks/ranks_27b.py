"""Rounds of the 27B shape at NVFP4 on one rank and on several, which gather by NCCL or write into each other's memory.

    python benchmarks/ranks_27b.py [--size 2] [--prompt 1024 --prompt 261888] [--arm hopper-fused] [--turns 2]

Rank 0 answers alone first; then all ranks answer the same prompts, every arm with `publication=gathered` and with each
schedule that `--peers` names, in turns within one engine. Weights are declared random ones; caches and states are
filled with seeded values, each rank with its part of what the one rank has. One JSON line per run on rank 0: phases,
launches' schedules, refusals, and how many of the tokens are those of the other ranks, of `gathered`, and of one rank.
Ranks must agree, and what publishes otherwise must say what `gathered` says, or the exit code is 1. Against one rank
nothing is promised in 16 bits: sums over K are cut elsewhere. `--launches` adds, after everything was timed, which
launches of each captured piece add how much to it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from functools import partial
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

from side_by_side import one_process_a_rank


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = Path(__file__).with_name("qwen3_8_27b.json")
    parser.add_argument("--shape", type=Path, default=shape, help="JSON of two configurations (default: %(default)s)")
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--arm", action="append", help="files of conf/arm (default: hopper-fused); may be repeated")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--kv-cache-dtype", default="fp8_e4m3")
    parser.add_argument("--peers", action="append", help="schedules beside gathered (default: peers); may be repeated")
    parser.add_argument("--launches", action="store_true", help="what the launches of a round take, by CUPTI")
    parser.add_argument("--capacity", type=int, default=262144)
    parser.add_argument("--prompt", type=int, action="append", help="tokens before (default: 1024); may be repeated")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--turns", type=int, default=2, help="of every arm at every length")
    parser.add_argument("--timeout-s", type=float, default=300)
    parser.add_argument("--rank", type=int, help="set for the processes that this one starts")
    parser.add_argument("--meeting", help="likewise: a folder of the ranks' own")
    options = parser.parse_args()
    options.prompt, options.arm = options.prompt or [1024], options.arm or ["hopper-fused"]
    options.peers = options.peers or ["peers"]
    if not options.shape.is_file():
        parser.error(f"--shape {options.shape} is no file; give one like {shape}")
    return options


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch
import yaml
from round_27b import launches
from torch import Tensor

from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine
from runtime.engine.sequence import GenerateRequest, Generation, Prefill, RoundRecord
from runtime.engine.shape import EngineOptions
from runtime.memory.state import RequestState
from runtime.models.random_model import TOKENIZER, Declaration, write
from runtime.speculation.sampling import SamplingParams

ROOT = Path(__file__).resolve().parents[1]
STRIDE = 4096  # tokens drawn at once
PHASES = ("draft_ns", "verify_ns", "sample_ns", "commit_ns", "total_ns")


def schedules_of(arm: str, publication: str) -> dict[str, str]:
    path = ROOT / "conf" / "arm" / f"{arm}.yaml"
    schedules = dict(yaml.safe_load(path.read_text()).get("schedules") or {})
    return schedules | ({"publication": publication} if publication else {})


def load(options: argparse.Namespace, rank: int, size: int) -> Engine:
    folder = Path(f"{options.meeting}/model-{options.rank}")
    if not folder.is_dir():
        write(folder, json.loads(options.shape.read_text()), Declaration(1, "nvfp4"), TOKENIZER)
    chosen = EngineOptions(
        max_model_len=options.capacity,
        device=f"cuda:{rank}" if options.device == "cuda" else options.device,
        dtype=options.dtype,
        kv_cache_dtype=options.kv_cache_dtype,
        keep_quantised=True,
        rank=rank,
        world_size=size,
        rendezvous=f"{options.meeting}/ranks",
        rank_timeout_s=20,
    )
    return Engine.load(folder, chosen)


class Memories:
    """Stands in for a prefill: the same values each time, of which every rank has its heads and channels."""

    def __init__(self, engine: Engine, shape: dict[str, Any], rank: int, size: int) -> None:
        self.whole, self.draft = TargetConfig.from_hf(shape["target"]), DraftConfig.from_hf(shape["drafter"])
        self.decoder, self.rank, self.size = engine.decoder, rank, size
        engine.decoder.prefill = self.prefill

    def drawn(self, *shape: int, scale: float) -> Tensor:
        return torch.empty(shape, device=self.decoder.device).normal_(0, scale, generator=self.draw)

    def mine(self, value: Tensor, axis: int) -> Tensor:
        return value.chunk(self.size, axis)[self.rank]

    def prefill(self, generation: Generation, state: RequestState) -> Prefill:
        began = time.perf_counter_ns()
        self.draw = torch.Generator(self.decoder.device).manual_seed(11)
        memory, length = self.decoder.memory, len(generation.tokens)
        for pages in (*memory.cache.k.values(), *memory.cache.v.values()):
            heads, dim = pages.shape[2:]
            for some in pages.flatten(0, 1)[:length].split(STRIDE):  # pages of a rank are longer than those of one
                drawn = self.drawn(STRIDE, heads * self.size, dim, scale=1.0)[: len(some)]
                some.copy_(self.mine(drawn, 1).to(some.dtype))
        for layer in memory.pool.recurrent:
            one = memory.pool.recurrent[layer][state.slots[0]]
            one.copy_(self.mine(self.drawn(one.shape[0] * self.size, *one.shape[1:], scale=0.1), 0))
            line = memory.pool.conv[layer][state.line]
            drawn = self.drawn(line.shape[0] * self.size, line.shape[1], scale=1.0)
            kinds = drawn.split((self.whole.key_dim, self.whole.key_dim, self.whole.value_dim))
            line.copy_(torch.cat([self.mine(kind, 0) for kind in kinds]).to(line.dtype))
        self.decoder.draft_cache.reset()
        for rows in (*self.decoder.draft_cache.k, *self.decoder.draft_cache.v):
            heads = self.draft.num_key_value_heads
            drawn = self.drawn(rows.shape[0], heads, rows.shape[2], scale=1.0)
            rows.copy_((drawn if rows.shape[1] == heads else self.mine(drawn, 1)).to(rows.dtype))
        self.decoder.draft_cache._end(length)
        state.select(1)
        ended = time.perf_counter_ns()
        return Prefill(generation.emit([1]), length, ended - began, ended)


def run(engine: Engine, schedules: dict[str, str], length: int, num_tokens: int) -> dict[str, Any]:
    engine.routes.enable(schedules)
    before = {(row["operator"], row["schedule"], row["reason"]): row["calls"] for row in engine.routes.refusals()}
    prompt = torch.randint(0, 1000, (length,), generator=torch.Generator().manual_seed(7)).tolist()
    sampling = SamplingParams(temperature=1.0, top_k=20, top_p=0.95, seed=1)
    events = list(engine.generate(GenerateRequest(prompt, sampling, max_tokens=num_tokens, eos_ids=())))
    rounds = [event for event in events if isinstance(event, RoundRecord)]
    settled = rounds[len(rounds) // 4 :]
    refused = [
        f"{row['operator']}/{row['schedule']}: {row['reason']}"
        for row in engine.routes.refusals()
        if row["calls"] > before.get((row["operator"], row["schedule"], row["reason"]), 0)
    ]
    return {
        "prompt_tokens": length,
        "rounds": len(rounds),
        **{p.replace("_ns", "_ms"): round(median(getattr(r, p) for r in settled) / 1e6, 3) for p in PHASES},
        "refused": refused,
        "routes": {f"{op}/{schedule}": hits for op, schedule, hits in rounds[-1].routes},
        "tokens": [token for event in events for token in getattr(event, "token_ids", ())],
    }


def common(mine: list[int], others: list[int]) -> int:
    """How many tokens from the first one on are equal."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(mine, others, strict=False))))


def allocated(device: torch.device) -> float:
    return round(torch.cuda.max_memory_allocated(device) / 2**30, 2) if device.type == "cuda" else 0.0


def measured(options: argparse.Namespace, rank: int, size: int, alone: dict[Any, list[int]]) -> tuple[dict, bool]:
    """Tokens by (arm, length), and whether ranks agreed and every way to publish said what `gathered` says."""
    began = time.perf_counter()
    engine = load(options, rank, size)
    Memories(engine, json.loads(options.shape.read_text()), rank, size)
    say = partial(print, flush=True) if rank == 0 else lambda text: None
    say(json.dumps({"ranks": size, "built_s": round(time.perf_counter() - began, 1), "GiB": allocated(engine.device)}))
    ways = ("gathered", *options.peers) if size > 1 else ("",)
    said: dict[Any, list[int]] = {}
    fine = True
    for length in options.prompt:
        for arm in options.arm:
            for way in ways * options.turns:
                schedules = schedules_of(arm, way)
                found = run(engine, schedules, length, options.tokens)
                tokens = found.pop("tokens")
                first = said.setdefault((arm, length), tokens)
                checks = {"as_before": common(tokens, first)}
                fine &= tokens == first
                if engine.group is not None:
                    same = engine.group.same(tuple(tokens))
                    checks |= {"ranks_agree": same, "as_one_rank": common(tokens, alone.get((arm, length), []))}
                    fine &= same
                say(json.dumps({"ranks": size, "arm": arm, "publication": way, **found, **checks, "of": len(tokens)}))
    for arm in options.arm if options.launches else ():
        found = launches(engine.decoder.graphs, schedules_of(arm, ways[-1]))
        say(json.dumps({"ranks": size, "arm": arm, "publication": ways[-1], "launches": found}))
    say(json.dumps({"ranks": size, "most_GiB": allocated(engine.device), "s": round(time.perf_counter() - began, 1)}))
    return said, fine


def run_rank(options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    alone: dict[Any, list[int]] = {}
    if options.rank == 0:
        alone, _ = measured(options, 0, 1, {})
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    return int(not measured(options, options.rank, options.size, alone)[1])


if OPTIONS is not None:
    sys.exit(one_process_a_rank(OPTIONS, run_rank))
