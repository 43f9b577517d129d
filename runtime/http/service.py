"""What the API process owns between requests: the engine client, the model card, the metrics, the arm's name.

Runs one order from the queue to its last piece. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime import identity
from runtime.http.answers import Progress
from runtime.http.metrics import ServerMetrics
from runtime.http.requests.order import ModelCard, Order
from runtime.http.requests.speculation import MaxDrafts, read_speculation, spelled, usual
from runtime.text.generation import Generation, Profiling, Speculation, Step
from runtime.text.transcript import NO_MARKERS, Markers, Piece, Transcript
from runtime.workers.client import EngineClient, Job

_NAME_CHARS = 64


@dataclass(frozen=True)
class Hashes:
    """Read when the server starts: what it loaded, not what lies on the disk later."""

    source: str
    weights: str
    draft_weights: str
    tokenizer: str

    @staticmethod
    def read(model_dir: Path) -> Hashes:
        return Hashes(
            source=identity.source_sha256(),
            weights=identity.folder_sha256(model_dir),
            draft_weights=identity.folder_sha256(drafter) if (drafter := model_dir / "drafter").is_dir() else "",
            tokenizer=identity.tokenizer_sha256(model_dir),
        )


class Service:
    """`card`, `metrics` and `hashes` exist once `prepare` has returned."""

    def __init__(
        self,
        client: EngineClient,
        model_dir: Path,
        served_name: str,
        asked: Mapping[str, Any] | None = None,
        traces: Path | None = None,
    ) -> None:
        """`asked`: `speculation` and `num_speculative_tokens` of requests and arms that say nothing of them.

        `traces`: the folder that keeps a Chrome trace per arm, of its first profiled request.
        """
        self.client = client
        self.arm_name = "default"
        self.card: ModelCard | None = None
        self.metrics: ServerMetrics | None = None
        self._hashes: Hashes | None = None
        self._asked = asked or {}
        self._own_speculation = Speculation()
        self._model_dir = model_dir
        self._served_name = served_name
        self._traces = traces
        self._libraries = identity.MappedLibraries()

    @property
    def ready(self) -> bool:
        return self.client.ready and self.metrics is not None

    async def prepare(self) -> None:
        """Hash what is being served while the engine loads it; then open."""
        self._hashes = await asyncio.to_thread(Hashes.read, self._model_dir)
        await self.client.wait_ready()
        facts = self.client.facts
        most = MaxDrafts(facts["block_size"] - 1, facts["most_rows"] - 1)
        own = read_speculation(self._asked, usual(most), most)
        self.card = ModelCard.read(self._model_dir, self._served_name, facts["max_model_len"], own, most)
        self._own_speculation = own
        running, waiting = lambda: self.client.num_running, lambda: self.client.num_waiting
        self.metrics = ServerMetrics(self._served_name, most.lookup, running, waiting)

    def submit(self, order: Order) -> Run:
        assert self.card is not None and self.metrics is not None, "submit() needs a prepared service"
        return Run(self, order, self.client.submit(self._traced(order.generation)), self.card, self.metrics)

    def _traced(self, generation: Generation) -> Generation:
        if generation.profiling is None or self._traces is None:
            return generation
        return replace(generation, profiling=Profiling(str(self._traces / trace_file(self.arm_name))))

    async def arm(self) -> dict[str, Any]:
        per_rank = await self.client.ask("arm")
        assert all(schedules == per_rank[0] for schedules in per_rank), f"ranks run different arms: {per_rank}"
        assert self.card is not None, "arm() needs a prepared service"
        return {"name": self.arm_name, "schedules": per_rank[0], **spelled(self.card.speculation)}

    async def select_arm(self, name: str, schedules: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, Any]:
        """What `body` does not say of speculation is the server's own, whatever arm was selected before."""
        assert self.card is not None, "select_arm() needs a prepared service"
        speculation = read_speculation(body, self._own_speculation, self.card.max_drafts)
        await self.client.set_arm(schedules)
        self.arm_name = name
        self.card = replace(self.card, speculation=speculation)
        return await self.arm()

    async def counters(self) -> dict[str, list[dict[str, Any]]]:
        """`counters`: runs of each schedule; `refusals`: calls that took the default instead. Rows of all ranks."""
        ranks = await self.client.ask("counters")
        return {name: [row for rank in ranks for row in rank[name]] for name in ("counters", "refusals")}

    async def identity(self) -> dict[str, Any]:
        """Reads the libraries that are mapped now."""
        return await asyncio.to_thread(self._identity)

    def _identity(self) -> dict[str, Any]:
        hashes = self._hashes
        assert hashes is not None, "the identity is known once the service is prepared"
        facts = self.client.facts
        return {
            "server": "dflash2",
            "version": identity.version(),
            "boot_id": identity.boot_id(),
            "processes": self._processes(),
            "source_sha256": hashes.source,
            "weights_sha256": hashes.weights,
            "draft_weights_sha256": hashes.draft_weights,
            "tokenizer_sha256": hashes.tokenizer,
            "libraries": self._mapped_libraries(),
            "devices": [{"rank": w.rank, **w.facts["device"]} for w in self.client.workers if w.facts],
            "versions": {"python": platform.python_version(), **facts["versions"]},
            "environment": facts["environment"],
            "max_model_len": facts["max_model_len"],
            "block_size": facts["block_size"],
            "kv_cache_dtype": facts["kv_cache_dtype"],
            "dtype": facts["dtype"],
            "tensor_parallel_size": len(self.client.workers),
            "round_bytes": facts["round_bytes"],
            **({"made_weights": made} if (made := facts["made_weights"]) else {}),
        }

    def _processes(self) -> list[dict[str, Any]]:
        ranks: list[tuple[int, int | None, str]] = [(os.getpid(), None, "api")]
        ranks += [(worker.process.pid, worker.rank, "engine") for worker in self.client.workers]
        return [
            {"pid": pid, "start_ticks": identity.start_ticks(pid), "rank": rank, "role": role}
            for pid, rank, role in ranks
        ]

    def _mapped_libraries(self) -> list[dict[str, Any]]:
        return [
            {"rank": worker.rank, "path": path, "sha256": sha256}
            for worker in self.client.workers
            for path, sha256 in self._libraries.of(worker.process.pid)
        ]


class Run:
    """One submitted order. Iterate `pieces()`; `close()` gives the engine back, whatever has happened."""

    def __init__(self, service: Service, order: Order, job: Job, card: ModelCard, metrics: ServerMetrics) -> None:
        self.progress = Progress(num_prompt_tokens=len(order.generation.prompt_ids))
        self._client = service.client
        self._metrics = metrics
        self._job = job
        chat = order.chat
        markers = NO_MARKERS if chat is None else Markers.of(card.tokenizer)
        thinking = chat is not None and chat.thinking
        self._transcript = Transcript(card.tokenizer, order.stops, markers, thinking, order.skip_special_tokens)

    async def pieces(self) -> AsyncIterator[Piece]:
        async for step in self._job:
            piece = self._read(step)
            if piece.finish_reason is not None:
                # Before the client reads it: whoever has a whole answer may select an arm.
                self._client.release(self._job)
            yield piece
            if piece.finish_reason is not None:
                return

    def _read(self, step: Step) -> Piece:
        piece = self._transcript.push(step)
        self.progress.queue_ns = (self._job.started_ns or self._job.queued_ns) - self._job.queued_ns
        self.progress.add(piece)
        return piece

    def close(self) -> None:
        self._client.release(self._job)
        self._metrics.observe(self.progress)


def trace_file(arm_name: str) -> str:
    """One for each arm, whatever its name: one that no file can have is told from its like by its hash."""
    plain = re.sub(r"[^\w.-]", "_", arm_name, flags=re.ASCII)[:_NAME_CHARS]
    own = "" if plain == arm_name else f"-{hashlib.sha256(arm_name.encode(errors='surrogatepass')).hexdigest()[:8]}"
    return f"trace-{plain}{own}.json"
