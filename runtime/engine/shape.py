"""Everything that is decided before a tensor is made: what was asked for, what that takes, what is refused.

Knows configurations and byte counts; no weights, no requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from runtime.config import DraftConfig, TargetConfig
from runtime.engine import capacity
from runtime.engine.prompts import COMPUTED, PROMPT_STATES
from runtime.errors import ModelError
from runtime.memory.cache import CACHE_DTYPES, draft_ring, hybrid_pages
from runtime.models.parallel import RANK_TIMEOUT_S
from runtime.models.shapes import draft_shapes, target_shapes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ROWS, LOOKUP_ROWS = 8, (8, 16)
HOST_BUDGET, DEVICE_BUDGET = 4096, 16384  # tokens of a prefill chunk


@dataclass(frozen=True)
class EngineOptions:
    """None takes the checkpoint's context length, the model dtype for K/V, and the hybrid rule for the page size.

    `prompt_state` `snapshot` keeps the state after each prompt for requests of the same schedules that begin with the
    same one, `shared` computes each by the schedules that run unasked and keeps it for all.
    `prefill_budget` is the most tokens a prefill chunk has; None takes the device's own (`EngineShape.prefill_chunk`).
    `keep_quantised` keeps NVFP4 and FP8 linears so for the schedules that read them; else they are dequantised at load.
    `rank_timeout_s` is how long a publication through shared memory waits for a rank. `lookup_rows` is the most rows
    that a round of speculation `lookup` may verify, if its request asks for so many.
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
    lookup_rows: int = ROWS


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
        pages, _ = hybrid_pages(target, draft, CACHE_DTYPES[name], options.lookup_rows)
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
            self.target,
            self.draft,
            self.dtype,
            self.cache_dtype,
            self.capacity,
            self.page_size,
            self.options.lookup_rows,
        )
        parts["weights"] -= capacity.kept_saving(target_shapes(self.target), self.kept, self.dtype)
        if self.draft:
            parts["weights"] -= capacity.kept_saving(draft_shapes(self.draft), self.draft_kept, self.dtype)
        return parts

    def check_memory(self) -> None:
        capacity.check(self.required_bytes(), capacity.available_bytes(self.device), self.capacity)


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
    if options.lookup_rows != ROWS:
        _refuse_rows(options, draft)
    if draft is not None:
        _refuse_other_draft(target, draft)


def _refuse_rows(options: EngineOptions, draft: DraftConfig | None) -> None:
    rows = options.lookup_rows
    if rows not in LOOKUP_ROWS:
        raise ModelError(f"lookup_rows is {rows}; it is 8 or 16")
    if draft is None:
        raise ModelError(f"lookup_rows {rows} needs a drafter, and the checkpoint has no drafter/ folder; use 8")
    slots = min(draft_ring(draft, layer, rows) for layer in range(draft.num_hidden_layers))
    if slots < rows:
        raise ModelError(f"lookup_rows {rows} do not fit the drafter's window, which remembers {slots} tokens; use 8")
    if options.device.startswith("cuda"):
        raise ModelError(f"lookup_rows {rows} has not been run on CUDA yet; use 8, or --device cpu")
    if options.world_size > 1:
        raise ModelError(f"lookup_rows {rows} has not been run by several ranks yet; use 8, or one rank")


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
