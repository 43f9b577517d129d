"""One rank's engine process: reads orders from its channel, runs the engine, tells each step. Owns torch.

Started by the API process alone (`runtime.workers.client`). It ends when the channel closes or its parent dies; it
knows nothing of HTTP, text or other requests in the queue.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.errors import KernelError, RankLost
from runtime.errors import RuntimeFault
from runtime.identity import numeric_environment
from runtime.text.generation import Generation, Step
from runtime.workers.beats import Beats
from runtime.workers.protocol import Channel, Message, PeerGone
from runtime.workers.translation import as_step, engine_request, finish_reason

if TYPE_CHECKING:
    from kernels.publication import Ranks
    from runtime.workers.gate import GrammarTokenizer

_PR_SET_PDEATHSIG = 1
_NATIVE_TRACE = "\nException raised from "  # where torch goes on in C++


class RankMismatch(Exception):
    """A broken invariant: the process ends, and with it the server."""


class StateInDoubt(Exception):
    """An error after which another request might be answered wrongly: the process ends."""


def main() -> int:
    options = _parse()
    _die_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches the whole group; the parent decides
    channel = Channel(socket.socket(fileno=options.channel))
    try:
        worker = _load(options, channel)
        worker.watch()
        channel.send({"event": "ready", "facts": worker.facts()})
        worker.serve()
    except PeerGone:
        return 0
    except (RuntimeFault, RankMismatch, RankLost, StateInDoubt) as error:
        channel.send({"event": "fatal", "message": str(error)})
        return 1
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runtime.workers.worker")
    for name in ("channel", "rank", "world-size", "parent", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--kv-cache-dtype")
    parser.add_argument("--rendezvous")
    parser.add_argument("--rank-timeout", type=float, required=True)
    parser.add_argument("--lookup-rows", type=int, required=True)
    parser.add_argument("--audit-ranks", action="store_true")
    parser.add_argument("--keep-quantised", action="store_true")
    parser.add_argument("--prompt-state", required=True)
    return parser.parse_args()


def _die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies; it may have died before the request."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def _load(options: argparse.Namespace, channel: Channel) -> Worker:
    import torch

    from runtime.engine.engine import Engine
    from runtime.engine.shape import EngineOptions
    from runtime.workers.gate import GrammarTokenizer

    torch.set_num_threads(options.threads)
    engine = Engine.load(
        options.model,
        EngineOptions(
            max_model_len=options.max_model_len,
            device=f"cuda:{options.rank}" if options.device == "cuda" else options.device,
            dtype=options.dtype,
            kv_cache_dtype=options.kv_cache_dtype,
            keep_quantised=options.keep_quantised,
            prompt_state=options.prompt_state,
            rank=options.rank,
            world_size=options.world_size,
            rendezvous=options.rendezvous,
            rank_timeout_s=options.rank_timeout,
            lookup_rows=options.lookup_rows,
        ),
    )
    vocab_size = engine.decoder.target.config.vocab_size
    grammars = GrammarTokenizer(options.model, vocab_size, engine.eos_ids)
    return Worker(engine, channel, grammars, options.audit_ranks)


class Worker:
    """The loop of one rank: one order at a time, and between rounds whatever else has arrived."""

    def __init__(self, engine: Any, channel: Channel, grammars: GrammarTokenizer, audit_ranks: bool) -> None:
        self._engine = engine
        self._group = engine.group
        self._is_first = engine.group is None or engine.group.rank == 0
        self._audit_ranks = audit_ranks and engine.group is not None
        self._channel = channel
        self._grammars = grammars

    def facts(self) -> Message:
        import torch

        engine = self._engine
        return {
            "max_model_len": engine.max_model_len,
            "block_size": engine.block_size,
            "most_rows": engine.most_rows,
            "kv_cache_dtype": engine.kv_cache_dtype,
            "dtype": engine.dtype,
            "made_weights": engine.made_weights,
            "round_bytes": engine.round_bytes(),
            "device": _device(torch, engine.device),
            "versions": {"torch": torch.__version__, **_cuda_version(torch)},
            "environment": numeric_environment(os.environ),
        }

    def watch(self) -> None:
        """Ends this process, from a thread beside it, once another rank is silent or was waited for in vain: the main
        one may then stand in a collective that never ends."""
        if self._group is not None:
            ranks = self._group.ranks
            beats = Beats(Path(f"{ranks.place}-beats"), ranks.rank, ranks.size)
            threading.Thread(target=_watch, args=(beats, ranks, self._channel), daemon=True).start()

    def serve(self) -> None:
        while True:
            self._obey(self._channel.receive())

    def _obey(self, message: Message) -> None:
        match message["do"]:
            case "generate":
                self._generate(message["job"], Generation.from_json(message["request"]))
            case "set_arm":
                self._set_arm(message["call"], message["schedules"])
            case "arm":
                self._reply(message["call"], dict(self._engine.routes.enabled))
            case "counters":
                counters, refusals = self._engine.counters(), self._engine.routes.refusals()
                self._reply(message["call"], {"counters": counters, "refusals": refusals})

    def _generate(self, job: int, order: Generation) -> None:
        try:
            for step in self._steps(order, cancelled=lambda: self._agreed(self._cancelled(job))):
                self._channel.send({"event": "step", "job": job, "step": step.to_json()})
        except RuntimeFault as error:
            self._channel.send({"event": "failed", "job": job, "message": str(error)})
        except (RuntimeError, MemoryError) as error:
            self._broke(job, error)
        else:
            self._channel.send({"event": "ended", "job": job})

    def _broke(self, job: int, error: Exception) -> None:
        """Fails the request with its cause. A request leaves nothing behind that the next one reads: it writes caches
        and states anew from its first token, as after a cancellation in mid-round. Where more than the request may be
        hurt the engine ends instead, and says what is in doubt.
        """
        traceback.print_exception(error)
        cause = f"{type(error).__name__}: {str(error).partition(_NATIVE_TRACE)[0].strip()}"
        if doubt := self._in_doubt():
            raise StateInDoubt(f"a request failed ({cause}), and the engine ends: {doubt}") from error
        self._channel.send({"event": "broke", "job": job, "message": f"the request failed in the engine: {cause}"})

    def _in_doubt(self) -> str:
        if self._group is not None:
            return "its ranks may stand at different places"
        try:
            return self._engine.unsound()
        except RuntimeError as error:
            return f"its device does not answer any longer ({error})"

    def _steps(self, order: Generation, cancelled: Callable[[], bool]) -> Iterator[Step]:
        """The engine's events as steps; the step that ends the answer says why, which the engine tells after it."""
        num_tokens = 0
        with self._watcher(order) as watch:
            for event in self._engine.generate(engine_request(order, cancelled, self._gate(order))):
                if hasattr(event, "token_ids"):
                    self._audit(event.token_ids)
                    num_tokens += len(event.token_ids)
                    yield watch(as_step(event, finish_reason(order, event.token_ids, num_tokens)))

    @contextmanager
    def _watcher(self, order: Generation) -> Iterator[Callable[[Step], Step]]:
        """What steps pass through: of a profiled request the last one takes the profile along."""
        if order.profiling is None:
            yield lambda step: step
            return
        from runtime.engine.profiling import RoundProfiler

        keep = Path(order.profiling.trace) if order.profiling.trace and self._is_first else None
        with RoundProfiler(self._engine.decoder.operators, self._engine.device, keep) as profiler:
            yield partial(_profiled, profiler)

    def _agreed(self, cancelled: bool) -> bool:
        """Ranks hear of a cancellation at different rounds; they stop at the one where rank 0 has heard of it."""
        return cancelled if self._group is None else self._group.agree(cancelled)

    def _audit(self, token_ids: Sequence[int]) -> None:
        if self._audit_ranks and not self._group.same(tuple(token_ids)):
            raise RankMismatch(f"ranks sampled different tokens; this one has {list(token_ids)}")

    def _gate(self, order: Generation) -> Any:
        from runtime.workers.gate import gate_of

        return gate_of(order, self._grammars)

    def _cancelled(self, job: int) -> bool:
        """Between rounds: answer what has arrived meanwhile; true when the order was taken back."""
        cancelled = False
        for message in self._channel.pending():
            if message["do"] == "cancel":
                cancelled |= message["job"] == job
            else:
                self._obey(message)
        return cancelled

    def _set_arm(self, call: int, schedules: dict[str, str]) -> None:
        try:
            self._engine.routes.enable(schedules)
        except KernelError as error:
            self._channel.send({"event": "refused", "call": call, "message": str(error)})
        else:
            self._reply(call, dict(self._engine.routes.enabled))

    def _reply(self, call: int, value: Any) -> None:
        self._channel.send({"event": "reply", "call": call, "value": value})


def _watch(beats: Beats, ranks: Ranks, channel: Channel) -> None:
    told = beats.until_silent(ranks.limit_s, ranks.lost)
    with suppress(PeerGone):
        channel.send({"event": "fatal", "message": told})
    os._exit(1)


def _profiled(profiler: Any, step: Step) -> Step:
    if step.finish_reason is not None:
        found = profiler.result()
        return replace(step, profile=None if found is None else found.details())
    if step.kind == "prefill":
        profiler.begin()
    else:
        profiler.round_ended()
    return step


def _device(torch: Any, device: Any) -> dict[str, str]:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return {"uuid": f"GPU-{properties.uuid}", "name": properties.name}
    return {"uuid": "cpu", "name": _cpu_name()}


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _cuda_version(torch: Any) -> dict[str, str]:
    return {"cuda": torch.version.cuda} if torch.version.cuda else {}


if __name__ == "__main__":
    sys.exit(main())
