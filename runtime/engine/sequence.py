"""One request as it grows: its tokens, its stopping rules, and the records that leave the engine.

Knows no models and no memory. Position i holds `tokens[i]`; the last token is the *bonus*: it is
known, and its keys, values and state are not computed yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kernels.noise import signed
from runtime.errors import CapacityError, RequestError
from runtime.speculation.logprobs import LogprobsOrder, TokenLogprobs
from runtime.speculation.modes import MODES
from runtime.speculation.penalties import History, Penalties
from runtime.speculation.sampling import SamplingParams
from runtime.speculation.second_block import SecondBlock


class TokenGate(Protocol):
    """Which tokens a grammar allows; called once per round."""

    def allowed(self, drafts: Sequence[int]) -> Tensor:
        """Bool [len(drafts) + 1, V]: row i after the emitted tokens and the first i drafts.

        A row behind a draft that is not allowed itself may hold anything.
        """

    def advance(self, tokens: Sequence[int]) -> None:
        """These tokens were emitted."""


@dataclass(frozen=True)
class GenerateRequest:
    """`eos_ids` None means the checkpoint's own, () means none. `max_tokens` None means up to capacity.

    `speculation` is one of `runtime.speculation.modes`; None for `num_speculative_tokens` means as many as the
    drafter's block has, and only `lookup` verifies more, up to the engine's `most_rows`. `logprobs` asks for the
    log-probability of every token and of that many alternatives. `penalties` change the target's logits by the tokens
    that came before.
    """

    prompt_ids: Sequence[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    eos_ids: Sequence[int] | None = None
    gate: TokenGate | None = None
    cancelled: Callable[[], bool] = lambda: False
    speculation: str = "dflash"
    num_speculative_tokens: int | None = None
    logprobs: LogprobsOrder | None = None
    penalties: Penalties | None = None


@dataclass(frozen=True)
class Prefill:
    """The prompt was computed and its first `token_ids` drawn. Nanoseconds; `ended_ns` is a monotonic stamp."""

    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    prefill_ns: int
    ended_ns: int
    cached_tokens: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True)
class RoundRecord:
    """One round. `token_ids` left the engine; `accepted` drafts may reach beyond them where the sequence ended.

    `routes` lists (operator, schedule, runs) of this round. On CUDA the four phases are device times; `total_ns` is the
    host's from start to end.
    """

    kind: str
    rows: int
    drafted: int
    accepted: int
    token_ids: tuple[int, ...]
    draft_ns: int
    verify_ns: int
    sample_ns: int
    commit_ns: int
    total_ns: int
    ended_ns: int
    routes: tuple[tuple[str, str, int], ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True)
class Finish:
    """`reason` is `stop` (end of sequence), `length` (max_tokens or capacity) or `cancelled`."""

    reason: str


class Bonus(NamedTuple):
    """The last token, its position and the request's noise key on the device, int64 [1] each."""

    token: Tensor
    position: Tensor
    seed: Tensor

    @classmethod
    def of(cls, packed: Tensor) -> "Bonus":
        """Views of one tensor [3], as a graph's piece is handed it."""
        return cls(*packed.split(1))


class Generation:
    """Tokens of one request and why it ended (`finish`), if it did. `most_rows` may be verified in one round."""

    def __init__(
        self, request: GenerateRequest, eos_ids: Sequence[int], vocab_size: int, max_model_len: int, most_rows: int = 0
    ) -> None:
        _check(request, vocab_size, max_model_len)
        self.tokens = [int(token) for token in request.prompt_ids]
        self.num_prompt_tokens = len(self.tokens)
        self.sampling, self.gate, self.speculation = request.sampling, request.gate, request.speculation
        self.logprobs, self._num_drafts = request.logprobs, request.num_speculative_tokens
        room = max_model_len - self.num_prompt_tokens
        self.end = self.num_prompt_tokens + min(room, room if request.max_tokens is None else request.max_tokens)
        self.max_model_len, self._most_rows, self.second_block = max_model_len, most_rows, SecondBlock()
        self.eos_ids = frozenset(eos_ids if request.eos_ids is None else request.eos_ids)
        self.finish: str | None = None
        self._penalties, self._vocab_size = request.penalties, vocab_size
        self._history: History | None = None
        self._bonus: tuple[int, Tensor] | None = None
        self._temperature: Tensor | None = None

    @property
    def bonus_position(self) -> int:
        return len(self.tokens) - 1

    @property
    def drafts(self) -> bool:
        return self.speculation != "none"

    def bonus(self, device: torch.device) -> Tensor:
        """`Bonus` as one tensor [3]: copied for the first round, afterwards what the device made of the last one."""
        if self._bonus is None or self._bonus[0] != self.bonus_position:
            known = [self.tokens[-1], self.bonus_position, signed(self.sampling.seed)]
            self._bonus = self.bonus_position, torch.tensor(known, device=device)
        return self._bonus[1]

    def follow(self, bonus: Tensor) -> None:
        """The device knows the last token too: `bonus` [3] says what `emit` has just told the host."""
        if self.finish is None:  # else the sequence may end before the device's last token
            self._bonus = self.bonus_position, bonus

    def temperature(self, device: torch.device) -> Tensor:
        """FP64 [1], copied once a request."""
        if self._temperature is None:
            self._temperature = torch.full((1,), self.sampling.temperature, dtype=torch.float64, device=device)
        return self._temperature

    def history(self, device: torch.device) -> History | None:
        """What the tokens so far do to the logits of the next; made once a request, None where they do nothing."""
        if self._penalties is not None and self._history is None:
            prompt, answer = self.tokens[: self.num_prompt_tokens], self.tokens[self.num_prompt_tokens :]
            self._history = History(self._penalties, prompt, self._vocab_size, device)
            self._history.append(answer)
        return self._history

    def rows(self, block_size: int) -> int:
        """Rows of the next verification: a block, fewer near capacity or on request, one (q1) at its end or undrafted.

        Row i yields the token at `bonus_position + 1 + i`, which must lie below `max_model_len`.
        """
        if not self.drafts:
            return 1
        if self._num_drafts is not None:
            block_size = min(block_size, self._num_drafts + 1)
        return min(block_size, self.max_model_len - 1 - self.bonus_position)

    def most_drafts(self, drafts: int) -> int:
        """How many may be verified where the drafter makes `drafts`: more only on request, from the history."""
        if self.speculation != "lookup" or self._num_drafts is None:
            return drafts
        room = self.max_model_len - 2 - self.bonus_position
        return max(drafts, min(self._num_drafts, self._most_rows - 1, room))

    def goes_on(self, rows: int) -> bool:
        """Whether a round of `rows` rows is surely followed by one of as many, unless a token ends the sequence."""
        room = self.max_model_len - 1 - (self.bonus_position + rows)
        return room >= rows and len(self.tokens) + rows < self.end

    def emit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Append tokens up to and including the one that ends the sequence; returns those appended."""
        taken = []
        for token in tokens:
            taken.append(token)
            if token in self.eos_ids:
                self.finish = "stop"
            elif len(self.tokens) + len(taken) >= self.end:
                self.finish = "length"
            if self.finish:
                break
        self.tokens.extend(taken)
        if self.gate is not None:
            self.gate.advance(taken)
        if self._history is not None:
            self._history.append(taken)
        return tuple(taken)


def _check(request: GenerateRequest, vocab_size: int, max_model_len: int) -> None:
    count = len(request.prompt_ids)
    if not count:
        raise RequestError("the prompt is empty; at least one token is needed")
    if count >= max_model_len:
        raise CapacityError(
            f"the prompt has {count} tokens; with max_model_len {max_model_len} at most {max_model_len - 1} fit"
        )
    wrong = next((token for token in request.prompt_ids if not 0 <= token < vocab_size), None)
    if wrong is not None:
        raise RequestError(f"prompt token {wrong} is outside the vocabulary of {vocab_size}")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise RequestError(f"max_tokens is {request.max_tokens}; at least one token is generated")
    biased = [] if request.penalties is None else [token for token, _ in request.penalties.bias]
    stray = next((token for token in biased if not 0 <= token < vocab_size), None)
    if stray is not None:
        raise RequestError(f"logit_bias names token {stray}, outside the vocabulary of {vocab_size}")
    if request.num_speculative_tokens is not None and request.num_speculative_tokens < 1:
        raise RequestError(f"num_speculative_tokens is {request.num_speculative_tokens}; without drafts is 'none'")
    if request.speculation not in MODES:
        raise RequestError(f"speculation is {request.speculation!r}; it is one of {', '.join(MODES)}")
