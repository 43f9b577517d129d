"""Rounds of a 27B-shaped target and its drafter on one GPU, with random weights made on the device.

Answers one request after a long prompt and prints, per arm, the round's phases. It shows that the shape, the context
length and the cache fit and what a round costs; random weights say nothing about acceptance. Arms take turns within a
prompt length; `same_tokens` says whether an arm answered as the first one did.

    python benchmarks/round_27b.py --arm hopper-tuned --arm hopper-fused --weights nvfp4 --synthetic --launches \
        --prompt 1024 --prompt 32768 --prompt 261000 [--tokens 32] [--turns 2]

`--synthetic` fills caches and states with seeded random values instead of computing the prompt, which takes minutes.
`--launches` counts what each captured graph launches, through CUPTI, after everything was timed.
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = Path(__file__).with_name("qwen3_8_27b.json")
    parser.add_argument("--shape", type=Path, default=shape, help="JSON of two configurations (default: %(default)s)")
    parser.add_argument("--arm", action="append", help="operator=schedule,… or a file of conf/arm; may be repeated")
    parser.add_argument("--weights", choices=("dense", "nvfp4", "nvfp4-both", "nvfp4-all", "fp8"), default="dense")
    parser.add_argument("--seed", type=int, default=1, help="of the weights")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--kv-cache-dtype", default="fp8_e4m3")
    parser.add_argument("--capacity", type=int, default=262144)
    parser.add_argument("--prompt", type=int, action="append", help="tokens before (default: 8192); may be repeated")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--turns", type=int, default=1, help="of every arm at every length")
    parser.add_argument("--synthetic", action="store_true", help="random caches and states instead of a prefill")
    parser.add_argument("--launches", action="store_true", help="count the launches of a round")
    options = parser.parse_args()
    options.prompt = options.prompt or [8192]
    if not options.shape.is_file():
        parser.error(f"--shape {options.shape} is no file; give one like {shape}")
    return options


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch
import yaml
from torch.profiler import ProfilerActivity, profile

from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine
from runtime.engine.graphs import Graphs
from runtime.engine.round import Decoder
from runtime.engine.sequence import GenerateRequest, Generation, Prefill, RoundRecord
from runtime.engine.shape import EngineOptions, EngineShape
from runtime.memory.state import RequestState
from runtime.models.random_model import Declaration
from runtime.models.shapes import target_shapes
from runtime.speculation.sampling import SamplingParams

PHASES = ("draft_ns", "verify_ns", "sample_ns", "commit_ns", "total_ns")


def build(options: argparse.Namespace) -> Engine:
    raw = json.loads(options.shape.read_text())
    target, draft = TargetConfig.from_hf(raw["target"]), DraftConfig.from_hf(raw["drafter"])
    chosen = EngineOptions(
        max_model_len=options.capacity,
        device=options.device,
        dtype=options.dtype,
        kv_cache_dtype=options.kv_cache_dtype,
        keep_quantised=options.weights != "dense",
    )
    shape = EngineShape.of(target, draft, chosen)
    declared = Declaration(options.seed, options.weights)
    made = declared.target(target, draft, shape.device, shape.dtype, chosen.keep_quantised)
    drafter = declared.draft(draft, shape.device, shape.dtype, chosen.keep_quantised)
    shape = replace(shape, kept=made.kept, draft_kept=drafter.kept)
    shape.check_memory()
    return Engine.assemble(shape, made, drafter, ())


def arm_of(text: str) -> dict[str, str]:
    """`operator=schedule,…`, or what conf/arm/TEXT.yaml names."""
    path = Path(__file__).parents[1] / "conf" / "arm" / f"{text}.yaml"
    if "=" not in text and path.is_file():
        return dict(yaml.safe_load(path.read_text()).get("schedules") or {})
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)


def remember(decoder: Decoder, generation: Generation, state: RequestState) -> Prefill:
    """Stands in for a prefill: the same random caches and states each time, and one first token."""
    began, draw = time.perf_counter_ns(), torch.Generator(decoder.device).manual_seed(11)

    def fill(tensor: torch.Tensor, scale: float) -> None:
        for part in tensor if tensor.ndim > 3 else (tensor,):
            values = torch.empty(part.shape, device=part.device).normal_(0, scale, generator=draw)
            part.copy_(values.to(part.dtype))

    cache, pool = decoder.memory.cache, decoder.memory.pool
    used = -(-len(generation.tokens) // cache.page_size)
    for pages in (*cache.k.values(), *cache.v.values()):
        fill(pages[:used], 1.0)
    for layer in pool.recurrent:
        fill(pool.recurrent[layer][state.slots[0]], 0.1)
        fill(pool.conv[layer][state.line], 1.0)
    decoder.draft_cache.reset()
    for rows in (*decoder.draft_cache.k, *decoder.draft_cache.v):
        fill(rows, 1.0)
    decoder.draft_cache._end(len(generation.tokens))
    state.select(1)
    ended = time.perf_counter_ns()
    return Prefill(generation.emit([1]), len(generation.tokens), ended - began, ended)


def launches(graphs: Graphs, arm: dict[str, str]) -> dict[str, object]:
    """Per captured piece of an arm: launches of one replay, the time they span, and those that add most to it.

    It is the second of two: the first brings ranks together that wait for one another.
    """
    found = {}
    for key, captured in graphs._captured.items():
        if key[-1] != frozenset(arm.items()):
            continue
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
            captured.graph.replay()
            captured.graph.replay()
            torch.cuda.synchronize()
        events = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        events.sort(key=lambda event: event.time_range.end)
        events = events[len(events) // 2 :]
        added, counts, ended = Counter(), Counter(), events[0].time_range.start
        for event in events:  # overlapping launches: each is charged what it adds to the end
            name = event.name.removeprefix("void ").removeprefix("at::native::")[:110]
            added[name] += event.time_range.end - ended
            counts[name] += 1
            ended = event.time_range.end
        most = {name: (counts[name], round(us, 1)) for name, us in added.most_common(24)}
        piece = f"{key[0][0]} {tuple(tuple(shape) for shape in key[1])}"
        found[piece] = {"launches": len(events), "span_us": round(sum(added.values()), 1), "most": most}
    return found


def run(engine: Engine, arm: dict[str, str], length: int, options: argparse.Namespace) -> dict[str, object]:
    engine.routes.enable(arm)
    generator = torch.Generator().manual_seed(7)
    prompt = torch.randint(0, engine.decoder.target.config.vocab_size, (length,), generator=generator).tolist()
    sampling = SamplingParams(temperature=1.0, top_k=20, top_p=0.95, seed=1)
    events = list(engine.generate(GenerateRequest(prompt, sampling, max_tokens=options.tokens)))
    prefill = next(event for event in events if isinstance(event, Prefill))
    rounds = [event for event in events if isinstance(event, RoundRecord)]
    settled = rounds[len(rounds) // 4 :]
    span_ns = settled[-1].ended_ns - settled[0].ended_ns
    return {
        "arm": arm,
        "prompt_tokens": length,
        "prefill_ms": prefill.prefill_ns / 1e6,
        "rounds": len(rounds),
        "accepted": sum(record.accepted for record in rounds),
        "average_ms": span_ns / 1e6 / max(1, len(settled) - 1),  # from end to end, what lies between rounds included
        **{phase.replace("_ns", "_ms"): median(getattr(r, phase) for r in settled) / 1e6 for phase in PHASES},
        "routes": rounds[-1].routes,
        "refusals": engine.routes.refusals(),
        "tokens": [token for event in (prefill, *rounds) for token in event.token_ids],
    }


def main(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    engine = build(options)
    parameters = sum(math.prod(shape) for shape in target_shapes(engine.decoder.target.config).values())
    print(f"{parameters / 1e9:.2f} B target parameters built in {time.perf_counter() - began:.1f} s", flush=True)
    print(f"page {engine.decoder.memory.cache.page_size}, chunk {engine.decoder.prefill_chunk}", flush=True)
    if engine.device.type == "cuda":
        print(f"{torch.cuda.memory_allocated() / 2**30:.1f} GiB allocated", flush=True)
    if options.synthetic:
        engine.decoder.prefill = partial(remember, engine.decoder)
    arms = {text: arm_of(text) for text in options.arm or [""]}
    for length in options.prompt:
        first = None
        for text in [*arms] * options.turns:
            found = run(engine, arms[text], length, options)
            first = first or found["tokens"]
            same = found["tokens"] == first
            shown = {"arm": text, "same_tokens": same, **{k: v for k, v in found.items() if k not in ("arm", "tokens")}}
            print(json.dumps(shown | {"tokens": found["tokens"][:16]}), flush=True)
    for text, arm in arms.items() if options.launches else ():
        print(json.dumps({"arm": text, "launches": launches(engine.decoder.graphs, arm)}), flush=True)
    if engine.device.type == "cuda":
        print(f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most", flush=True)
    return 0


if OPTIONS is not None:
    sys.exit(main(OPTIONS))
