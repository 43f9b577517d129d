"""Audits of a checkpoint under two arms, as JSON lines. Off in timed runs; knows no HTTP and no clock.

    python -m runtime.audits.audit fixed-prefix --model DIR --tape TAPE.json --control OP=NAME --candidate OP=NAME
    python -m runtime.audits.audit shadow --model DIR --tape TAPE.json --candidate OP=NAME

`fixed-prefix` forces a token tape through prefill and verification, keeps the native logits of each arm, and puts them
side by side. `shadow` answers the tape's prompt while the candidate runs beside the default on live operands
(`runtime.audits.shadow`). A tape is {"prompt_ids": [...], "forced_ids": [...]}. Exit code 0 where every bit agrees and
something was compared, 2 where not, 1 where the audit could not run.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels.accept.laws import distribution
from kernels.checking.compare import same_bytes
from kernels.errors import KernelError
from runtime.audits.shadow import Shadow
from runtime.config import read_json
from runtime.engine.engine import Engine
from runtime.engine.sequence import GenerateRequest
from runtime.engine.shape import EngineOptions
from runtime.errors import RequestError, RuntimeFault
from runtime.models.steps import PrefillStep, VerifyStep
from runtime.speculation.sampling import SamplingParams

Line = dict[str, Any]


@torch.inference_mode()
def forced(engine: Engine, prompt_ids: Sequence[int], forced_ids: Sequence[int]) -> Tensor:
    """Native FP32 logits [1 + len(forced_ids), V], on the CPU: behind the prompt, then behind each forced token.

    Forced tokens go through verification in blocks of the engine's width, all of them accepted.
    """
    decoder = engine.decoder
    length = len(prompt_ids) + len(forced_ids)
    if length > engine.max_model_len:
        raise RequestError(
            f"the tape has {length} tokens and max_model_len is {engine.max_model_len}; shorten the tape"
        )
    state, target = decoder.memory.pool.acquire(), decoder.target
    try:
        ids, rows = torch.tensor([*prompt_ids, *forced_ids], device=engine.device), []
        count, width = len(prompt_ids), max(engine.block_size, 1)
        for start in range(0, count, decoder.prefill_chunk):
            chunk = ids[start : min(count, start + decoder.prefill_chunk)]
            step = PrefillStep(target.rotary, start, len(chunk), decoder.memory, state)
            last = target.prefill(chunk, step).hidden[-1:]
        rows.append(target.head(last).cpu())
        state.select(1)
        for start in range(count, len(ids), width):
            block = ids[start : start + width]
            positions = torch.arange(start, start + len(block), device=engine.device)
            pages = decoder.pages_shown(start + len(block))  # as a round does: it may decide how attention adds
            step = VerifyStep(target.rotary.table(positions), positions, decoder.memory, state, pages)
            hidden = target.verify(block, step).hidden
            state.select(len(block))
            rows.append(target.head(hidden).cpu())
        return torch.cat(rows)
    finally:
        decoder.memory.pool.release(state)


def compare(control: Tensor, candidate: Tensor, params: SamplingParams, eos_ids: Sequence[int]) -> Iterator[Line]:
    """One object per row of two arms' logits [R, V], and a summary."""
    rows = [_row(i, control[i], candidate[i], params, eos_ids) for i in range(len(control))]
    yield from rows
    yield {
        "kind": "fixed-prefix",
        "rows": len(rows),
        "all_logits_bitwise_equal": all(row["bitwise_equal"] for row in rows),
        "max_softmax_tv": max(row["softmax_tv"] for row in rows),
        "max_sampling_tv": max(row["sampling_tv"] for row in rows),
        "top1_changed_rows": sum(row["top1_changed"] for row in rows),
        "support_changed_rows": sum(row["support_changed"] for row in rows),
        "max_eos_probability_abs_difference": max(row["eos_probability_difference"] for row in rows),
        "passed": all(row["bitwise_equal"] for row in rows),
    }


def _row(index: int, control: Tensor, candidate: Tensor, params: SamplingParams, eos_ids: Sequence[int]) -> Line:
    full = [torch.softmax(logits.double(), -1) for logits in (control, candidate)]
    sampled = [_dense(logits, params) for logits in (control, candidate)]
    eos = [float(p[list(eos_ids)].sum()) for p in full]
    return {
        "kind": "fixed-prefix-row",
        "row": index,
        "bitwise_equal": same_bytes(candidate, control),
        "softmax_tv": float((full[0] - full[1]).abs().sum() / 2),
        "sampling_tv": float((sampled[0] - sampled[1]).abs().sum() / 2),
        "top1_changed": int(control.argmax()) != int(candidate.argmax()),
        "support_changed": bool(((sampled[0] > 0) != (sampled[1] > 0)).any()),
        "eos_probability_difference": abs(eos[0] - eos[1]),
        "max_abs_logit_difference": float((control - candidate).abs().max()),
    }


def _dense(logits: Tensor, params: SamplingParams) -> Tensor:
    law = distribution(logits[None], params)
    return torch.zeros_like(logits, dtype=torch.float64).scatter(0, law.ids[0], law.p[0])


def fixed_prefix(engine: Engine, options: argparse.Namespace, tape: dict[str, list[int]]) -> list[Line]:
    arms = []
    for arm in (options.control, options.candidate):
        engine.routes.enable(arm)
        arms.append(forced(engine, tape["prompt_ids"], tape["forced_ids"]))
    return list(compare(*arms, SamplingParams(top_k=20, top_p=0.95), engine.eos_ids))


def shadowed(engine: Engine, options: argparse.Namespace, tape: dict[str, list[int]]) -> list[Line]:
    ((operator, candidate),) = options.candidate.items()
    engine.routes.enable(options.control)
    observer = engine.decoder.operators.observer = Shadow(operator, candidate)
    request = GenerateRequest(tape["prompt_ids"], max_tokens=len(tape["forced_ids"]))
    for _ in engine.generate(request):
        pass
    return list(observer.lines())


def main() -> int:
    options = _parse()
    try:
        tape = read_tape(options.tape)
        engine = Engine.load(options.model, served(options))
        audit = fixed_prefix if options.audit == "fixed-prefix" else shadowed
        lines = audit(engine, options, tape)
    except (RuntimeFault, KernelError, OSError, ValueError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 1
    sys.stdout.writelines(json.dumps(line) + "\n" for line in lines)
    return 0 if lines[-1]["passed"] else 2


def served(options: argparse.Namespace) -> EngineOptions:
    """The engine's options, named as the server names them: an arm is audited on the operands it has there."""
    return EngineOptions(
        max_model_len=options.max_model_len,
        device=options.device,
        dtype=options.dtype,
        kv_cache_dtype=options.kv_cache_dtype,
        keep_quantised=options.keep_quantised,
    )


def read_tape(path: Path) -> dict[str, list[int]]:
    tape = read_json(path, '--tape wants {"prompt_ids": [...], "forced_ids": [...]}')
    for name in ("prompt_ids", "forced_ids"):
        ids = tape.get(name)
        if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
            raise RequestError(f"--tape {path} has no token ids as {name}; give a list of integers")
    return tape


def _arm(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if not all(operator and schedule for operator, _, schedule in pairs):
        raise argparse.ArgumentTypeError(f"{text}: write operator=schedule,…, as gdn=cpu-bv8")
    return {operator: schedule for operator, _, schedule in pairs}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m runtime.audits.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("audit", choices=("fixed-prefix", "shadow"), help="what is compared; see above")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="checkpoint folder")
    parser.add_argument("--tape", type=Path, required=True, metavar="FILE", help="JSON of token ids")
    arm = "operator=schedule,…; the defaults where left out"
    parser.add_argument("--control", type=_arm, default={}, metavar="ARM", help=arm)
    parser.add_argument("--candidate", type=_arm, required=True, metavar="ARM", help=arm)
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--dtype", default="float32", help="default: %(default)s")
    parser.add_argument("--max-model-len", type=int, metavar="N", help="default: the checkpoint's capacity")
    parser.add_argument("--kv-cache-dtype", help="default: the engine's choice for the dtype")
    kept = "keep NVFP4 and FP8 linears as they are stored; default: their values"
    parser.add_argument("--keep-quantised", "--keep-nvfp4", action="store_true", help=kept)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
