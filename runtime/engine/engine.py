"""The engine of one rank: it loads a checkpoint, owns the memory, and answers one request at a time.

    engine = Engine.load(Path("model"), EngineOptions())
    for event in engine.generate(GenerateRequest(prompt_ids=[1, 2, 3])):
        ...  # one Prefill, then RoundRecords, then one Finish

Knows no HTTP, no text and no queue. Closing the iterator early gives the request's slots back.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from kernels.routes import Routes
from runtime.config import DraftConfig, TargetConfig, eos_token_ids, read_json
from runtime.engine.graphs import Graphs
from runtime.engine.round import Decoder
from runtime.engine.sequence import Finish, GenerateRequest, Generation, Prefill, RoundRecord
from runtime.engine.shape import ROWS, EngineOptions, EngineShape
from runtime.engine.traffic import round_bytes
from runtime.engine.vocabulary import ShardedVocabulary, Vocabulary
from runtime.errors import RequestError
from runtime.memory.cache import DraftCache, PagedCache
from runtime.memory.state import StatePool
from runtime.models.drafter import Drafter
from runtime.models.parallel import (
    Group,
    ShardedWeights,
    parallelise,
    parallelise_draft,
    shard_config,
    shard_draft,
)
from runtime.models.random_model import Declaration, fingerprint
from runtime.models.steps import Memory
from runtime.models.target import Target
from runtime.models.weights import read_draft, read_target
from runtime.operators import Operators


class Engine:
    """`max_model_len` tokens of prompt and answer; `block_size` rows a round, up to `most_rows` with the history's;
    `routes` choose the schedules.

    `made_weights` says what a declared model's weights are (`runtime.models.random_model`), None where they were read.
    """

    def __init__(
        self,
        decoder: Decoder,
        options: EngineOptions,
        max_model_len: int,
        kv_cache_dtype: str,
        eos: tuple[int, ...],
        group: Group | None = None,
    ) -> None:
        self.decoder, self.options, self.max_model_len = decoder, options, max_model_len
        self.kv_cache_dtype, self.dtype, self.eos_ids = kv_cache_dtype, options.dtype, eos
        self.routes, self.group = decoder.operators.routes, group
        self.block_size = decoder.drafter.config.block_size if decoder.drafter else 1
        self.most_rows = max(self.block_size, options.lookup_rows if options.lookup_rows != ROWS else 0)
        self.made_weights: dict[str, Any] | None = None
        self._answering = False

    @property
    def device(self) -> torch.device:
        return self.decoder.device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.decoder.graphs.release()

    @classmethod
    def load(cls, model_dir: Path, options: EngineOptions | None = None) -> "Engine":
        """Read `model_dir` (Hugging Face layout, drafter under `drafter/` if there is one) onto the device."""
        options, model_dir = options or EngineOptions(), Path(model_dir)
        whole_config = TargetConfig.from_hf(read_json(model_dir / "config.json"))
        target_config = shard_config(whole_config, options.world_size)
        draft_dir = model_dir / "drafter"
        draft_config = DraftConfig.from_hf(read_json(draft_dir / "config.json")) if draft_dir.is_dir() else None
        mine = None if draft_config is None else shard_draft(draft_config, options.world_size)
        shape = EngineShape.of(target_config, mine, options)
        device, dtype = shape.device, shape.dtype
        declared = Declaration.of(model_dir)
        if declared is None:
            whole = read_target(model_dir, whole_config, device, dtype, options.keep_quantised)
            draft_weights = (
                read_draft(draft_dir, draft_config, device, dtype, options.keep_quantised) if draft_config else None
            )
        else:
            whole = declared.target(whole_config, draft_config, device, dtype, options.keep_quantised)
            draft_weights = (
                declared.draft(draft_config, device, dtype, options.keep_quantised) if draft_config else None
            )
        draft_kept = draft_weights.kept if draft_weights is not None else {}
        shape = replace(shape, kept=whole.kept, draft_kept=draft_kept)
        shape.check_memory()
        target_share, draft_share = whole, draft_weights
        if options.world_size > 1:
            target_share = ShardedWeights(whole, whole_config, options.rank, options.world_size)
        if draft_config is not None and mine != draft_config:
            draft_share = ShardedWeights(draft_weights, draft_config, options.rank, options.world_size)
        eos = eos_token_ids(model_dir, target_config)
        engine = cls.assemble(shape, target_share, draft_share, eos)
        if declared is not None:
            made = [weights for weights in (whole, draft_weights) if weights is not None]
            engine.made_weights = declared.said() | {"sha256": fingerprint(*made)}
        return engine

    @classmethod
    def assemble(cls, shape: "EngineShape", target_weights, draft_weights, eos: tuple[int, ...]) -> "Engine":
        """An engine from weights by name, read or made."""
        operators = Operators(Routes(shape.options.rank))
        aux = shape.draft.target_layer_ids if shape.draft else ()
        target = Target(shape.target, target_weights, operators, aux)
        group = _join(shape)
        vocabulary = Vocabulary(shape.target.vocab_size, operators)
        if group is not None:
            parallelise(target, group, operators)
            vocabulary = ShardedVocabulary(shape.target.vocab_size, operators, group)
        drafter, draft_cache = None, None
        if shape.draft:
            drafter = Drafter(shape.draft, draft_weights, target.embedding, target.head, operators)
            if group is not None and isinstance(draft_weights, ShardedWeights):
                parallelise_draft(drafter, group, operators)
            draft_cache = DraftCache(shape.draft, shape.capacity, shape.dtype, shape.device)
        cache = PagedCache(shape.target, shape.capacity, shape.page_size, shape.cache_dtype, shape.device)
        memory = Memory(cache, StatePool(shape.target, shape.device, shape.dtype, shape.options.lookup_rows))
        graphs = Graphs(operators, shape.options.cuda_graphs and shape.device.type == "cuda")
        decoder = Decoder(
            target,
            drafter,
            memory,
            draft_cache,
            operators,
            vocabulary,
            shape.prefill_chunk,
            graphs,
            shape.options.context_pipeline,
            shape.options.prompt_state,
        )
        return cls(decoder, shape.options, shape.capacity, shape.kv_cache_dtype, eos, group)

    def counters(self) -> list[dict[str, Any]]:
        """Runs of each schedule since start, and what ranks had to send each other beside candidates."""
        return [*self.routes.counters(), *self.decoder.vocabulary.counters()]

    def round_bytes(self) -> dict[str, int]:
        """What a whole round must move through this device's memory at least (`runtime.engine.traffic`)."""
        return round_bytes(self.decoder, self.block_size)

    def unsound(self) -> str:
        """After an error in a request: what the next one could not rely on; empty where it can. RuntimeError where the
        device does not answer.
        """
        if self.device.type == "cuda":
            if torch.cuda.is_current_stream_capturing():
                return "a graph was being captured"
            torch.cuda.synchronize(self.device)  # an error inside a kernel spoils the whole context and comes back
        return self.decoder.memory.pool.taken()

    def generate(self, request: GenerateRequest) -> Iterator[Prefill | RoundRecord | Finish]:
        """Events of one request. Raises RuntimeFault; the engine stays usable.

        Requests share the caches, so one iterator at a time is open: a second raises RequestError where it begins.
        """
        config = self.decoder.target.config
        if request.speculation != "none" and self.decoder.drafter is None:
            raise RequestError("the checkpoint has no drafter/ folder; ask for speculation 'none'")
        generation = Generation(request, self.eos_ids, config.vocab_size, self.max_model_len, self.most_rows)
        return self._events(generation, request)

    def _events(self, generation: Generation, request: GenerateRequest) -> Iterator[Prefill | RoundRecord | Finish]:
        if self._answering:
            raise RequestError("the engine answers another request; exhaust or close its iterator first")
        state = self.decoder.memory.pool.acquire()
        self._answering = True
        try:
            yield self.decoder.prefill(generation, state)
            while generation.finish is None:
                if request.cancelled():
                    generation.finish = "cancelled"
                    break
                rows = generation.rows(self.block_size)
                yield self.decoder.operators.within("round", self.decoder.round, generation, state, rows)
            yield Finish(generation.finish)
        finally:
            self._answering = False
            self.decoder.memory.pool.release(state)


def _join(shape: EngineShape) -> Group | None:
    options = shape.options
    if options.world_size == 1:
        return None
    assert options.rendezvous is not None, "checked before"
    return Group(options.rank, options.world_size, shape.device, options.rendezvous, options.rank_timeout_s)
