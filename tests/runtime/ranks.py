"""One rank of a small group, for `test_parallel.py`: runs the same jobs as the other ranks and saves what it found.

    python tests/runtime/ranks.py RANK SIZE RENDEZVOUS OUTPUT TOKENS

`jobs` with a size of 1 makes no group: what it returns is what the others are compared with.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from kernels.accept import separate
from kernels.projection import nvfp4
from kernels.routes import Routes
from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine
from runtime.engine.sequence import GenerateRequest
from runtime.engine.shape import EngineOptions, EngineShape
from runtime.engine.vocabulary import ShardedVocabulary, Vocabulary
from runtime.models.parallel import Group, ShardedWeights, shard_config, shard_draft
from runtime.models.quant import quantisable
from runtime.models.random_weights import random_weights
from runtime.models.shapes import draft_shapes, target_shapes
from runtime.operators import Operators
from runtime.speculation.penalties import Penalties
from runtime.speculation.sampling import SamplingParams
from runtime.workers.worker import RankMismatch, Worker

VOCAB = 132
SAMPLERS = {
    "greedy": SamplingParams(temperature=0),
    "top-20": SamplingParams(top_k=20, top_p=0.95, seed=5),
    "top-5": SamplingParams(temperature=0.8, top_k=5, seed=6),
    "no top-k": SamplingParams(top_p=0.9, seed=7),
}


ASKED = {"plain": list(SAMPLERS), "twins": ["greedy", "top-5"], "4-bit": ["greedy"]}


def builders() -> Any:
    path = Path(__file__).with_name("conftest.py")
    spec = importlib.util.spec_from_file_location("builders", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def twins(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Head rows that come again in the other half of the vocabulary: every logit has an equal in another shard."""
    half = weights["lm_head.weight"][: VOCAB // 2]
    return dict(weights) | {"lm_head.weight": torch.cat((half, half))}


def four_bit(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: nvfp4.quantise(value) if quantisable(name) else value for name, value in weights.items()}


MODELS: dict[str, Callable[[Mapping[str, Tensor]], Mapping[str, Any]]] = {
    "plain": lambda weights: weights,
    "twins": twins,
    "4-bit": four_bit,
}


def engine(rank: int, size: int, rendezvous: str, model: str) -> Engine:
    make = builders()
    changes = {"num_attention_heads": 8, "num_key_value_heads": 4}
    changes |= {"linear_num_key_heads": 4, "linear_num_value_heads": 8, "vocab_size": VOCAB}
    changes |= {"linear_value_head_dim": 16, "intermediate_size": 128}  # whole groups of 4-bit weights for every rank
    changes |= {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    dflash = make.draft_json()["dflash_config"] | {"target_layer_ids": [0]}
    config = TargetConfig.from_hf(make.target_json(**changes))
    draft = DraftConfig.from_hf(make.draft_json(vocab_size=VOCAB, num_target_layers=2, dflash_config=dflash))
    options = EngineOptions(max_model_len=256, page_size=16, rank=rank, world_size=size, rendezvous=rendezvous)
    weights = MODELS[model](random_weights(target_shapes(config), 1))
    shape = EngineShape.of(shard_config(config, size), shard_draft(draft, size), options)
    drafter = random_weights(draft_shapes(draft), 2)
    if size > 1:
        weights = ShardedWeights(weights, config, rank, size)
    if shape.draft != draft:
        drafter = ShardedWeights(drafter, draft, rank, size)
    return Engine.assemble(shape, weights, drafter, ())


class EvenOnly:
    """A gate that allows even ids, and the odd ones of the first shard behind a draft."""

    def allowed(self, drafts: Sequence[int]) -> Tensor:
        rows = (torch.arange(VOCAB) % 2 == 0).expand(len(drafts) + 1, -1).clone()
        rows[1:, : VOCAB // 4] = True
        return rows

    def advance(self, tokens: Sequence[int]) -> None:
        pass


# Token 100 lies in the last shard, 5 in the first.
PENALTIES = Penalties(presence=0.5, frequency=0.3, repetition=1.2, bias=((5, 2.0), (100, 2.0)))
CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "free": dict,
    "masked": lambda: {"gate": EvenOnly()},
    "penalised": lambda: {"penalties": PENALTIES},
}


def answers(built: Engine, samplers: Sequence[str], num_tokens: int) -> dict[str, Any]:
    prompt = builders().prompt_of(30, vocab=VOCAB)
    found: dict[str, Any] = {}
    for name in samplers:
        for kind, changes in CHANGES.items():
            before = gathered(built)
            request = GenerateRequest(prompt, SAMPLERS[name], max_tokens=num_tokens, eos_ids=(), **changes())
            tokens = [token for event in built.generate(request) for token in getattr(event, "token_ids", ())]
            found[f"{name}, {kind}"] = (tokens, gathered(built) - before)
    return found


def published(built: Engine, num_tokens: int) -> dict[str, Any]:
    """The greedy answers where partial products travel through shared memory, and how often they did."""
    built.routes.enable({"publication": "cpu-shared"})
    said = answers(built, ["greedy"], num_tokens)
    built.routes.enable({})
    hits = {row["schedule"]: row["hits"] for row in built.counters() if row["operator"] == "publication"}
    return {"answers": {name: tokens for name, (tokens, _) in said.items()}, "hits": hits}


def gathered(built: Engine) -> int:
    return sum(row["hits"] for row in built.counters() if row["operator"] == "vocabulary")


def rows_of_logits() -> dict[str, Tensor]:
    """Rows [6, 40]: hardly any ties, many, nothing but ties, shards that are empty, and rows without an order."""
    generator = torch.Generator().manual_seed(0)
    levels = {str(n): torch.randint(0, n, (6, 40), generator=generator).float() for n in (10_000, 5, 1)}
    empty = levels["5"].clone()
    empty[:3, :20], empty[3:, 20:] = float("-inf"), float("-inf")
    broken = levels["5"].clone()
    broken[2, 33] = float("nan")
    return levels | {"empty shards": empty, "nan": broken, "nothing": torch.full((6, 40), float("-inf"))}


def selections(group: Group | None) -> dict[str, Any]:
    operators = Operators(Routes())
    vocabulary = ShardedVocabulary(40, operators, group) if group else Vocabulary(40, operators)
    allowed = torch.rand(6, 40, generator=torch.Generator().manual_seed(1)) < 0.3
    found: dict[str, Any] = {}
    for name, whole in rows_of_logits().items():
        own = whole.chunk(group.size, -1)[group.rank].contiguous() if group else whole
        found[f"{name}: broken"] = bool(separate.broken(vocabulary.largest(own)))
        found[f"{name}: whole"] = vocabulary.whole(own)
        for k in (1, 3, 9, 10, 20, 39, 40) if name != "nan" else ():
            found[f"{name}: best {k}"] = tuple(vocabulary.best(own, k))
            found[f"{name}: best {k} masked"] = tuple(vocabulary.best(vocabulary.masked(own, allowed), k))
    return found


def audits(built: Engine) -> dict[str, bool]:
    """Whether equal tokens pass, and whether one rank that differs is noticed by every rank."""
    assert built.group is not None
    worker = Worker(built, None, None, audit_ranks=True)
    noticed = False
    worker._audit([3, 4])
    try:
        worker._audit([3, 4 if built.group.rank else 5])
    except RankMismatch:
        noticed = True
    return {"notices a rank that differs": noticed}


def jobs(rank: int, size: int, rendezvous: str, num_tokens: int) -> dict[str, Any]:
    found = SimpleNamespace(answers={}, selections={}, audits={}, published={})
    for model in MODELS:
        built = engine(rank, size, f"{rendezvous}-{model}", model)
        found.answers[model] = answers(built, ASKED[model], num_tokens)
        if built.group is not None:
            found.audits = audits(built)
            found.published[model] = published(built, num_tokens)
            found.selections = selections(built.group)
            built.group.close()
    if size == 1:
        found.selections = selections(None)
    return vars(found)


def main() -> None:
    rank, size, rendezvous, output = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    torch.save(jobs(rank, size, rendezvous, int(sys.argv[5])), output)


if __name__ == "__main__":
    main()
