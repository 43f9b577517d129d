"""Rounds of a 27B-shaped target and its drafter on one GPU, with random weights made on the device.

Answers one request after a long prompt and prints, per arm, the round's phases. It shows that the shape, the context
length and the cache fit and what a round costs; random weights say nothing about acceptance.

    python benchmarks/round_27b.py --arm "" --arm attention=grouped,gdn=tile-8 [--weights nvfp4] [--tokens 32]
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path
from statistics import median


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = Path(__file__).with_name("qwen3_8_27b.json")
    parser.add_argument("--shape", type=Path, default=shape, help="JSON of two configurations (default: %(default)s)")
    parser.add_argument("--arm", action="append", help="operator=schedule,…; may be repeated; empty for the defaults")
    parser.add_argument("--weights", choices=("dense", "nvfp4"), default="dense")
    parser.add_argument("--seed", type=int, default=1, help="of the weights")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--kv-cache-dtype", default="fp8_e4m3")
    parser.add_argument("--capacity", type=int, default=262144)
    parser.add_argument("--prompt", type=int, default=8192)
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()
    if not options.shape.is_file():
        parser.error(f"--shape {options.shape} is no file; give one like {shape}")
    return options


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch

from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine, EngineOptions, EngineShape
from runtime.engine.sequence import GenerateRequest, Prefill, RoundRecord
from runtime.models.random_model import Declaration
from runtime.models.weights import target_shapes
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
        keep_nvfp4=options.weights == "nvfp4",
    )
    shape = EngineShape.of(target, draft, chosen)
    shape.check_memory()
    declared = Declaration(options.seed, options.weights)
    made = declared.target(target, shape.device, shape.dtype, chosen.keep_nvfp4)
    return Engine.assemble(shape, made, declared.draft(draft, shape.device, shape.dtype), ())


def run(engine: Engine, arm: dict[str, str], options: argparse.Namespace) -> dict[str, object]:
    engine.routes.enable(arm)
    generator = torch.Generator().manual_seed(7)
    prompt = torch.randint(0, engine.decoder.target.config.vocab_size, (options.prompt,), generator=generator).tolist()
    sampling = SamplingParams(temperature=1.0, top_k=20, top_p=0.95, seed=1)
    events = list(engine.generate(GenerateRequest(prompt, sampling, max_tokens=options.tokens)))
    prefill = next(event for event in events if isinstance(event, Prefill))
    rounds = [event for event in events if isinstance(event, RoundRecord)]
    settled = rounds[len(rounds) // 4 :]
    return {
        "arm": arm,
        "prompt_tokens": options.prompt,
        "prefill_ms": prefill.prefill_ns / 1e6,
        "rounds": len(rounds),
        "accepted": sum(record.accepted for record in rounds),
        **{phase.replace("_ns", "_ms"): median(getattr(r, phase) for r in settled) / 1e6 for phase in PHASES},
        "routes": rounds[-1].routes,
        "refusals": engine.routes.refusals(),
        "tokens": [token for event in (prefill, *rounds) for token in event.token_ids][:16],
    }


def main(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    engine = build(options)
    parameters = sum(math.prod(shape) for shape in target_shapes(engine.decoder.target.config).values())
    print(f"{parameters / 1e9:.2f} B target parameters built in {time.perf_counter() - began:.1f} s", flush=True)
    print(f"page {engine.decoder.memory.cache.page_size}, chunk {engine.decoder.prefill_chunk}", flush=True)
    if engine.device.type == "cuda":
        print(f"{torch.cuda.memory_allocated() / 2**30:.1f} GiB allocated", flush=True)
    for text in options.arm or [""]:
        arm = dict(pair.split("=", 1) for pair in text.split(",") if pair)
        print(json.dumps(run(engine, arm, options)), flush=True)
    if engine.device.type == "cuda":
        print(f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most", flush=True)
    return 0


if OPTIONS is not None:
    sys.exit(main(OPTIONS))
