"""Publication between ranks: the same bytes as gathered rows whoever is late, and what one costs in a graph.

    python benchmarks/publication.py [--size 2] [--device cuda] [--check] [--turns 2000]

Each rank publishes partial rows of the 27B target's width through memory that the others write into (`peers`; on the
CPU `cpu-shared`) and through the group's library (`gathered`), both with the norm behind them, and compares every byte:
eagerly with late hosts and late devices, over epochs that wrap, and in replays of one captured chain. On CUDA likewise
`peers-stream` behind NVFP4 weights. Then one rank
stays away and must be named within the limit. Without `--check` chains of publications are timed as graphs, alone and
behind the NVFP4 projection that they follow in a model, beside the norm that stands there on one rank. The exit code is
1 where a byte differs or nobody is named.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from statistics import median
from typing import Any

from side_by_side import one_process_a_rank


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="no timing")
    parser.add_argument("--turns", type=int, default=2000, help="eager publications (default: %(default)s)")
    parser.add_argument("--width", type=int, default=5120)
    parser.add_argument("--timeout-s", type=float, default=240)
    parser.add_argument("--rank", type=int, help="set for the processes that this one starts")
    parser.add_argument("--meeting", help="likewise: the folder in which ranks find each other")
    return parser.parse_args()


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch
from torch import Tensor

from kernels import norm, projection, publication
from kernels.capture import capture
from kernels.errors import RankLost
from kernels.projection.nvfp4 import Nvfp4Weight
from kernels.publication import Ranks
from runtime.models.parallel import Group

EPS, ROWS, CHAIN, REPLAYS = 1e-6, 8, 64, 60
SHARE_K = 8704  # inputs of a rank's down projection, on two ranks
Pair = tuple[Tensor, Tensor]


class Bench:
    """One rank with its operands: shares [CHAIN, ROWS, width] FP32, a residual, a scale."""

    def __init__(self, group: Group, device: torch.device, width: int) -> None:
        self.group, self.device, self.cuda = group, device, device.type == "cuda"
        draw = torch.Generator(device).manual_seed(group.rank)
        common = torch.Generator(device).manual_seed(99)
        self.shares = torch.randn(CHAIN, ROWS, width, device=device, generator=draw)
        kind = torch.float16 if self.cuda else torch.float32
        self.residual = torch.randn(ROWS, width, device=device, generator=common).to(kind)
        self.scale = 1 + 0.1 * torch.randn(width, device=device, generator=common)
        self.weight = projection.DenseWeight(self.residual.new_empty(width, 1))
        self.native = publication.OP.schedule("peers" if self.cuda else "cpu-shared")
        self.norm = norm.OP.schedule("rows" if self.cuda else "separate")
        self.stream = projection.OP.schedule("nvfp4-stream-alone").run

    def normed(self, x: Tensor, delta: Tensor) -> Pair:
        return self.norm.run(x, delta, self.scale, EPS)

    def publish(self, schedule: Any, share: Tensor, residual: Tensor, ranks: Ranks | None = None) -> Pair:
        ranks = ranks or self.group.ranks
        operands = (residual[:, :1], self.weight, residual, self.scale, EPS, ranks)
        return schedule.run(*operands, lambda x, weight: share, self.normed)

    def chained(self, schedule: Any) -> Tensor:
        """CHAIN publications, each behind the one before."""
        x = self.residual
        for share in self.shares:
            x, y = self.publish(schedule, share, x)
        return torch.stack((x, y))

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def late(chance: random.Random, cuda: bool) -> None:
    """Now and then a rank's host or its device is up to some milliseconds behind."""
    if chance.random() < 0.02:
        time.sleep(chance.random() / 100)
    if cuda and chance.random() < 0.05:
        torch.cuda._sleep(int(chance.random() * 4e6))


def eager(bench: Bench, turns: int) -> int:
    """Wrong bytes of so many publications of one to eight rows; the epochs wrap half way."""
    chance, wrong = random.Random(bench.group.rank), torch.zeros(1, dtype=torch.int64, device=bench.device)
    ranks, gathered = bench.group.ranks, publication.OP.schedule("gathered")
    bench.publish(bench.native, bench.shares[0], bench.residual)  # connects
    bench.wait()
    bench.group.gather(bench.scale)
    ranks.mail.state[0] = -turns // 2
    bench.wait()
    bench.group.gather(bench.scale)
    for turn in range(turns):
        rows = 1 + turn % ROWS
        share, residual = bench.shares[turn % CHAIN, :rows] * (1 + turn), bench.residual[:rows]
        late(chance, bench.cuda)
        found = bench.publish(bench.native, share, residual)
        want = (
            bench.publish(gathered, share, residual) if turn % 8 < 2 else bench.publish(bench.native, share, residual)
        )
        wrong += sum((a.view(torch.uint8) != b.view(torch.uint8)).sum() for a, b in zip(found, want, strict=True))
    return int(wrong)


def replayed(bench: Bench) -> int:
    """Wrong bytes of replays of one captured chain, ranks late in between, shares changed before each."""
    chance, wrong = random.Random(7 + bench.group.rank), torch.zeros(1, dtype=torch.int64, device=bench.device)
    bench.chained(bench.native)
    bench.wait()
    graph, outputs = capture(lambda: bench.chained(bench.native))
    for _ in range(REPLAYS):
        bench.shares.mul_(-1.0078125)
        late(chance, True)
        graph.replay()
        wrong += (
            outputs.view(torch.uint8) != bench.chained(publication.OP.schedule("gathered")).view(torch.uint8)
        ).sum()
    return int(wrong)


def streamed(bench: Bench, turns: int) -> dict[str, int]:
    """Wrong bytes of `peers-stream`, whose projection sends, beside gathered rows of the same projection."""
    chance, wrong = random.Random(3 + bench.group.rank), torch.zeros(1, dtype=torch.int64, device=bench.device)
    native, gathered = publication.OP.schedule("peers-stream"), publication.OP.schedule("gathered")
    layers, ranks = weights(bench, SHARE_K), bench.group.ranks
    rows = torch.randn(CHAIN, ROWS, SHARE_K, device=bench.device).half()
    bench.group.gather(bench.scale)
    bench.wait()
    ranks.mail.state[0] = -turns // 2
    bench.wait()
    bench.group.gather(bench.scale)

    def publish(schedule: Any, turn: int, m: int, x: Tensor) -> Pair:
        operands = (rows[turn % CHAIN, :m], layers[turn % len(layers)], x, bench.scale, EPS, ranks)
        return schedule.run(*operands, lambda x, weight: bench.stream(x, weight, True), bench.normed)

    def chained(schedule: Any) -> Tensor:
        x = bench.residual
        for turn in range(CHAIN):
            x, y = publish(schedule, turn, ROWS, x)
        return torch.stack((x, y))

    for turn in range(turns):
        late(chance, True)
        m = 1 + turn % ROWS
        found = publish(native, turn, m, bench.residual[:m])
        want = publish(gathered if turn % 8 < 2 else native, turn, m, bench.residual[:m])
        wrong += sum((a.view(torch.uint8) != b.view(torch.uint8)).sum() for a, b in zip(found, want, strict=True))
    eager = int(wrong)
    chained(native)
    bench.wait()
    graph, outputs = capture(lambda: chained(native))
    for _ in range(REPLAYS):
        rows.mul_(-1.0)
        late(chance, True)
        graph.replay()
        wrong += (outputs.view(torch.uint8) != chained(gathered).view(torch.uint8)).sum()
    return {"streamed": eager, "streamed, replays": int(wrong) - eager}


def lost(bench: Bench) -> dict[str, Any]:
    """The last rank stays away: what the others say, and how long two publications took them."""
    old = bench.group.ranks
    ranks = Ranks(old.rank, old.size, old.gather, place=f"{old.place}-lost", limit_s=1.0)
    bench.publish(bench.native, bench.shares[0], bench.residual, ranks)
    bench.wait()
    if ranks.rank == ranks.size - 1:
        time.sleep(4)
        return {"named": True}
    took, broken = [], False
    for _ in range(2):
        began = time.perf_counter()
        try:
            s, _ = bench.publish(bench.native, bench.shares[0], bench.residual, ranks)
            bench.wait()
            broken = bool(s.isnan().all())
        except RankLost:
            broken = True
        took.append(round(time.perf_counter() - began, 3))
    named = f"for rank {ranks.size - 1} in publication 2" in ranks.lost()
    return {"named": named and broken and took[0] < 2 and took[1] < 0.5, "said": ranks.lost(), "took_s": took}


def timed(bench: Bench, work: Any) -> float:
    """Microseconds of one of CHAIN links of `work`, median of graph replays."""
    work()
    bench.wait()
    graph, _ = capture(work)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(21):
        bench.group.gather(bench.scale)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / CHAIN)
    return round(median(times), 2)


def weights(bench: Bench, k: int) -> list[Nvfp4Weight]:
    """Sixteen layers' worth, more than the second-level cache holds."""
    width, on = bench.residual.shape[1], bench.device
    scales = torch.ones(width, k // 16, device=on).to(torch.float8_e4m3fn)
    codes = [torch.randint(0, 256, (width, k // 2), dtype=torch.uint8, device=on) for _ in range(16)]
    return [Nvfp4Weight(packed, scales, 1000.0, width) for packed in codes]


def costs(bench: Bench) -> dict[str, float]:
    gathered, native = publication.OP.schedule("gathered"), bench.native
    sending = publication.OP.schedule("peers-stream")
    rows = torch.randn(ROWS, SHARE_K, device=bench.device).half()
    layers = weights(bench, SHARE_K)

    def norms() -> Tensor:
        x, delta = bench.residual, bench.residual.clone()
        for _ in range(CHAIN):
            x, _ = bench.normed(x, delta)
        return x

    def alone() -> Tensor:
        x = bench.residual
        for i in range(CHAIN):
            x, _ = bench.normed(x, bench.stream(rows, layers[i % 16]))
        return x

    def behind(schedule: Any) -> Any:
        def work() -> Tensor:
            x = bench.residual
            for i in range(CHAIN):
                operands = (rows, layers[i % 16], x, bench.scale, EPS, bench.group.ranks)
                x, _ = schedule.run(*operands, lambda x, weight: bench.stream(x, weight, True), bench.normed)
            return x

        return work

    found = {
        "norm": timed(bench, norms),
        "peers": timed(bench, lambda: bench.chained(native)),
        "gathered": timed(bench, lambda: bench.chained(gathered)),
        "projection, norm": timed(bench, alone),
        "projection, peers": timed(bench, behind(native)),
        "projection, peers-stream": timed(bench, behind(sending)),
        "projection, gathered": timed(bench, behind(gathered)),
    }
    return {f"{name}, us": us for name, us in found.items()}


def run_rank(options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    on = torch.device(options.device, options.rank) if options.device == "cuda" else torch.device(options.device)
    group = Group(options.rank, options.size, on, f"{options.meeting}/ranks")
    bench = Bench(group, on, options.width)
    if group.ranks.apart:
        print(json.dumps({"apart": group.ranks.apart}), flush=True)
        return 1
    found: dict[str, Any] = {"rank": group.rank, "eager": eager(bench, options.turns), "turns": options.turns}
    if bench.cuda:
        found["replays"], found["replayed"] = replayed(bench), CHAIN * REPLAYS
        print(json.dumps(found), flush=True)
        found |= streamed(bench, options.turns)
        print(json.dumps(found), flush=True)
        found |= {} if options.check else costs(bench)
        print(json.dumps(found), flush=True)
    found |= lost(bench)
    print(json.dumps(found), flush=True)
    wrong = ("eager", "replays", "streamed", "streamed, replays")
    return int(any(found.get(name) for name in wrong) or not found["named"])


if OPTIONS is not None:
    with torch.inference_mode():
        sys.exit(one_process_a_rank(OPTIONS, run_rank))
