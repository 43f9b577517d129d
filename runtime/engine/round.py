"""One round: draft, verify, accept, commit. And the prefill that comes before the first.

The decoder owns no request; it is handed one. What a round leaves for the next (the last token and its position, the
selector, the draft window) follows on the device from its verdict; the host reads the verdict meanwhile and waits for
nothing else. Knows no HTTP, no text, no stopping rule.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from kernels import attention, rotary
from kernels.accept.laws import distribution
from kernels.accept.rejection import Proposal
from kernels.selection import Candidates
from kernels.walk import Draws
from runtime.engine import between
from runtime.engine.clock import PhaseClock
from runtime.engine.gating import allowed, gated
from runtime.engine.graphs import Graphs
from runtime.engine.outcome import Landing, Outcome
from runtime.engine.prompts import COMPUTED, SHARED, PromptStates
from runtime.engine.sequence import Bonus, Generation, Prefill, RoundRecord
from runtime.engine.vocabulary import Vocabulary
from runtime.memory.cache import DraftCache
from runtime.memory.state import RequestState
from runtime.models.drafter import Drafter
from runtime.models.layers import Tables, counting
from runtime.models.steps import Memory, PrefillStep, VerifyStep
from runtime.models.target import Target
from runtime.operators import Operators
from runtime.speculation import draft
from runtime.speculation.logprobs import TokenLogprobs, token_logprobs
from runtime.speculation.sampling import SamplingParams

Context = list[tuple[Tensor, Tensor]]
Hits = dict[tuple[str, str], int]
T = TypeVar("T")


@dataclass(frozen=True)
class Verified:
    """Logits [R, V] FP32 (a rank's part of them), aux states [R, n * H] and positions [R] of verified rows; their
    context [layers, 2, R, Hkv, D] if computed early."""

    logits: Tensor
    aux: Tensor | None
    positions: Tensor
    context: Tensor | None


@dataclass(frozen=True)
class Judged:
    """A verdict that the host has not read: `packed` as in `runtime.engine.outcome`, and what it was made of."""

    packed: Tensor
    params: SamplingParams
    logits: Tensor
    proposal: Proposal
    bonus: Tensor


@dataclass(frozen=True)
class Ahead:
    """The next round of `generation` as far as it is launched before the host knows what it follows: its drafts, its
    clock, and the counters from which it counts."""

    generation: Generation
    proposal: Proposal
    clock: PhaseClock
    hits: Hits


@dataclass
class Decoder:
    """Target, drafter and their memory. `context_pipeline`: context K/V of all rows before sampling, not after, and the
    next round's drafts before the host reads the verdict. `prompt_state`: whether a prompt that comes again is copied
    back instead of computed, and who computes it (`runtime.engine.prompts`)."""

    target: Target
    drafter: Drafter | None
    memory: Memory
    draft_cache: DraftCache | None
    operators: Operators
    vocabulary: Vocabulary
    prefill_chunk: int
    graphs: Graphs
    context_pipeline: bool = True
    prompt_state: str = COMPUTED
    landing: Landing = field(init=False)
    prompts: PromptStates = field(init=False)
    tables: Tables = field(init=False)
    _ahead: Ahead | None = field(init=False, default=None)
    _ended_ns: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.landing = Landing(self.device)
        self.prompts = PromptStates(self.memory, self.draft_cache, self.prompt_state != COMPUTED)
        drafting = () if self.drafter is None else (self.drafter.rotary,)
        self.tables = Tables((self.target.rotary, *drafting))

    @property
    def device(self) -> torch.device:
        return self.target.embedding.device

    @torch.inference_mode()
    def prefill(self, generation: Generation, state: RequestState) -> Prefill:
        """Compute the prompt in chunks, inject its context, and draw the first token."""
        began, self._ahead = time.perf_counter_ns(), None
        routes = self.operators.routes
        with routes.unasked() if self.prompt_state == SHARED else nullcontext():
            key = (tuple(generation.tokens), generation.drafts, frozenset(routes.enabled.items()))
            logits = self.prompts.restore(key, state)
            restored = logits is not None
            if logits is None:
                logits = self._computed(generation, state)
                self.prompts.keep(key, state, len(generation.tokens), logits)
        outcome, _ = self._read(self.accept(generation, logits, None), lambda judged: None)
        said = self.logprobs(generation, logits, None, outcome.tokens)
        num_tokens = len(generation.tokens)
        emitted = generation.emit(outcome.tokens)
        ended = time.perf_counter_ns()
        cached = num_tokens if restored else 0
        return Prefill(emitted, num_tokens, ended - began, ended, cached_tokens=cached, logprobs=said)

    def _computed(self, generation: Generation, state: RequestState) -> Tensor:
        """Logits [1, V] of the prompt's last row, its chunks computed one after the other."""
        if self.draft_cache is not None:
            self.draft_cache.reset()
        ids = torch.tensor(generation.tokens, device=self.device)
        for start in range(0, len(ids), self.prefill_chunk):
            chunk = ids[start : start + self.prefill_chunk]
            step = PrefillStep(self.target.rotary, start, len(chunk), self.memory, state)
            output = self.target.prefill(chunk, step)
            if generation.drafts:
                self.inject(self.context(output.aux, _positions(ids, start, len(chunk))), start, len(chunk))
        state.select(1)
        return self.target.head(output.hidden[-1:])

    @torch.inference_mode()
    def round(self, generation: Generation, state: RequestState, rows: int) -> RoundRecord:
        """Verify `rows` rows: the bonus token and `rows - 1` drafts, fewer where a grammar forbids one, more where the
        history has a second block. One row is a q1 step, which drafts nothing."""
        clock, hits, proposal = self._begun(generation, rows)
        rows = 1 if proposal is None else len(proposal) + 1
        verified = self.verify(generation, state, proposal)
        clock.mark()
        judged = self.accept(generation, verified.logits, proposal)
        clock.mark()
        context = self._context_of(generation, verified)

        def launched(bonus: Tensor) -> None:
            clock.launched()
            self._ahead = self._launch_ahead(generation, rows, bonus)

        outcome, bonus = self.commit(generation, state, judged, context, launched)
        said = self.logprobs(generation, verified.logits, proposal, outcome.tokens)
        emitted = generation.emit(outcome.tokens)
        generation.follow(bonus)
        times, until = clock.record(), self._ahead.hits if self._ahead else _hits(self.operators)
        self._ended_ns = times["ended_ns"]
        return RoundRecord(
            kind="spec" if rows > 1 else "q1",
            rows=rows,
            drafted=rows - 1,
            accepted=outcome.accepted,
            token_ids=emitted,
            routes=_routes(hits, until),
            logprobs=said[: len(emitted)],
            **times,
        )

    def _begun(self, generation: Generation, rows: int) -> tuple[PhaseClock, Hits, Proposal | None]:
        """The clock of a round, the counters before it, and its drafts, launched now if they are not already."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.generation is generation and len(ahead.proposal) == rows - 1:
            ahead.clock.follows(self._ended_ns)
            return ahead.clock, ahead.hits, ahead.proposal
        clock, hits = PhaseClock(self.device), _hits(self.operators)
        proposal = self.propose(generation, rows - 1) if rows > 1 else None
        if proposal is not None and generation.gate is not None:
            proposal = gated(proposal, generation.gate)
        clock.mark()
        return clock, hits, proposal

    def _launch_ahead(self, generation: Generation, rows: int, bonus: Tensor) -> Ahead | None:
        """The drafts behind `bonus`, which the device knows already, while the host waits for the verdict.

        Not where the host has a say in them or in how many there are, where the drafts of this round are needed once
        more, or where pieces run as they are. Those of a sequence that has ended are lost. After an outcome that does
        not hold the bonus is the old one, and so are its drafts, until the commit is repeated.
        """
        device_alone = generation.speculation == "dflash" and generation.gate is None and generation.logprobs is None
        if not (self.context_pipeline and self.graphs.replaying and device_alone and rows > 1):
            return None
        if not generation.goes_on(rows):
            return None
        hits, clock = _hits(self.operators), PhaseClock(self.device)
        proposal = self._drafted(generation, rows - 1, bonus)
        clock.mark()
        return Ahead(generation, proposal, clock, hits)

    def propose(self, generation: Generation, drafts: int) -> Proposal:
        """`drafts` tokens behind the bonus, or more from the history, each with the law it was drawn from."""
        proposal = self._drafted(generation, drafts, generation.bonus(self.device))
        most, opens = generation.most_drafts(drafts), generation.second_block.opens
        return draft.FINISHED[generation.speculation](proposal, generation.tokens, most, opens)

    def _drafted(self, generation: Generation, drafts: int, bonus: Tensor) -> Proposal:
        greedy, temperature = generation.sampling.greedy, generation.temperature(self.device)
        piece = partial(self._draft, drafts, greedy)
        return self.graphs.run(("draft", greedy, drafts), piece, bonus, temperature)

    def verify(self, generation: Generation, state: RequestState, proposal: Proposal | None) -> Verified:
        """The target over the bonus token and the drafts; writes K/V and one state per row."""
        drafts = () if proposal is None else (proposal.tokens[0],)
        early, wanted = generation.drafts and self.context_pipeline, self.logits_wanted(generation)
        pages = self.pages_shown(generation.bonus_position + 1 + sum(map(len, drafts)))
        piece, key = partial(self._verify, state, early, wanted, pages), ("verify", state.line, early, wanted, pages)
        return self.graphs.run(key, piece, generation.bonus(self.device), *drafts)

    def pages_shown(self, end: int) -> int | None:
        """The first page alone where all `end` tokens lie in it and the arm's attention asks; None for all of them."""
        asks = self.operators.routes.enabled.get("attention") in attention.BY_TABLE
        return 1 if asks and end <= self.memory.cache.page_size else None

    def logits_wanted(self, generation: Generation) -> int | None:
        """How many of a row's largest logits decide what the request samples, probe included; None for all of them."""
        params = generation.sampling
        changed = generation.gate is not None or generation.history(self.device) is not None
        if changed or generation.logprobs is not None or not self._shortlists(params):
            return None
        return (1 if params.greedy else params.top_k) + 1

    def accept(self, generation: Generation, logits: Tensor, proposal: Proposal | None) -> Judged:
        """Begin to judge the drafts, and the token that follows them, by `logits` [R, V]."""
        logits = self.wanted(generation, logits, proposal)
        params, bonus = generation.sampling, generation.bonus(self.device)
        proposal = proposal or _nothing(bonus)
        inputs = (logits, proposal.tokens, proposal.ids, proposal.q, bonus)
        packed = self.graphs.run(("sample", replace(params, seed=0)), partial(self._sample, params), *inputs)
        self.vocabulary.gathered += int(not self._shortlists(params))
        return Judged(packed, params, logits, proposal, bonus)

    def wanted(self, generation: Generation, logits: Tensor, proposal: Proposal | None) -> Tensor:
        """The `logits` [R, V] as the request changes them: penalties by the tokens before each row, then the mask."""
        if (history := generation.history(self.device)) is not None:
            drafts = proposal.tokens[0] if proposal is not None else logits.new_empty(0, dtype=torch.long)
            logits = self.vocabulary.penalised(logits, history.rows(drafts))
        if generation.gate is not None:
            logits = self.vocabulary.masked(logits, allowed(generation.gate, proposal))
        return logits

    def commit(
        self,
        generation: Generation,
        state: RequestState,
        judged: Judged,
        context: Tensor | None,
        launched: Callable[[Tensor], None],
    ) -> tuple[Outcome, Tensor]:
        """Store what follows from the verdict and read it meanwhile; with it the next bonus, on the device.

        `launched` is called with that bonus as soon as it is launched, once more where a commit was repeated.
        """
        piece, rest = partial(self._commit, state), () if context is None else (context,)

        def follow(judged: Judged) -> Tensor:
            bonus = self.graphs.run(("commit", state.line), piece, judged.packed, judged.bonus, *rest)
            launched(bonus)
            return bonus

        start = generation.bonus_position
        outcome, bonus = self._read(judged, follow)
        state.selector = outcome.accepted + 1  # as the device has it already
        if generation.drafts:
            self.draft_cache.follow(start, outcome.accepted + 1)
        return outcome, bonus

    def _read(self, judged: Judged, follow: Callable[[Judged], T]) -> tuple[Outcome, T]:
        """The verdict, and what was launched behind it; both from the whole vocabulary where a tie was cut."""
        self.landing.send(judged.packed)
        followed = follow(judged)
        outcome = self.landing.read()
        return self._read(self._judge_whole(judged), follow) if outcome.cut_tie else (outcome, followed)

    def _draft(self, drafts: int, greedy: bool, bonus: Tensor, temperature: Tensor) -> Proposal:
        anchor, start, seed = Bonus.of(bonus)
        context = self.draft_cache.whole() if self.graphs.enabled else self.draft_cache.visible()
        hidden = self.drafter.block(anchor, start, drafts + 1, context)
        kept = self.drafter.config.selector_top_k
        unary, candidates = self.select(self.drafter.best(hidden, kept + 1), kept)
        scores = draft.lattice(self.drafter, hidden, unary, candidates, anchor)
        return between.propose(self.operators, scores, candidates, Draws(seed, start, temperature, greedy))

    def _verify(
        self, state: RequestState, early: bool, wanted: int | None, pages: int | None, bonus: Tensor, *drafts: Tensor
    ) -> Verified:
        token, start, _ = Bonus.of(bonus)
        ids = torch.cat((token, *drafts))
        positions = start + counting(len(ids), self.device)
        of_target, *of_drafter = self.tables.of(start, len(ids))
        output = self.target.verify(ids, VerifyStep(of_target, positions, self.memory, state, pages))
        context = _stacked(self.context(output.aux, positions, *of_drafter)) if early else None
        head = self.target.head
        logits = head(output.hidden) if wanted is None else head.largest(output.hidden, wanted)
        return Verified(logits, output.aux, positions, context)

    def logprobs(
        self, generation: Generation, logits: Tensor, proposal: Proposal | None, tokens: list[int]
    ) -> tuple[TokenLogprobs, ...]:
        """Of the `tokens` that the rows of `logits` [R, V] gave, if the request asks; before they are emitted."""
        order = generation.logprobs
        if order is None:
            return ()
        if order.of_sampled_law:
            logits = self.wanted(generation, logits, proposal)
        rows = self.vocabulary.whole(logits)[: len(tokens)]
        params = generation.sampling if order.of_sampled_law else SamplingParams()
        return token_logprobs(distribution(rows, params), tokens, order.top)

    def _sample(
        self, params: SamplingParams, logits: Tensor, tokens: Tensor, ids: Tensor, q: Tensor, bonus: Tensor
    ) -> Tensor:
        """A piece of one sampling rule: drafts (`tokens`, `ids`, `q`) judged by `logits` under the request's noise."""
        proposal, largest = Proposal(tokens, ids, q), self.vocabulary.largest(logits)
        if not self._shortlists(params):
            law = distribution(self.vocabulary.whole(logits), params)
            return between.judge_law(largest, law, proposal, bonus)
        best = self.vocabulary.best(logits, 1 if params.greedy else params.top_k)
        rule = between.rule_of(params, best.ids.shape[-1] == self.vocabulary.size)
        return between.judge(self.operators, best, largest, proposal, bonus, rule)

    def _commit(self, state: RequestState, packed: Tensor, bonus: Tensor, context: Tensor | None = None) -> Tensor:
        """The next bonus; selector and draft window go with it. An outcome that does not hold changes nothing."""
        window = None if context is None else self.draft_cache.window(context)
        return between.follow(self.operators, packed, bonus, state.selector_device, window)

    def _shortlists(self, params: SamplingParams) -> bool:
        return params.greedy or 0 < params.top_k < self.vocabulary.size

    def _judge_whole(self, judged: Judged) -> Judged:
        self.vocabulary.gathered += 1
        law = distribution(self.vocabulary.whole(judged.logits), judged.params)
        largest = self.vocabulary.largest(judged.logits)
        return replace(judged, packed=between.judge_law(largest, law, judged.proposal, judged.bonus))

    def context(self, aux: Tensor, positions: Tensor, table: rotary.Table | None = None) -> Context:
        """Context keys and values of all rows, per layer of the drafter."""
        return self.drafter.context(aux, positions, table)

    def inject(self, context: Context, start: int, keep: int) -> None:
        """Store the first `keep` rows of `context`, from position `start`; rejected rows write nothing."""
        self.draft_cache.store(start, keep, context)

    def select(self, logits: Tensor, k: int) -> Candidates:
        """The best `k` values and ids [R, k] of `logits` [R, V], in dense tie order."""
        values, ids = self.vocabulary.best(logits, k)
        return Candidates(values[:, :k], ids[:, :k])

    def _context_of(self, generation: Generation, verified: Verified) -> Tensor | None:
        """Context of the verified rows, [layers, 2, R, Hkv, D]; None for a request that drafts nothing."""
        if not generation.drafts or verified.context is not None:
            return verified.context
        return _stacked(self.context(verified.aux, verified.positions))


def _stacked(context: Context) -> Tensor:
    return torch.stack([part for layer in context for part in layer]).unflatten(0, (-1, 2))


def _positions(like: Tensor, start: int, length: int) -> Tensor:
    return torch.arange(start, start + length, device=like.device)


def _nothing(like: Tensor) -> Proposal:
    empty = like.new_empty(1, 0, 1)
    return Proposal(empty[..., 0], empty, empty.double())


def _hits(operators: Operators) -> Hits:
    return {(row["operator"], row["schedule"]): row["hits"] for row in operators.routes.counters()}


def _routes(before: Hits, after: Hits) -> tuple[tuple[str, str, int], ...]:
    """What ran between two readings, as (operator, schedule, runs)."""
    runs = ((*key, hits - before.get(key, 0)) for key, hits in after.items())
    return tuple(run for run in runs if run[2])
