"""One round: draft, verify, accept, commit, inject. And the prefill that comes before the first.

The decoder owns no request; it is handed one. The host waits for the device once per round, to read what was
accepted. Knows no HTTP, no text, no stopping rule.
"""

import time
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from kernels.selection import Candidates
from runtime.engine.clock import PhaseClock
from runtime.engine.graphs import Graphs
from runtime.engine.sequence import Generation, Prefill, RoundRecord, TokenGate
from runtime.engine.vocabulary import Vocabulary
from runtime.memory.cache import DraftCache
from runtime.memory.state import RequestState
from runtime.models.drafter import Drafter
from runtime.models.steps import Memory, PrefillStep, VerifyStep
from runtime.models.target import Target
from runtime.operators import Operators
from runtime.speculation import draft, lookup
from runtime.speculation.acceptance import Proposal, accept
from runtime.speculation.logprobs import TokenLogprobs, token_logprobs
from runtime.speculation.sampling import Distribution, SamplingParams, bad_logits, distribution, shortlisted

Context = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Verified:
    """Logits [R, V] FP32 (a rank's part of them), aux states [R, n * H] and positions [R] of verified rows; their
    context if computed early."""

    logits: Tensor
    aux: Tensor | None
    positions: Tensor
    context: Context | None


@dataclass
class Decoder:
    """Target, drafter and their memory. `context_pipeline`: context K/V of all rows before sampling, not after."""

    target: Target
    drafter: Drafter | None
    memory: Memory
    draft_cache: DraftCache | None
    operators: Operators
    vocabulary: Vocabulary
    prefill_chunk: int
    graphs: Graphs
    context_pipeline: bool = True

    @property
    def device(self) -> torch.device:
        return self.target.embedding.device

    @torch.inference_mode()
    def prefill(self, generation: Generation, state: RequestState) -> Prefill:
        """Compute the prompt in chunks, inject its context, and draw the first token."""
        began = time.perf_counter_ns()
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
        logits = self.target.head(output.hidden[-1:])
        _, tokens = self.accept(generation, logits, None)
        said = self.logprobs(generation, logits, None, tokens)
        emitted = generation.emit(tokens)
        ended = time.perf_counter_ns()
        return Prefill(emitted, len(ids), ended - began, ended, logprobs=said)

    @torch.inference_mode()
    def round(self, generation: Generation, state: RequestState, rows: int) -> RoundRecord:
        """Verify `rows` rows: the bonus token and `rows - 1` drafts. One row is a q1 step, which drafts nothing."""
        clock, hits, start = PhaseClock(self.device), _hits(self.operators), generation.bonus_position
        proposal = self.propose(generation, rows - 1) if rows > 1 else None
        if proposal is not None and generation.gate is not None:
            proposal = _gated(proposal, generation.gate)
            rows = len(proposal) + 1
        clock.mark()
        verified = self.verify(generation, state, proposal)
        clock.mark()
        accepted, tokens = self.accept(generation, verified.logits, proposal)
        said = self.logprobs(generation, verified.logits, proposal, tokens)
        clock.mark()
        state.select(accepted + 1)
        if generation.drafts:
            context = verified.context or self.context(verified.aux, verified.positions)
            self.inject(context, start, accepted + 1)
        emitted = generation.emit(tokens)
        clock.mark()
        return RoundRecord(
            kind="spec" if rows > 1 else "q1",
            rows=rows,
            drafted=rows - 1,
            accepted=accepted,
            token_ids=emitted,
            routes=_routes(hits, _hits(self.operators)),
            logprobs=said[: len(emitted)],
            **clock.record(),
        )

    def propose(self, generation: Generation, drafts: int) -> Proposal:
        """`drafts` tokens behind the bonus, each with the law it was drawn from."""
        bonus = generation.bonus(self.device)
        draws = draft.Draws.of(generation.sampling, bonus.seed, bonus.position)
        piece = partial(self._draft, drafts, draws.greedy)
        inputs = (bonus.token, draws.seed, draws.start, draws.temperature)
        proposal = self.graphs.run(("draft", draws.greedy, drafts), piece, *inputs)
        if generation.speculation == "lookup":
            return lookup.augment(proposal, generation.tokens)
        return proposal

    def verify(self, generation: Generation, state: RequestState, proposal: Proposal | None) -> Verified:
        """The target over the bonus token and the drafts; writes K/V and one state per row."""
        bonus = generation.bonus(self.device)
        ids = bonus.token if proposal is None else torch.cat((bonus.token, proposal.tokens[0]))
        early = generation.drafts and self.context_pipeline
        piece = partial(self._verify, state, early)
        return self.graphs.run(("verify", state.line, early), piece, ids, bonus.position)

    def _draft(
        self, drafts: int, greedy: bool, anchor: Tensor, seed: Tensor, start: Tensor, temperature: Tensor
    ) -> Proposal:
        context = self.draft_cache.whole() if self.graphs.enabled else self.draft_cache.visible()
        hidden = self.drafter.block(anchor, start, drafts + 1, context)
        unary, candidates = self.select(self.drafter.unary(hidden), self.drafter.config.selector_top_k)
        scores = draft.lattice(self.drafter, hidden, unary, candidates, anchor)
        return draft.walk(scores, candidates, draft.Draws(seed, start, temperature, greedy))

    def _verify(self, state: RequestState, early: bool, ids: Tensor, start: Tensor) -> Verified:
        positions = start + torch.arange(len(ids), device=self.device)
        output = self.target.verify(ids, VerifyStep(self.target.rotary, positions, self.memory, state))
        context = self.context(output.aux, positions) if early else None
        return Verified(self.target.head(output.hidden), output.aux, positions, context)

    def accept(self, generation: Generation, logits: Tensor, proposal: Proposal | None) -> tuple[int, list[int]]:
        """How many drafts the target accepts, and the tokens that follow from `logits` [R, V]: those and one more."""
        if generation.gate is not None:
            logits = self.vocabulary.masked(logits, _allowed(generation.gate, proposal))
        params, bonus = generation.sampling, generation.bonus(self.device)
        proposal, key = proposal or _nothing(bonus.seed), (bonus.seed, bonus.position)
        inputs = (logits, proposal.tokens, proposal.ids, proposal.q, *key)
        piece = partial(self._sample, params)
        accepted, tokens, cut_tie = _outcome(self.graphs.run(("sample", replace(params, seed=0)), piece, *inputs))
        self.vocabulary.gathered += int(not self._shortlists(params)) + int(cut_tie)
        if cut_tie:
            law = distribution(self.vocabulary.whole(logits), params)
            accepted, tokens, _ = _outcome(self._judge(logits, law, proposal, *key))
        return accepted, tokens

    def logprobs(
        self, generation: Generation, logits: Tensor, proposal: Proposal | None, tokens: list[int]
    ) -> tuple[TokenLogprobs, ...]:
        """Of the `tokens` that the rows of `logits` [R, V] gave, if the request asks; before they are emitted."""
        order = generation.logprobs
        if order is None:
            return ()
        if order.of_sampled_law and generation.gate is not None:
            logits = self.vocabulary.masked(logits, _allowed(generation.gate, proposal))
        rows = self.vocabulary.whole(logits)[: len(tokens)]
        params = generation.sampling if order.of_sampled_law else SamplingParams()
        return token_logprobs(distribution(rows, params), tokens, order.top)

    def _sample(
        self, params: SamplingParams, logits: Tensor, tokens: Tensor, ids: Tensor, q: Tensor, *key: Tensor
    ) -> Tensor:
        """A piece of one sampling rule: the drafts (`tokens`, `ids`, `q`) judged by `logits` under noise of `key`."""
        return self._judge(logits, self._law(logits, params), Proposal(tokens, ids, q), *key)

    def _law(self, logits: Tensor, params: SamplingParams) -> Distribution:
        """From the top k and the probe behind it, or from whole rows where sampling needs them."""
        if not self._shortlists(params):
            return distribution(self.vocabulary.whole(logits), params)
        k = 1 if params.greedy else params.top_k
        return shortlisted(*self.vocabulary.best(logits, k), params, self.vocabulary.size)

    def _shortlists(self, params: SamplingParams) -> bool:
        return params.greedy or 0 < params.top_k < self.vocabulary.size

    def context(self, aux: Tensor, positions: Tensor) -> Context:
        """Context keys and values of all rows, per layer of the drafter."""
        return self.drafter.context(aux, positions)

    def inject(self, context: Context, start: int, keep: int) -> None:
        """Store the first `keep` rows of `context`, from position `start`; rejected rows write nothing."""
        self.draft_cache.store(start, keep, context)

    def select(self, logits: Tensor, k: int) -> Candidates:
        """The best `k` values and ids [R, k] of `logits` [R, V], in dense tie order."""
        values, ids = self.vocabulary.best(logits, k)
        return Candidates(values[:, :k], ids[:, :k])

    def _judge(self, logits: Tensor, law: Distribution, proposal: Proposal, seed: Tensor, start: Tensor) -> Tensor:
        """What `_outcome` reads, in one tensor: flags, the accepted count, the token behind, the drafts."""
        law = Distribution(law.ids[None], law.p[None], law.cut_tie)
        verdict = accept(law, proposal, seed, start)
        flags = torch.stack((self.vocabulary.broken(logits), law.cut_tie)).long()
        return torch.cat((flags, verdict.accepted, verdict.token, proposal.tokens[0]))


def _positions(like: Tensor, start: int, length: int) -> Tensor:
    return torch.arange(start, start + length, device=like.device)


def _outcome(judged: Tensor) -> tuple[int, list[int], bool]:
    """How many drafts were accepted, the tokens that leave, and whether a tie was cut. The host waits here."""
    broken, cut_tie, accepted, token, *drafted = judged.tolist()
    if broken:
        raise bad_logits()
    return accepted, [*drafted[:accepted], token], bool(cut_tie)


def _nothing(seed: Tensor) -> Proposal:
    empty = seed.new_empty(1, 0, 1)
    return Proposal(empty[..., 0], empty, empty.double())


def _gated(proposal: Proposal, gate: TokenGate) -> Proposal:
    """The drafts up to and including the first that the grammar forbids: it is rejected for certain, by the usual rule,
    and nothing behind it can count."""
    drafts = proposal.tokens[0].tolist()
    allowed = gate.allowed(drafts)
    keep = next((i for i, draft in enumerate(drafts) if not allowed[i, draft]), len(drafts)) + 1
    return Proposal(proposal.tokens[:, :keep], proposal.ids[:, :keep], proposal.q[:, :keep])


def _allowed(gate: TokenGate, proposal: Proposal | None) -> Tensor:
    return gate.allowed(proposal.tokens[0].tolist() if proposal is not None else [])


def _hits(operators: Operators) -> dict[tuple[str, str], int]:
    return {(row["operator"], row["schedule"]): row["hits"] for row in operators.routes.counters()}


def _routes(before: dict[tuple[str, str], int], after: dict[tuple[str, str], int]) -> tuple[tuple[str, str, int], ...]:
    """What ran between two readings, as (operator, schedule, runs)."""
    runs = ((*key, hits - before.get(key, 0)) for key, hits in after.items())
    return tuple(run for run in runs if run[2])
