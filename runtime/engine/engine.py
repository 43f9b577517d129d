"""The engine of one rank: it loads a checkpoint, owns the memory, and answers one request at a time.

    engine = Engine.load(Path("model"), EngineOptions())
    for event in engine.generate(GenerateRequest(prompt_ids=[1, 2, 3])):
        ...  # one Prefill, then RoundRecords, then one Finish

Knows no HTTP, no text and no queue. Closing the iterator early gives the request's slots back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from kernels.routes import Routes
from runtime.config import DraftConfig, TargetConfig, eos_token_ids, read_json
from runtime.engine import capacity
from runtime.engine.graphs import Graphs
from runtime.engine.prompts import COMPUTED, PROMPT_STATES
from runtime.engine.round import Decoder
from runtime.engine.sequence import Finish, GenerateRequest, Generation, Prefill, RoundRecord
from runtime.engine.traffic import round_bytes
from runtime.engine.vocabulary import ShardedVocabulary, Vocabulary
from runtime.errors import ModelError, RequestError
from runtime.memory.cache import CACHE_DTYPES, DraftCache, PagedCache, hybrid_pages
from runtime.memory.state import StatePool
from runtime.models.drafter import Drafter
from runtime.models.parallel import (
    RANK_TIMEOUT_S,
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
from runtime.models.weights import draft_shapes, read_draft, read_target, target_shapes
from runtime.operators import Operators

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ROWS = 8
HOST_BUDGET, DEVICE_BUDGET = 4096, 16384  # tokens of a prefill chunk


@dataclass(frozen=True)
class EngineOptions:
    """None takes the checkpoint's context length, the model dtype for K/V, and the hybrid rule for the page size.

    `prompt_state` `snapshot` keeps the state after each prompt for requests of the same schedules that begin with the
    same one, `shared` computes each by the schedules that run unasked and keeps it for all.
    `prefill_budget` is the most tokens a prefill chunk has; None takes the device's own (`EngineShape.prefill_chunk`).
    `keep_quantised` keeps NVFP4 and FP8 linears so for the schedules that read them; else they are dequantised at load.
    `rank_timeout_s` is how long a publication through shared memory waits for a rank.
    """

    max_model_len: int | None = None
    device: str = "cpu"
    dtype: str = "float32"
    kv_cache_dtype: str | None = None
    page_size: int | None = None
    prefill_budget: int | None = None
    context_pipeline: bool = True
    keep_quantised: bool = False
    cuda_graphs: bool = True
    prompt_state: str = COMPUTED
    rank: int = 0
    world_size: int = 1
    rendezvous: str | None = None
    rank_timeout_s: float = RANK_TIMEOUT_S


class Engine:
    """`max_model_len` tokens of prompt and answer; `block_size` rows a round; `routes` choose the schedules.

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
        memory = Memory(cache, StatePool(shape.target, shape.device, shape.dtype, ROWS))
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
        generation = Generation(request, self.eos_ids, config.vocab_size, self.max_model_len)
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


@dataclass(frozen=True)
class EngineShape:
    """Everything that is decided before a tensor is made. `kept`, `draft_kept`: what stays codes, of which format."""

    target: TargetConfig
    draft: DraftConfig | None
    options: EngineOptions
    capacity: int
    page_size: int
    kv_cache_dtype: str
    kept: Mapping[str, str] = field(default_factory=dict)
    draft_kept: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, target: TargetConfig, draft: DraftConfig | None, options: EngineOptions) -> "EngineShape":
        _refuse(options, target, draft)
        name = options.kv_cache_dtype or options.dtype
        pages, _ = hybrid_pages(target, draft, CACHE_DTYPES[name], ROWS)
        limit = options.max_model_len or target.max_position_embeddings
        return cls(target, draft, options, limit, options.page_size or pages, name)

    @property
    def device(self) -> torch.device:
        return torch.device(self.options.device)

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.options.dtype]

    @property
    def cache_dtype(self) -> torch.dtype:
        return CACHE_DTYPES[self.kv_cache_dtype]

    @property
    def prefill_chunk(self) -> int:
        """Tokens per prefill chunk: the budget, cut at a page multiple where a page fits into it."""
        budget = self.options.prefill_budget or self._budget()
        return budget // self.page_size * self.page_size or budget

    def _budget(self) -> int:
        """On a GPU as many as were fastest, where the device's whole memory leaves room for them beside the model."""
        if self.device.type != "cuda":
            return HOST_BUDGET
        room = capacity.total_bytes(self.device) - sum(self.required_bytes().values())
        fits = int(room * capacity.PREFILL_SHARE) // capacity.chunk_token_bytes(self.target, self.dtype)
        return max(HOST_BUDGET, min(DEVICE_BUDGET, fits))

    def required_bytes(self) -> dict[str, int]:
        """Bytes by purpose."""
        parts = capacity.required_bytes(
            self.target, self.draft, self.dtype, self.cache_dtype, self.capacity, self.page_size
        )
        parts["weights"] -= capacity.kept_saving(target_shapes(self.target), self.kept, self.dtype)
        if self.draft:
            parts["weights"] -= capacity.kept_saving(draft_shapes(self.draft), self.draft_kept, self.dtype)
        return parts

    def check_memory(self) -> None:
        capacity.check(self.required_bytes(), capacity.available_bytes(self.device), self.capacity)


def _join(shape: EngineShape) -> Group | None:
    options = shape.options
    if options.world_size == 1:
        return None
    assert options.rendezvous is not None, "checked before"
    return Group(options.rank, options.world_size, shape.device, options.rendezvous, options.rank_timeout_s)


def _refuse(options: EngineOptions, target: TargetConfig, draft: DraftConfig | None) -> None:
    if options.dtype not in DTYPES:
        raise ModelError(f"dtype {options.dtype!r} is unknown; choose from {', '.join(DTYPES)}")
    if options.kv_cache_dtype is not None and options.kv_cache_dtype not in CACHE_DTYPES:
        raise ModelError(f"kv_cache_dtype {options.kv_cache_dtype!r} is unknown; choose from {', '.join(CACHE_DTYPES)}")
    if options.prompt_state not in PROMPT_STATES:
        raise ModelError(f"prompt_state {options.prompt_state!r} is unknown; choose from {', '.join(PROMPT_STATES)}")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"device {options.device!r} was asked for and torch sees no CUDA device; use --device cpu")
    if options.world_size > 1 and options.rendezvous is None:
        raise ModelError("tensor-parallel ranks need a rendezvous file")
    limit = options.max_model_len
    if limit is not None and not 2 <= limit <= target.max_position_embeddings:
        raise ModelError(
            f"max_model_len {limit} is outside 2..{target.max_position_embeddings}, the checkpoint's positions"
        )
    if draft is not None:
        _refuse_other_draft(target, draft)


def _refuse_other_draft(target: TargetConfig, draft: DraftConfig) -> None:
    """The drafter borrows the target's embedding and head, and reads hidden states behind some of its layers."""
    for name in ("vocab_size", "hidden_size"):
        if getattr(draft, name) != getattr(target, name):
            raise ModelError(f"the drafter's {name} is {getattr(draft, name)}, the target's is {getattr(target, name)}")
    # The last layer is left out: implementations differ in whether its state is taken before or after the final norm.
    if not draft.target_layer_ids or not all(0 <= i < target.num_hidden_layers - 1 for i in draft.target_layer_ids):
        raise ModelError(
            f"the drafter reads target layers {list(draft.target_layer_ids)}; "
            f"layers 0 to {target.num_hidden_layers - 2} can be read"
        )
