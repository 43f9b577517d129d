"""One training run from nothing to a checkpoint folder, resumable after each stage and every few hundred steps.

Stages: vocabulary, target, drafter, folder. The state of the run lies in `work`; the same seed draws the same text.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from runtime.config import DraftConfig, TargetConfig
from runtime.models.shapes import draft_shapes, target_shapes
from runtime.training import presets, vocabulary
from runtime.training.draft_training import DraftTrainer
from runtime.training.presets import Preset, Schedule
from runtime.training.target_training import Leaves, TargetTrainer, assemble, initial_leaves
from runtime.training.tasks.catalogue import all_templates
from runtime.training.tasks.exercise import split
from runtime.training.text import Batch, RowSource, batches, texts

_VOCABULARY_TEXTS = 20000
_ROWS_PER_SHARD = 4096
_SAVE_EVERY = 2000
_REPORT_EVERY = 200

Shard = list[tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Job:
    preset: Preset
    output: Path
    work: Path
    device: str
    threads: int
    workers: int
    seed: int
    steps_scale: float


def train_checkpoint(job: Job) -> None:
    torch.set_num_threads(job.threads)
    torch.backends.cuda.matmul.allow_tf32 = True
    job.work.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    tokenizer = _vocabulary(job)
    target = _train_target(job, tokenizer)
    drafter = _train_drafter(job, tokenizer, target)
    _write_checkpoint(job, tokenizer, target, drafter)
    print(f"wrote {job.output} in {time.monotonic() - started:.0f} s")


def _vocabulary(job: Job) -> Tokenizer:
    path = job.work / "tokenizer.json"
    if not path.exists():
        training, _ = split(all_templates(job.preset.kinds, job.preset.edition))
        started = time.monotonic()
        lines = texts(training, job.seed, _VOCABULARY_TEXTS)
        vocabulary.train(lines, job.preset.shape.vocab_size).save(str(path))
        print(f"vocabulary: {time.monotonic() - started:.0f} s", flush=True)
    return Tokenizer.from_file(str(path))


def _train_target(job: Job, tokenizer: Tokenizer) -> Leaves:
    config = TargetConfig.from_hf(_target_json(job, tokenizer))
    device = torch.device(job.device)
    leaves = initial_leaves(target_shapes(config), config.num_hidden_layers, True, job.seed, device)
    trainer = TargetTrainer(config, leaves, _scaled(job.preset.target, job), _compute_type(device))
    _train("target", job, trainer, tokenizer)
    return leaves


def _train_drafter(job: Job, tokenizer: Tokenizer, target_leaves: Leaves) -> Leaves:
    target_config = TargetConfig.from_hf(_target_json(job, tokenizer))
    config = DraftConfig.from_hf(_draft_json(job, tokenizer))
    device = torch.device(job.device)
    frozen = {name: _stored(name, leaf).to(leaf.dtype) for name, leaf in target_leaves.items()}
    target = assemble(target_config, frozen, _compute_type(device), config.target_layer_ids)
    leaves = initial_leaves(draft_shapes(config), config.num_hidden_layers, False, job.seed + 1, device)
    schedule = _scaled(job.preset.draft, job)
    trainer = DraftTrainer(config, leaves, target, schedule, job.preset.anchors, job.seed)
    _train("drafter", job, trainer, tokenizer)
    return leaves


def _train(name: str, job: Job, trainer: Any, tokenizer: Tokenizer) -> None:
    """Run `trainer` to the end of its schedule, from where its saved state stopped."""
    state = job.work / f"{name}.pt"
    if state.exists():
        _resume(trainer, torch.load(state, map_location=job.device, weights_only=True))
    watch = _Watch(name, trainer)

    def report(step: int, loss: Tensor) -> None:
        watch(step, loss)
        if (step + 1) % _SAVE_EVERY == 0:
            _save(trainer, state)

    seed = job.seed * 7919 + trainer.step + (0 if name == "target" else 1 << 20)
    trainer.run(_batch_stream(job, tokenizer, trainer.schedule.lanes, seed), report)
    _save(trainer, state)
    watch.close()


def _save(trainer: Any, path: Path) -> None:
    leaves = {name: leaf.detach() for name, leaf in trainer.leaves.items()}
    temporary = path.with_suffix(".part")
    torch.save(
        {
            "step": trainer.step,
            "steps": trainer.schedule.steps,
            "leaves": leaves,
            "optimiser": trainer.optimiser.state_dict(),
        },
        temporary,
    )
    temporary.replace(path)


def _resume(trainer: Any, state: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, leaf in trainer.leaves.items():
            leaf.copy_(state["leaves"][name])
    trainer.optimiser.load_state_dict(state["optimiser"])
    trainer.step = state["step"]
    trainer.schedule = replace(trainer.schedule, steps=state["steps"])


def _batch_stream(job: Job, tokenizer: Tokenizer, num_lanes: int, seed: int) -> Iterator[Batch]:
    """Endless batches on the device. With workers, shards of them are made ahead in other processes."""
    for shard in _shards(job, tokenizer, num_lanes, seed):
        for parts in shard:
            yield Batch(*(_moved(torch.from_numpy(part), job.device).long() for part in parts))


def _moved(part: Tensor, device: str) -> Tensor:
    return part if device == "cpu" else part.pin_memory().to(device, non_blocking=True)


def _shards(job: Job, tokenizer: Tokenizer, num_lanes: int, seed: int) -> Iterator[Shard]:
    make = partial(_shard, job.preset, tokenizer.to_str(), num_lanes)
    seeds = (seed * 100_003 + index for index in range(1 << 40))
    if not job.workers:
        yield from map(make, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(job.workers) as pool:
        pending = deque(pool.apply_async(make, (next(seeds),)) for _ in range(2 * job.workers))
        while True:
            pending.append(pool.apply_async(make, (next(seeds),)))
            yield pending.popleft().get()


def _shard(preset: Preset, tokenizer_json: str, num_lanes: int, seed: int) -> Shard:
    """Some thousand exercises as batches of 16-bit ids: they cross a pipe."""
    training, _ = split(all_templates((*preset.kinds, *preset.drills), preset.edition))
    tokenizer = Tokenizer.from_str(tokenizer_json)
    rows = RowSource(training, tokenizer, preset.max_length, seed).take(_ROWS_PER_SHARD)
    pad_id = tokenizer.token_to_id(vocabulary.END_OF_TEXT)
    made = batches(rows, num_lanes, preset.max_length, pad_id, seed)
    return [tuple(part.short().numpy() for part in (batch.ids, batch.targets, batch.rows)) for batch in made]


def _write_checkpoint(job: Job, tokenizer: Tokenizer, target: Leaves, drafter: Leaves) -> None:
    draft_folder = job.output / "drafter"
    draft_folder.mkdir(parents=True, exist_ok=True)
    target_json = _target_json(job, tokenizer)
    generation = {
        "eos_token_id": target_json["eos_token_id"],
        "pad_token_id": target_json["pad_token_id"],
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 20,
        "top_p": 0.95,
    }
    _write_json(job.output / "config.json", target_json)
    _write_json(job.output / "generation_config.json", generation)
    _write_json(draft_folder / "config.json", _draft_json(job, tokenizer))
    vocabulary.write(tokenizer, job.output, job.preset.shape.capacity)
    prefixed = {f"model.{name}": _stored(name, leaf) for name, leaf in target.items()}
    save_file(prefixed, job.output / "model.safetensors", metadata={"format": "pt"})
    stored = {name: _stored(name, leaf) for name, leaf in drafter.items()}
    save_file(stored, draft_folder / "model.safetensors", metadata={"format": "pt"})


def _stored(name: str, leaf: Tensor) -> Tensor:
    """As the file holds it: BF16, the decay parameters FP32."""
    value = leaf.detach()
    return value.clone() if name.endswith(("A_log", "dt_bias")) else value.to(torch.bfloat16)


def _target_json(job: Job, tokenizer: Tokenizer) -> dict[str, Any]:
    eos_ids = [tokenizer.token_to_id(token) for token in (vocabulary.END_OF_TURN, vocabulary.END_OF_TEXT)]
    return presets.target_config(job.preset.shape, eos_ids, eos_ids[1])


def _draft_json(job: Job, tokenizer: Tokenizer) -> dict[str, Any]:
    return presets.draft_config(job.preset.shape, tokenizer.token_to_id(vocabulary.MASK))


def _compute_type(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _scaled(schedule: Schedule, job: Job) -> Schedule:
    steps = max(1, int(schedule.steps * job.steps_scale))
    return replace(schedule, steps=steps, warm_up=min(schedule.warm_up, steps // 4))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


class _Watch:
    """Prints the mean loss now and then; reads the device only when it prints."""

    def __init__(self, name: str, trainer: Any) -> None:
        self._name, self._trainer = name, trainer
        self._losses: list[Tensor] = []
        self._started = time.monotonic()

    def __call__(self, step: int, loss: Tensor) -> None:
        self._losses.append(loss)
        if (step + 1) % _REPORT_EVERY == 0:
            mean = torch.stack(self._losses).mean().item()
            self._losses.clear()
            elapsed = time.monotonic() - self._started
            print(f"{self._name} {step + 1}/{self._trainer.schedule.steps} loss {mean:.4f} {elapsed:.0f} s", flush=True)

    def close(self) -> None:
        print(f"{self._name}: {time.monotonic() - self._started:.0f} s", flush=True)
