"""Random weights whose drafter agrees with its target at a chosen rate, by construction: synthetic acceptance.

Every token belongs to a class (its id modulo their number) and its embedding row points in its class's direction, on
coordinates of its own, so strongly that the random layers do not turn it. The head's only loud rows are one spoken
token a class, and answer the class before: the target follows a cycle of classes with probability `MAIN` and jumps
elsewhere in the other cases, once in a while to the end of the sequence. The drafter's selector follows the same cycle
by its codebooks, but for every `accepted + 1`-th class, where it proposes the class after next. Layers, shapes and
launches are those of any random model, and verification is exact as ever: what it rejects is really wrong.

So a greedy round accepts `accepted` drafts; under sampling jumps change where a block begins, and about that many are.
Nothing that such a model says means anything.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from runtime.config import DraftConfig, TargetConfig
from runtime.errors import ModelError
from runtime.models.layers import Weight
from runtime.models.random_weights import RandomWeights

RATES = range(3, 7)
MAIN = 0.9  # of the next class in the target's law at temperature 1
LOUD = 30.0  # logits of spoken tokens above all others
QUIET = 0.05  # what is random in tensors that the construction fills
MOST_CLASSES = 16  # of the cycle and the end, no more than a drafter's candidates


class Cycle:
    """Classes 0 to `length - 1` follow one another; class `length` is the end of the sequence."""

    def __init__(self, accepted: int, vocab_size: int, hidden: int) -> None:
        self.step = accepted + 1
        self.length = (MOST_CLASSES - 1) // self.step * self.step
        self.num_classes, self.vocab_size, self.hidden = self.length + 1, vocab_size, hidden
        self.first = vocab_size // 2 // self.num_classes * self.num_classes  # spoken tokens lie far from special ones
        if vocab_size < 4 * self.num_classes or hidden < self.num_classes:
            raise ModelError(f"agreement needs a vocabulary of {4 * self.num_classes} and {self.num_classes} channels")

    @property
    def end(self) -> int:
        """The token that ends an answer."""
        return self.first + self.length

    @property
    def gain(self) -> float:
        """Logit of the next class above the others in the cycle, and the end."""
        return math.log(MAIN / (1 - MAIN) * self.length)

    def direction(self, group: int, device: torch.device) -> Tensor:
        """[H], root mean square 1, zero outside the class's own coordinates."""
        own = torch.arange(self.hidden, device=device) % self.num_classes == group
        return own.float() * math.sqrt(self.hidden / int(own.sum()))

    def directions(self, device: torch.device) -> Tensor:
        return torch.stack([self.direction(group, device) for group in range(self.num_classes)])

    def classes(self, device: torch.device) -> Tensor:
        """Class of every token [V]."""
        return torch.arange(self.vocab_size, device=device) % self.num_classes

    def drafted(self, group: int) -> int:
        """What the drafter takes for the class after `group`."""
        return (group + 1 + (group % self.step == 0)) % self.length


class Agreeing(Mapping[str, Weight]):
    """`weights` with some of its tensors `replaced`."""

    def __init__(self, weights: Mapping[str, Weight], replaced: Mapping[str, Tensor]) -> None:
        self.weights, self.replaced = weights, replaced
        kept: Mapping[str, str] = getattr(weights, "kept", {})
        self.kept = {name: form for name, form in kept.items() if name not in replaced}

    def __getitem__(self, name: str) -> Weight:
        return self.replaced[name] if name in self.replaced else self.weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)


def agreeing_target(
    weights: Mapping[str, Weight], dense: RandomWeights, config: TargetConfig, mask_id: int, cycle: Cycle
) -> Agreeing:
    """Embedding and head; the mask token's row points nowhere in particular, so that it prefers no class."""
    if config.tie_word_embeddings:
        raise ModelError("agreement needs a head of its own; tie_word_embeddings is true")
    device, every = dense.device, cycle.directions(dense.device)
    loudness = 16 * math.sqrt(config.num_hidden_layers)  # against what the layers add to the stream
    embedding = dense["embed_tokens.weight"].float() * QUIET + every[cycle.classes(device)] * loudness
    embedding[mask_id] = loudness
    head = dense["lm_head.weight"].float() * QUIET
    common = every.mean(0) * (LOUD * cycle.num_classes / cycle.hidden)
    for group in range(cycle.num_classes):
        head[cycle.first + group] += common
        if group < cycle.length:
            before = (group - 1) % cycle.length
            head[cycle.first + group] += every[before] * (cycle.gain / cycle.hidden)
    replaced = {"embed_tokens.weight": embedding, "lm_head.weight": head}
    return Agreeing(weights, {name: value.to(dense.dtype) for name, value in replaced.items()})


def agreeing_draft(weights: Mapping[str, Weight], dense: RandomWeights, config: DraftConfig, cycle: Cycle) -> Agreeing:
    """The selector's tensors and the last norm: a row of masks projects to ones, and codebooks hold the cycle."""
    if config.selector_rank < cycle.num_classes or config.selector_top_k < cycle.num_classes:
        raise ModelError(
            f"agreement needs a selector of rank and top-k {cycle.num_classes}; the drafter's has "
            f"{config.selector_rank} and {config.selector_top_k}"
        )
    device, n, name = dense.device, cycle.num_classes, "candidate_selector"
    projection = _quiet(dense, f"{name}.hidden_projection.weight")
    projection[:n] = 1 / cycle.hidden
    predecessors, successors = (_quiet(dense, f"{name}.{side}_codebook") for side in ("predecessor", "successor"))
    predecessors[:, :n] = torch.nn.functional.one_hot(cycle.classes(device), n).float()
    successors[:, :n] = 0
    for group in range(cycle.length):
        successors[cycle.first + cycle.drafted(group), group] = cycle.gain
    replaced = {
        f"{name}.hidden_projection.weight": projection,
        f"{name}.predecessor_codebook": predecessors,
        f"{name}.successor_codebook": successors,
        "norm.weight": torch.ones(config.hidden_size, device=device),
    }
    return Agreeing(weights, {name: value.to(dense.dtype) for name, value in replaced.items()})


def _quiet(dense: RandomWeights, name: str) -> Tensor:
    return dense[name].float() * QUIET
