"""Tiny checkpoints and engines for the runtime's tests, and the oracles that run in a child process of their own."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kernels import projection
from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine
from runtime.engine.sequence import Finish, GenerateRequest
from runtime.engine.shape import EngineOptions, EngineShape
from runtime.models.random_weights import random_weights
from runtime.models.shapes import Shapes, draft_shapes, target_shapes

ORACLES = Path(__file__).parent / "oracles"


def target_json(**changes: Any) -> dict[str, Any]:
    """A `config.json` of a tiny target; head counts and widths are odd on purpose."""
    raw = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": 131,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 12,
        "linear_conv_kernel_dim": 4,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25},
        "eos_token_id": 7,
    }
    return raw | changes


def draft_json(**changes: Any) -> dict[str, Any]:
    """A `config.json` of a tiny drafter for `target_json()`, in the public layout."""
    raw = {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "vocab_size": 131,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention"] * 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": 32,
        "use_sliding_window": True,
        "is_causal": False,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "max_position_embeddings": 4096,
        "num_target_layers": 4,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
        "dflash_config": {
            "block_size": 8,
            "mask_token_id": 3,
            "target_layer_ids": [0, 1, 2],
            "conv_kernel_size": 2,
            "conv_group_size": 8,
            "selector_rank": 12,
            "selector_top_k": 16,
        },
    }
    return raw | changes


def write_target(folder: Path, raw: dict[str, Any], seed: int = 1, prefix: str = "model.", shards: int = 1) -> Path:
    """A checkpoint with random weights; several shards come with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    weights = random_weights(target_shapes(TargetConfig.from_hf(raw)), seed)
    tensors = {name if name.startswith("lm_head") else prefix + name: weights[name].contiguous() for name in weights}
    names = list(tensors)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder
    files = {name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({n: tensors[n] for n in names if files[n] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


def write_drafter(folder: Path, raw: dict[str, Any], seed: int = 2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    weights = random_weights(draft_shapes(DraftConfig.from_hf(raw)), seed)
    save_file({name: weights[name].contiguous() for name in weights}, folder / "model.safetensors", {"format": "pt"})
    return folder


def weights_on(
    device: torch.device, shapes: Shapes, seed: int, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """Random weights, the same on every device because they are made on the CPU."""
    return {name: value.to(device) for name, value in random_weights(shapes, seed, dtype=dtype).items()}


def engine(
    target: dict[str, Any] | None = None,
    draft: dict[str, Any] | None = None,
    seeds: tuple[int, int] = (1, 2),
    routes: dict[str, str] | None = None,
    **options: Any,
) -> Engine:
    """An engine with random weights made in memory; `draft` {} leaves the drafter out."""
    target_config = TargetConfig.from_hf(target or target_json())
    draft_config = None if draft == {} else DraftConfig.from_hf(draft or draft_json())
    chosen = EngineOptions(**({"max_model_len": 512, "page_size": 16} | options))
    shape = EngineShape.of(target_config, draft_config, chosen)
    target_weights = weights_on(shape.device, target_shapes(target_config), seeds[0], shape.dtype)
    draft_weights = draft_config and weights_on(shape.device, draft_shapes(draft_config), seeds[1], shape.dtype)
    built = Engine.assemble(shape, target_weights, draft_weights, target_config.eos_token_ids)
    built.routes.enable(routes or {})
    return built


def answer(built: Engine, prompt: list[int], **request: Any) -> SimpleNamespace:
    """Tokens, the prefill record, round records and finish reason of one request."""
    events = list(built.generate(GenerateRequest(prompt, **({"eos_ids": ()} | request))))
    finish = events.pop().reason if isinstance(events[-1], Finish) else None
    tokens = [token for event in events for token in event.token_ids]
    return SimpleNamespace(tokens=tokens, prefill=events[0], rounds=events[1:], finish=finish)


def prompt_of(length: int, seed: int = 0, vocab: int = 131) -> list[int]:
    return torch.randint(8, vocab, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def run_oracle(script: str, work: Path, jobs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Run `oracles/<script>` over `jobs` in a child outside the repository, so that it never meets our `kernels`.

    Libraries that transformers would take instead of its own torch path can be imported there, and end the child.
    """
    for name in ("fla", "causal_conv1d"):
        (work / "taken" / name).mkdir(parents=True, exist_ok=True)
        (work / "taken" / name / "__init__.py").write_text(f"raise SystemExit('the oracle took {name}')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(work / "taken"), os.environ.get("PYTHONPATH", "")))}
    (work / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-P", str(ORACLES / script), str(work / "jobs.json"), str(work / "out.safetensors")]
    child = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert child.returncode == 0, child.stderr[-4000:]
    return load_file(work / "out.safetensors")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every test that builds something runs on the CPU and, under the `gpu` marker, on CUDA."""
    return torch.device(request.param)


@pytest.fixture(scope="session")
def make(device: torch.device) -> SimpleNamespace:
    """The builders above, for test modules; engines are built on `device`."""
    return SimpleNamespace(
        device=device,
        weights=partial(weights_on, device),
        target_json=target_json,
        draft_json=draft_json,
        write_target=write_target,
        write_drafter=write_drafter,
        engine=partial(engine, device=device.type),
        answer=answer,
        prompt_of=prompt_of,
        run_oracle=run_oracle,
    )


@pytest.fixture
def column_tiles(device: torch.device) -> None:
    """Skip where the column-tiled projections do not run; their guard knows."""
    weight = projection.DenseWeight(torch.zeros(32, 16, device=device))
    problem = projection.problem_of(torch.zeros(8, 16, device=device), weight)
    refusal = projection.OP.schedule("columns-32").refusal(problem)
    if refusal is not None:
        pytest.skip(refusal.reason)
