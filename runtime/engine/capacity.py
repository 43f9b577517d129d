"""Whether a model and its caches fit the device, decided before the first request and said with the numbers."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from kernels.projection.nvfp4 import Nvfp4Weight
from runtime.config import DraftConfig, TargetConfig
from runtime.errors import CapacityError
from runtime.memory.cache import draft_cache_bytes, target_cache_bytes
from runtime.memory.state import state_bytes
from runtime.models.shapes import Shapes, draft_shapes, parameter_count, target_shapes

WORKSPACE = 0.05
PREFILL_SHARE = 0.5  # of what the model leaves free, for the activations of a prefill chunk
GIB = 2**30


def available_bytes(device: torch.device) -> int:
    """Free device memory, or what the host can still give (its cgroup's limit included)."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(rows["MemAvailable"].split()[0]) * 1024
    return min(free, _cgroup_bytes())


def total_bytes(device: torch.device) -> int:
    """Memory of a CUDA device, whoever uses it: the same at every start, as a chunk's size must be."""
    return torch.cuda.mem_get_info(device)[1]


def chunk_token_bytes(target: TargetConfig, dtype: torch.dtype) -> int:
    """What one token of a prefill chunk may need at once: an MLP's, or a GDN layer's in FP32, beside the stream."""
    mlp = 5 * target.intermediate_size * dtype.itemsize
    gdn = 4 * (2 * target.conv_dim + 12 * target.linear_num_value_heads * target.linear_key_head_dim)
    return max(mlp, gdn) + 12 * target.hidden_size * dtype.itemsize


def required_bytes(
    target: TargetConfig,
    draft: DraftConfig | None,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
    capacity: int,
    page_size: int,
    rows: int = 8,
) -> dict[str, int]:
    """Bytes by purpose: weights, K/V pages, draft window, states of `rows` rows for each of two requests."""
    shapes = parameter_count(target_shapes(target)) + (parameter_count(draft_shapes(draft)) if draft else 0)
    parts = {
        "weights": shapes * dtype.itemsize,
        "K/V cache": target_cache_bytes(target, capacity, page_size, cache_dtype),
        "states": state_bytes(target, rows, 2, dtype),
    }
    if draft:
        parts["draft window"] = draft_cache_bytes(draft, capacity, dtype)
    return parts


def kept_saving(shapes: Shapes, kept: Mapping[str, str], dtype: torch.dtype) -> int:
    """Bytes that the tensors under `kept` need less as codes of the format it names."""
    return sum(
        n * k * dtype.itemsize - code_bytes(form, n, k) for name, form in kept.items() for n, k in (shapes[name],)
    )


def code_bytes(form: str, n: int, k: int) -> int:
    """4-bit codes with one scale byte per 16 of them, or 8-bit ones with an FP32 scale per row."""
    return n * k * 9 // 16 if form == Nvfp4Weight.format else n * k + 4 * n


def check(parts: dict[str, int], available: int, capacity: int) -> None:
    """Refuse what does not fit with a twentieth to spare for workspaces."""
    needed = int(sum(parts.values()) * (1 + WORKSPACE))
    if needed > available:
        listed = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items())
        raise CapacityError(
            f"max_model_len {capacity} needs {needed / GIB:.2f} GiB ({listed}; 5 % spare) and {available / GIB:.2f} "
            "GiB are free; lower --max-model-len or choose a smaller --kv-cache-dtype"
        )


def _cgroup_bytes() -> int:
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not limit.is_file() or limit.read_text().strip() == "max":
        return 2**63 - 1
    return int(limit.read_text()) - int(used.read_text())
