"""Prompts of a 27B-shaped target on one GPU: what a prefill costs, by library and by the torch paths they replace.

    python benchmarks/prefill_27b.py --arm hopper-fused --length 8192 --each [--length 32768] [--profile]

A line of JSON for each way: milliseconds of its runs, the schedules that ran, and how far its logits and its states are
from those of torch's paths on the same prompt (`--each` runs those, and each library turned off alone). The last run
counts: the first one builds, compiles and tunes. Weights are declared in 4 bits, K/V is E4M3.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

TORCH = {
    "prefill_attention": "masked",
    "prefill_gdn": "chunked",
    "prefill_projection": "dense",
    "prefill_gated": "separate",
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = Path(__file__).with_name("qwen3_8_27b.json")
    parser.add_argument("--shape", type=Path, default=shape, help="JSON of two configurations (default: %(default)s)")
    parser.add_argument("--arm", default="", help="a file of conf/arm: the schedules beside those of prefill")
    parser.add_argument("--length", type=int, action="append", help="tokens of the prompt; may be repeated")
    parser.add_argument("--each", action="store_true", help="the first length with torch's paths, and each library off")
    parser.add_argument("--chunks", default="", help="prefill chunks to try on the last length, by commas")
    parser.add_argument("--profile", action="store_true", help="what one chunk's time is spent on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--kv-cache-dtype", default="fp8_e4m3")
    parser.add_argument("--weights", default="nvfp4")
    parser.add_argument("--capacity", type=int, default=262144)
    options = parser.parse_args()
    options.length = options.length or [8192]
    return options


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.round_27b import arm_of, build
from runtime.engine.engine import Engine
from runtime.engine.sequence import GenerateRequest, Generation


def wait(engine: Engine) -> None:
    if engine.device.type == "cuda":
        torch.cuda.synchronize()


def computed(engine: Engine, prompt: list[int]) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Milliseconds of a prefill, the last row's logits, and the recurrent states of the last GDN layer."""
    decoder, pool = engine.decoder, engine.decoder.memory.pool
    generation = Generation(
        GenerateRequest(prompt, max_tokens=8), (), decoder.target.config.vocab_size, engine.max_model_len
    )
    state = pool.acquire()
    try:
        wait(engine)
        began = time.perf_counter()
        with torch.inference_mode():
            logits = decoder._computed(generation, state)
        wait(engine)
        took = (time.perf_counter() - began) * 1e3
        return took, logits.float().cpu(), pool.recurrent[max(pool.recurrent)][state.slots[0]].float().cpu()
    finally:
        pool.release(state)


def apart(found: torch.Tensor, want: torch.Tensor) -> float:
    return round(float((found - want).norm() / want.norm()), 5)


def ran(engine: Engine) -> dict[str, int]:
    return {
        f"{r['operator']}/{r['schedule']}": r["hits"] for r in engine.routes.counters() if "prefill" in r["operator"]
    }


def run(engine: Engine, name: str, arm: dict[str, str], prompt: list[int], runs: int, want=None):
    """One line of `runs` prefills; `want` are the logits and states that the last one is held against."""
    engine.routes.enable(arm)
    times, before = [], ran(engine)
    for _ in range(runs):
        took, logits, states = computed(engine, prompt)
        times.append(round(took, 1))
    hits = {key: hits - before.get(key, 0) for key, hits in ran(engine).items() if hits > before.get(key, 0)}
    said = {"what": name, "tokens": len(prompt), "chunk": engine.decoder.prefill_chunk, "ms": times}
    if want is not None:
        said |= {"logits_apart": apart(logits, want[0]), "states_apart": apart(states, want[1])}
        said |= {"same_token": bool(logits.argmax() == want[0].argmax())}
    if engine.device.type == "cuda":
        said |= {"gib_at_most": round(torch.cuda.max_memory_allocated() / 2**30, 1)}
    print(json.dumps(said | {"ran": hits}), flush=True)
    return logits, states


def spent(engine: Engine, prompt: list[int]) -> None:
    """Kernels of one prefill by their total time."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        computed(engine, prompt)
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)[:40]
    for row in rows:
        print(
            json.dumps({"kernel": row.key[:100], "ms": round(row.self_device_time_total / 1e3, 2), "calls": row.count})
        )


def main(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    engine = build(options)
    print(f"built in {time.perf_counter() - began:.1f} s, chunk {engine.decoder.prefill_chunk}", flush=True)
    base = arm_of(options.arm)
    draw, vocabulary = torch.Generator().manual_seed(7), engine.decoder.target.config.vocab_size
    prompts = {n: torch.randint(0, vocabulary, (n,), generator=draw).tolist() for n in options.length}
    first = prompts[options.length[0]]
    run(engine, "libraries", base, first[: len(first) // 2], 1)
    if options.each:
        want = run(engine, "torch", base | TORCH, first, 1)
        for name, schedule in TORCH.items():
            run(engine, f"{name}={schedule}", base | {name: schedule}, first, 2, want)
        run(engine, "prefill_attention=flash", base | {"prefill_attention": "flash"}, first, 2, want)
        run(engine, "libraries", base, first, 2, want)
    if options.profile:
        engine.routes.enable(base)
        spent(engine, first)
    for length in options.length[bool(options.each) :]:
        run(engine, "libraries", base, prompts[length], 2 if length < 65536 else 1)
    for chunk in filter(None, options.chunks.split(",")):
        engine.decoder.prefill_chunk = int(chunk)
        run(engine, "libraries", base, prompts[options.length[-1]], 2)
    print(json.dumps({"refusals": engine.routes.refusals()}), flush=True)
    return 0


if OPTIONS is not None:
    sys.exit(main(OPTIONS))
