"""What one request asks of the engine, and what one step of it answers, as the API process knows them.

The engine's own types stay in the engine's process; these travel through `runtime.workers.protocol` as plain JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0 and top_p 1 cut nothing; min_p 0 cuts nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Penalties:
    """`presence` and `frequency` look at the answer so far, `repetition` at the prompt, too; `bias` is (id, addend)."""

    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    bias: tuple[tuple[int, float], ...] = ()


NO_PENALTIES = Penalties()


@dataclass(frozen=True)
class Speculation:
    """How an answer is drafted: by the drafter, by it and the request's own history, or not; `num_tokens` a round."""

    mode: str = "none"
    num_tokens: int = 0


@dataclass(frozen=True)
class Profiling:
    """Profile the rounds of a request; `trace` is the file that keeps the Chrome trace, empty for none."""

    trace: str = ""


@dataclass(frozen=True)
class Generation:
    """`max_tokens` counts generated tokens, the end-of-sequence token included.

    `grammar` is llguidance's, None for free text; it begins behind the token `grammar_after`, or at once. `logprobs`
    counts alternatives per token, None asks for nothing; they are of the model's softmax, or of the law that was
    sampled from. `eos_ids` cannot come before `min_tokens`. Text of `bad_words` is never completed.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    eos_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    grammar: str | None = None
    grammar_after: int | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = None
    logprobs_of_sampled_law: bool = False
    speculation: Speculation = Speculation()
    penalties: Penalties = NO_PENALTIES
    profiling: Profiling | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> Generation:
        lists = {name: tuple(item) for name, item in value.items() if isinstance(item, list)}
        asked, profiling = value["penalties"], value["profiling"]
        parts = {
            "sampling": Sampling(**value["sampling"]),
            "speculation": Speculation(**value["speculation"]),
            "penalties": Penalties(**{**asked, "bias": tuple(map(tuple, asked["bias"]))}),
            "profiling": None if profiling is None else Profiling(**profiling),
        }
        return Generation(**{**value, **lists, **parts})


class TokenLogprobs(NamedTuple):
    """Log-probability of a token, and (id, log-probability) of the most probable ones, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Step:
    """One emission of the engine: `kind` is prefill, spec or q1. Durations are nanoseconds; `ended_ns` is a stamp.

    `logprobs`, if asked for, has an entry per token. `profile` (`metrics.profile`) comes with the last step of a
    profiled request. `cached_tokens` of a prefill: tokens of a prompt whose state was copied back.
    """

    kind: str
    token_ids: tuple[int, ...]
    rows: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_ns: int = 0
    verify_ns: int = 0
    sample_ns: int = 0
    commit_ns: int = 0
    total_ns: int = 0
    ended_ns: int = 0
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    profile: dict[str, Any] | None = None
    cached_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> Step:
        known = {field.name: value[field.name] for field in fields(Step)}
        logprobs = tuple(TokenLogprobs(logprob, tuple(map(tuple, top))) for logprob, top in value["logprobs"])
        return Step(**{**known, "token_ids": tuple(value["token_ids"]), "logprobs": logprobs})

    def details(self) -> dict[str, Any]:
        """The record of `metrics.rounds`."""
        names = ("kind", "rows", "drafted", "accepted", "draft_ns", "verify_ns", "sample_ns", "commit_ns", "total_ns")
        return {name: getattr(self, name) for name in names} | {"emitted": len(self.token_ids)}
