"""The operators on one GPU against their limits and against peers: `python -m benchmarks.kernels_h200 [operator …]`.

Shapes are those of the 27B target on one rank without tensor parallelism. A schedule is checked against FP64 on the
very operands it is timed on, and a figure without a passing check is not printed. The limit is the bytes an operator
must move over the read bandwidth assumed (`--bandwidth`, default the project's measured 4.62 TB/s; this run's own
reading is printed beside it). Prints one JSON line per figure, then a table.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

OPERATORS = ("projection", "gated", "attention", "gdn", "selection")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels_h200",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("operators", nargs="*", metavar="operator", help=f"of {', '.join(OPERATORS)} (default: all)")
    parser.add_argument("--schedules", default="", help="only these, comma-separated; then no peers")
    parser.add_argument("--bandwidth", type=float, default=4.62, help="TB/s that limits are computed with")
    options = parser.parse_args()
    if unknown := set(options.operators) - set(OPERATORS):
        parser.error(f"there is no operator {min(unknown)}; take some of {', '.join(OPERATORS)}")
    return options


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks import timing
from kernels.checking.compare import rel_l2
from kernels.operators import operator
from kernels.projection.nvfp4 import Nvfp4Weight, padded
from kernels.registry import Op, Schedule

DEV = "cuda"
ROWS = 8


@dataclass(frozen=True)
class Figure:
    """`ms` for all layers; `limit_ms` is bytes over bandwidth, `error` relative L2 against FP64."""

    operator: str
    what: str
    version: str
    ms: float
    limit_ms: float
    error: float | None
    note: str = ""


def limit_ms(size_bytes: float, bandwidth_tb_s: float) -> float:
    return size_bytes / (bandwidth_tb_s * 1e9)


def checked(error: float, bound: float, version: str) -> bool:
    """Whether a figure may be reported; says so where it may not."""
    if not error <= bound:
        print(json.dumps({"version": version, "error": error, "bound": bound, "reported": False}), flush=True)
    return error <= bound


def native(op: Op, names: list[str]) -> list[Schedule]:
    """The CUDA schedules of an operator, those named if any are."""
    cuda = [s for s in op.schedules if s.build and s.build.language == "cuda"]
    return [s for s in cuda if not names or s.name in names]


# --- projection ------------------------------------------------------------------------------------------------------

# name, N, K, layers of the 27B target
PROJECTIONS = (
    ("gdn_in", 16480, 5120, 48), ("gdn_out", 5120, 6144, 48), ("gate_up", 34816, 5120, 64), ("down", 5120, 17408, 64),
    ("qkv", 14336, 5120, 16), ("o", 5120, 6144, 16),
)  # fmt: skip
CACHE_BYTES = 400e6  # weights that one replay reads at least, several times the second-level cache


def random_weight(n: int, k: int) -> Nvfp4Weight:
    packed = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=DEV)
    scales = (torch.rand(n, k // 16, device=DEV) * 2).to(torch.float8_e4m3fn)
    return padded(Nvfp4Weight(packed, scales, 100.0, n), 32)


def projection_figures(bandwidth: float, names: list[str]) -> Iterator[Figure]:
    op, totals = operator("projection"), {}
    versions = [(s.name, s.run) for s in native(op, names) if s.name.startswith("nvfp4")]
    if not names:
        versions += [("Triton", triton_project)]
    for name, n, k, layers in PROJECTIONS:
        size = n * k * 0.5625
        weights = [random_weight(n, k) for _ in range(max(3, math.ceil(CACHE_BYTES / size)))]
        x = torch.randn(ROWS, k, device=DEV, dtype=torch.float16)
        want = op.reference(x, weights[0])
        for version, run in versions:
            error = rel_l2(run(x, weights[0]), want)
            if not checked(error, 1e-3, f"{version} {name}"):
                continue
            ms = timing.graph_ms(lambda run=run, weights=weights, x=x: [run(x, w) for w in weights]) / len(weights)
            totals[version] = totals.get(version, 0.0) + ms * layers
            yield Figure("projection", f"{name} ({n}, {k})", version, ms, limit_ms(size, bandwidth), error)
        del weights
        if not names:
            ms = cublas_ms(n, k)
            totals["cuBLAS bf16"] = totals.get("cuBLAS bf16", 0.0) + ms * layers
            yield Figure("projection", f"{name} ({n}, {k})", "cuBLAS bf16", ms, limit_ms(n * k * 2, bandwidth), None)
    size = sum(n * k * 0.5625 * layers for _, n, k, layers in PROJECTIONS)
    for version, ms in totals.items():
        scale = 2 / 0.5625 if version.startswith("cuBLAS") else 1
        yield Figure("projection", "sum over layers", version, ms, limit_ms(size * scale, bandwidth), None)
    yield from model_order(size, bandwidth, [s for s in native(op, names) if s.name.startswith("nvfp4-stream")])


def triton_project(x: Tensor, weight: Nvfp4Weight) -> Tensor:
    from benchmarks.triton_peers import nvfp4_project  # Triton comes with the device's torch

    return nvfp4_project(x, weight.packed, weight.scales, weight.n, weight.global_scale)


def cublas_ms(n: int, k: int) -> float:
    dense = [torch.randn(n, k, device=DEV, dtype=torch.bfloat16) for _ in range(3)]
    rows = torch.randn(ROWS, k, device=DEV, dtype=torch.bfloat16)
    return timing.graph_ms(lambda: [rows @ w.T for w in dense]) / len(dense)


def model_order(size: float, bandwidth: float, schedules: list[Schedule]) -> Iterator[Figure]:
    """Every projection of a target pass, distinct weights, one graph; then with gate and up fused where that exists."""
    op, gated = operator("projection"), operator("gated")
    stacks = {name: [random_weight(n, k) for _ in range(layers)] for name, n, k, layers in PROJECTIONS}
    rows = {k: torch.randn(ROWS, k, device=DEV, dtype=torch.float16) for _, _, k, _ in PROJECTIONS}
    order: list[tuple[bool, Nvfp4Weight]] = []
    for layer in range(64):
        mixers = ("qkv", "o") if layer % 4 == 3 else ("gdn_in", "gdn_out")
        index = layer // 4 if layer % 4 == 3 else layer - layer // 4
        order += [(False, stacks[name][index]) for name in mixers]
        order += [(name == "gate_up", stacks[name][layer]) for name in ("gate_up", "down")]
    first = order[0][1]
    want = op.reference(rows[first.k], first)
    fused = {schedule.name: schedule for schedule in native(gated, [])}
    for schedule in schedules:
        error = rel_l2(schedule.run(rows[first.k], first), want)
        if not checked(error, 1e-3, schedule.name):
            continue
        ms = timing.graph_ms(lambda s=schedule: [s.run(rows[w.k], w) for _, w in order])
        yield Figure("projection", "model order", schedule.name, ms, limit_ms(size, bandwidth), error)
        if schedule.name not in fused or not gated_error(fused[schedule.name], stacks["gate_up"][0]) <= 2e-3:
            continue
        both = (schedule.run, fused[schedule.name].run)
        ms = timing.graph_ms(lambda both=both: [both[gate](rows[w.k], w) for gate, w in order])
        yield Figure(
            "projection", "model order, gate and up fused", schedule.name, ms, limit_ms(size, bandwidth), error
        )


# --- gated projection ------------------------------------------------------------------------------------------------


def gated_error(schedule: Schedule, weight: Nvfp4Weight) -> float:
    x = torch.randn(ROWS, weight.k, device=DEV, dtype=torch.float16) * 0.1
    return rel_l2(schedule.run(x, weight), operator("gated").reference(x, weight))


def gated_figures(bandwidth: float, names: list[str]) -> Iterator[Figure]:
    """Gate and up of one layer, fused and as three operations on the streamed projection."""
    op, n, k = operator("gated"), 34816, 5120
    weights, x = [random_weight(n, k) for _ in range(5)], torch.randn(ROWS, k, device=DEV, dtype=torch.float16) * 0.1
    limit = limit_ms(n * k * 0.5625, bandwidth)
    for schedule in native(op, names):
        error = gated_error(schedule, weights[0])
        if checked(error, 2e-3, f"gated {schedule.name}"):
            ms = timing.graph_ms(lambda s=schedule: [s.run(x, w) for w in weights]) / len(weights)
            yield Figure("gated", f"({n}, {k})", schedule.name, ms, limit, error)
    if not names:
        project = operator("projection").schedule("nvfp4-stream").run
        separate = op.schedule("separate")
        ms = timing.graph_ms(lambda: [separate.run(x, w, project) for w in weights]) / len(weights)
        yield Figure("gated", f"({n}, {k})", "separate on nvfp4-stream", ms, limit, None)


# --- attention -------------------------------------------------------------------------------------------------------

LAYERS, PAGE = 16, 3296


def attention_operands(tokens: int, q_heads: int, kv_heads: int, layers: int) -> list[tuple[Tensor, ...]]:
    pages = -(-tokens // PAGE)
    made = []
    for _ in range(layers):
        k, v = (
            torch.randn(pages, PAGE, kv_heads, 256, device=DEV, dtype=torch.float16).to(torch.float8_e4m3fn)
            for _ in range(2)
        )
        made.append((torch.randn(ROWS, q_heads, 256, device=DEV, dtype=torch.float16), k, v))
    return made


def attention_figures(bandwidth: float, names: list[str]) -> Iterator[Figure]:
    op = operator("attention")
    for q_heads, kv_heads, lengths in ((24, 4, (1024, 8192, 32768, 131072, 261888)), (6, 1, (8192, 261888))):
        for tokens in lengths:
            layers = attention_operands(tokens, q_heads, kv_heads, LAYERS)
            table = torch.randperm(layers[0][1].shape[0], device=DEV).int()
            rows = torch.arange(tokens - ROWS + 1, tokens + 1, device=DEV).int()
            want = op.reference(*layers[0], table, rows, 1 / 16)
            limit = limit_ms(2.0 * LAYERS * tokens * kv_heads * 256, bandwidth)
            what = f"Hq{q_heads}/Hkv{kv_heads} {tokens} tokens"
            for schedule in native(op, names):
                error = rel_l2(schedule.run(*layers[0], table, rows, 1 / 16), want)
                if not checked(error, 2e-3, f"{schedule.name} {tokens}"):
                    continue
                slow = schedule.name == "scalar"
                used = layers[:2] if slow else layers
                work = lambda s=schedule, u=used, t=table, r=rows: [s.run(*o, t, r, 1 / 16) for o in u]  # noqa: E731
                ms = timing.graph_ms(work, 5 if slow else 25) * LAYERS / len(used)
                yield Figure("attention", what, schedule.name, ms, limit, error)
            if not names:
                yield from attention_peers(what, tokens, kv_heads, layers, limit)
            del layers


def attention_peers(
    what: str, tokens: int, kv_heads: int, layers: list[tuple[Tensor, ...]], limit: float
) -> Iterator[Figure]:
    """Contiguous K and V: Triton on the same E4M3 values, torch's flash attention on twice the bytes without a mask."""
    from benchmarks.triton_peers import SplitAttention

    dense = [(q, *(pages.flatten(0, 1)[:tokens] for pages in (k, v))) for q, k, v in layers]
    peer = SplitAttention(dense[0][0].shape[1], kv_heads)
    table = torch.arange(layers[0][1].shape[0], device=DEV).int()
    rows = torch.arange(tokens - ROWS + 1, tokens + 1, device=DEV).int()
    want = operator("attention").reference(*layers[0], table, rows, 1 / 16)
    error = rel_l2(peer.run(*dense[0]), want)
    if checked(error, 2e-3, f"Triton {tokens}"):
        ms = timing.graph_ms(lambda: [peer.run(*operands) for operands in dense])
        yield Figure("attention", what, "Triton", ms, limit, error)
    q, k, v = (operand.to(torch.bfloat16) for operand in dense[0])
    folded = q.view(ROWS, kv_heads, -1, 256).transpose(0, 1).reshape(1, kv_heads, -1, 256)
    keys, values = (operand.transpose(0, 1)[None].contiguous() for operand in (k, v))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        ms = timing.graph_ms(lambda: scaled_dot_product_attention(folded, keys, values)) * LAYERS
    yield Figure("attention", what, "torch flash, bf16, heads as rows, no mask", ms, 2 * limit, None)
    heads = q.transpose(0, 1)[None].contiguous()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        run = partial(scaled_dot_product_attention, heads, keys, values, enable_gqa=True)
        ms = timing.graph_ms(run, 10) * LAYERS
    yield Figure("attention", what, "torch flash, bf16, grouped heads, no mask", ms, 2 * limit, None)


# --- GDN -------------------------------------------------------------------------------------------------------------


def gdn_figures(bandwidth: float, names: list[str]) -> Iterator[Figure]:
    from kernels.gdn import Layer, State

    op, layers, heads, keys = operator("gdn"), 48, 48, 16
    channels = (2 * keys + heads) * 128
    qkv = torch.randn(ROWS, channels + 6144 + 96, device=DEV, dtype=torch.float16)
    a, b = qkv[:, -96:-48], qkv[:, -48:]
    table = torch.randperm(8, device=DEV).int()
    made = []
    for _ in range(layers):
        layer = Layer(
            torch.randn(channels, 4, device=DEV, dtype=torch.float16) * 0.5,
            torch.rand(heads, device=DEV), torch.randn(heads, device=DEV),
        )  # fmt: skip
        window = torch.randn(channels, 10, device=DEV, dtype=torch.float16)
        pool = torch.randn(8, heads, 128, 128, device=DEV)
        made.append((layer, State(window, pool, table, torch.full((1,), 3, device=DEV, dtype=torch.int32))))
    limit = limit_ms(layers * 9.0 * heads * 128 * 128 * 4, bandwidth)
    for schedule in native(op, names):
        layer, state = made[0]
        want = op.reference(qkv[:, :channels], a, b, layer, state)
        out = schedule.run(qkv[:, :channels], a, b, layer, state)
        error = max(rel_l2(out, want.out), rel_l2(state.pool[table.long()], want.states))
        if checked(error, 2e-3, schedule.name):
            ms = timing.graph_ms(lambda s=schedule: [s.run(qkv[:, :channels], a, b, *m) for m in made])
            yield Figure("gdn", "48 layers, T=8, 16/48 heads, eight states", schedule.name, ms, limit, error)
    if not names:
        yield from fla_figures(layers, heads, keys, bandwidth)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """FP64 outputs [T, Hv, D] and last state [Hv, D, D] of the recurrence alone, q and k of length 1."""
    group, state, outs = v.shape[1] // q.shape[1], state.double(), []
    unit = [torch.nn.functional.normalize(x.double(), dim=-1).repeat_interleave(group, 1) for x in (q, k)]
    for row in range(q.shape[0]):
        state = state * g[row].double().exp()[:, None, None]
        its_q, its_k = unit[0][row] * q.shape[-1] ** -0.5, unit[1][row]
        delta = (v[row].double() - torch.einsum("hkv,hk->hv", state, its_k)) * beta[row].double()[:, None]
        state = state + its_k[:, :, None] * delta[:, None, :]
        outs.append(torch.einsum("hkv,hk->hv", state, its_q))
    return torch.stack(outs), state


def fla_figures(layers: int, heads: int, keys: int, bandwidth: float) -> Iterator[Figure]:
    """fla-core's recurrence: it does not convolve, and writes the last of the eight states only."""
    try:
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule as recur
    except ImportError as error:
        print(json.dumps({"version": "fla-core", "reported": False, "why": str(error)}), flush=True)
        return
    q, k = (torch.randn(1, ROWS, keys, 128, device=DEV, dtype=torch.bfloat16) for _ in range(2))
    v = torch.randn(1, ROWS, heads, 128, device=DEV, dtype=torch.bfloat16)
    g, beta = -torch.rand(1, ROWS, heads, device=DEV), torch.rand(1, ROWS, heads, device=DEV)
    states = [torch.randn(1, heads, 128, 128, device=DEV) for _ in range(layers)]

    def run(state: Tensor) -> tuple[Tensor, Tensor]:
        return recur(q, k, v, g, beta=beta, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)

    got = run(states[0])
    want = delta_rule(*(operand[0] for operand in (q, k, v, g, beta)), states[0][0])
    error = max(rel_l2(got[0][0], want[0]), rel_l2(got[1][0], want[1]))
    if checked(error, 1e-2, "fla-core"):
        ms = timing.graph_ms(lambda: [run(state) for state in states])
        limit = limit_ms(layers * 2.0 * heads * 128 * 128 * 4, bandwidth)
        yield Figure("gdn", "48 layers, T=8, no convolution, one state", "fla-core, bf16", ms, limit, error)


# --- selection -------------------------------------------------------------------------------------------------------


def selection_figures(bandwidth: float, names: list[str]) -> Iterator[Figure]:
    op, vocab, k = operator("selection"), 248320, 20
    buffers = [torch.randn(ROWS, vocab, device=DEV) for _ in range(24)]
    limit = limit_ms(ROWS * vocab * 4, bandwidth)
    what = f"{ROWS} x {vocab}, k = {k}"
    want = op.reference(buffers[0], k)

    def timed(version: str, run: Callable[[Tensor], object]) -> Figure:
        ms = timing.graph_ms(lambda: [run(logits) for logits in buffers]) / len(buffers)
        return Figure("selection", what, version, ms, limit, 0.0)

    for schedule in native(op, names):
        got = schedule.run(buffers[0], k)
        if checked(0.0 if torch.equal(got.ids, want.ids) else math.inf, 0.0, schedule.name):
            yield timed(schedule.name, lambda logits, s=schedule: s.run(logits, k))
    if not names:
        yield timed("torch.topk", lambda logits: logits.topk(k + 1))


# In the order of OPERATORS.
FIGURES: tuple[Callable[[float, list[str]], Iterator[Figure]], ...] = (
    projection_figures,
    gated_figures,
    attention_figures,
    gdn_figures,
    selection_figures,
)


def row(figure: Figure) -> str:
    unit, scale = ("us", 1e3) if figure.ms < 0.5 else ("ms", 1.0)
    error = "" if figure.error is None else f"{figure.error:.1e}"
    ratio = figure.ms / figure.limit_ms
    return (
        f"| {figure.operator} | {figure.what} | {figure.version} | {figure.ms * scale:.2f} {unit} | "
        f"{figure.limit_ms * scale:.2f} {unit} | {ratio:.2f} | {error} |"
    )


def main(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    bandwidths = {"read_tb_s": timing.read_bandwidth() / 1e9, "write_tb_s": timing.write_bandwidth() / 1e9}
    print(json.dumps({"device": torch.cuda.get_device_name(), **bandwidths}), flush=True)
    names = [name for name in options.schedules.split(",") if name]
    figures = []
    for name, figures_of in zip(OPERATORS, FIGURES, strict=True):
        for figure in figures_of(options.bandwidth, names) if name in (options.operators or OPERATORS) else ():
            print(json.dumps(asdict(figure)), flush=True)
            figures.append(figure)
        torch.cuda.empty_cache()
    print("| operator | what | version | time | limit | x limit | FP64 error |\n|---|---|---|---|---|---|---|")
    print("\n".join(row(figure) for figure in figures))


if OPTIONS is not None:
    main(OPTIONS)
