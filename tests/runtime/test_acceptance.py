"""Rejection sampling keeps the target's law: by exact enumeration, and by chi-square over many seeds and rounds."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from kernels import noise
from kernels.accept.laws import Distribution, distribution
from kernels.accept.rejection import Proposal, accept, draw, probability_of, residual
from runtime.speculation import draft, lookup
from runtime.speculation.modes import MODES
from runtime.speculation.sampling import SamplingParams
from runtime.speculation.second_block import SecondBlock

VOCAB, SEEDS = 5, 120_000


def table(seed: int, sharp: float) -> Tensor:
    """Law of the next token by the last one, [VOCAB, VOCAB] FP64, some entries zero."""
    logits = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed)) * sharp
    result = distribution(logits, SamplingParams(top_p=0.97))
    return torch.zeros(VOCAB, VOCAB, dtype=torch.float64).scatter(1, result.ids, result.p)


TARGET, DRAFT = table(1, 1.5), table(2, 1.0)
ALL = torch.arange(VOCAB)


def chain_law(laws: Tensor, first: int, length: int) -> np.ndarray:
    """Probability of every token string of `length` after token `first`."""
    strings = itertools.product(range(VOCAB), repeat=length)
    return np.array([np.prod([laws[a, b] for a, b in itertools.pairwise((first, *string))]) for string in strings])


def test_exact_enumeration_of_one_draft() -> None:
    """Sum over drafts of q(d) [min(1, p/q) at d, the rest by the residual] is p, for every predecessor."""
    for p, q in zip(TARGET, DRAFT, strict=True):
        law = torch.zeros(VOCAB, dtype=torch.float64)
        rest = residual(ALL, p, ALL, q)
        for token in range(VOCAB):
            passes = min(1.0, float(probability_of(ALL, p, torch.tensor(token)) / q[token])) if q[token] else 0.0
            law[token] += q[token] * passes
            law += q[token] * (1 - passes) * rest / rest.sum()
        torch.testing.assert_close(law, p, rtol=0, atol=1e-15)


def test_residual_on_partly_overlapping_supports() -> None:
    rest = residual(
        torch.tensor([4, 1, 7]),
        torch.tensor([0.5, 0.3, 0.2]).double(),
        torch.tensor([1, -1, 4]),
        torch.tensor([0.1, 0.0, 0.9]).double(),
    )
    torch.testing.assert_close(rest, torch.tensor([0.0, 0.2, 0.2]).double())
    same = torch.tensor([0.5, 0.5]).double()
    assert torch.equal(residual(torch.tensor([0, 1]), same, torch.tensor([0, 1]), same), same)


class Chains:
    """Many seeds generating in lockstep, each at its own position, with blocks of `drafts` drafts."""

    def __init__(self, drafts: int, device: torch.device) -> None:
        self.drafts, self.seed = drafts, torch.arange(SEEDS, device=device)
        self.start = torch.full((SEEDS,), 10, device=device)
        self.last = torch.zeros_like(self.seed)
        self.tokens = torch.full((SEEDS, 16), -1, device=device)
        self.target, self.draft, self.all = (x.to(device) for x in (TARGET, DRAFT, ALL))

    def propose(self) -> Proposal:
        tokens, laws, last = [], [], self.last
        for step in range(self.drafts):
            laws.append(self.draft[last])
            position = (self.start + 1 + step)[:, None]
            last = draw(self.all.expand(SEEDS, VOCAB), self.draft[last], noise.DRAFT, self.seed[:, None], position)
            tokens.append(last)
        ids = self.all.expand(SEEDS, self.drafts, VOCAB)
        return Proposal(torch.stack(tokens, 1), ids, torch.stack(laws, 1))

    def round(self, proposal: Proposal | None = None) -> Tensor:
        proposal = proposal or self.propose()
        before = torch.cat((self.last[:, None], proposal.tokens), 1)
        rows = Distribution(
            self.all.expand(*before.shape, VOCAB), self.target[before], torch.tensor(False, device=self.seed.device)
        )
        verdict = accept(rows, proposal, self.seed, self.start)
        out = torch.cat((proposal.tokens, verdict.token[:, None]), 1)
        out.scatter_(1, verdict.accepted[:, None], verdict.token[:, None])
        for step in range(out.shape[1]):
            live = step <= verdict.accepted
            place = (self.start - 10 + step).clamp_max(15)
            self.tokens[live, place[live]] = out[live, step]
        self.last, self.start = verdict.token, self.start + verdict.accepted + 1
        return verdict.accepted


def assert_law(chains: Chains) -> None:
    """The first three tokens are the target's, by chi-square."""
    codes = (chains.tokens[:, :3].cpu() * torch.tensor([VOCAB**2, VOCAB, 1])).sum(1)
    law, counts = chain_law(TARGET, 0, 3), np.bincount(codes.numpy(), minlength=VOCAB**3)
    assert counts[law == 0].sum() == 0
    assert stats.chisquare(counts[law > 0], law[law > 0] * SEEDS).pvalue > 1e-3


@pytest.mark.parametrize("drafts", (1, 7))
def test_output_law_over_rounds_is_the_targets(drafts: int, device: torch.device) -> None:
    """Three tokens by as many rounds as they take; a round redraws positions that an earlier one drafted in vain."""
    chains, accepted = Chains(drafts, device), []
    for _ in range(3):
        accepted.append(chains.round())
    assert_law(chains)
    assert 0 < torch.stack(accepted).float().mean() < drafts


def test_law_of_accepted_counts(device: torch.device) -> None:
    """P(first draft accepted) is sum over tokens of min(p, q)."""
    counts = Chains(1, device).round()
    expected = float(torch.minimum(TARGET[0], DRAFT[0]).sum())
    assert stats.binomtest(int(counts.sum()), SEEDS, expected).pvalue > 1e-3


def coin(p: float, drafts: int, agree: int, wrong: bool = False) -> float:
    """P(first token is A) where q(A) = q(B) = 0.5, p(A) = `p`, and the history says A from draft `agree` on."""
    seed, start = torch.arange(SEEDS), torch.zeros(SEEDS, dtype=torch.long)
    ids, q = torch.arange(2).expand(SEEDS, drafts, 2), torch.full((SEEDS, drafts, 2), 0.5, dtype=torch.float64)
    positions = start[:, None] + 1 + torch.arange(drafts)
    tokens = draw(ids, q, noise.DRAFT, seed[:, None, None], positions[..., None])
    proposal = lookup.certain_from(Proposal(tokens, ids, q), torch.zeros(drafts, dtype=torch.long), agree)
    if wrong:
        agreeing = (tokens[:, :agree] == 0).all(1)
        proposal.q[agreeing, :agree] = torch.tensor([1.0, 0.0], dtype=torch.float64)
    law = torch.tensor([p, 1 - p], dtype=torch.float64).expand(SEEDS, drafts + 1, 2)
    verdict = accept(Distribution(torch.arange(2).expand_as(law), law, torch.tensor(False)), proposal, seed, start)
    first = torch.where(verdict.accepted > 0, proposal.tokens[:, 0], verdict.token)
    return float((first == 0).double().mean())


def test_agreeing_lookup_drafts_keep_their_own_q() -> None:
    """The published example: 0.8 where each agreeing draw keeps its q, 0.7 where it is called certain."""
    tolerance = 4 * (0.8 * 0.2 / SEEDS) ** 0.5
    assert coin(0.8, drafts=1, agree=1) == pytest.approx(0.8, abs=tolerance)
    assert coin(0.8, drafts=3, agree=1) == pytest.approx(0.8, abs=tolerance)
    assert coin(0.8, drafts=3, agree=0) == pytest.approx(0.8, abs=tolerance)
    assert coin(0.8, drafts=1, agree=1, wrong=True) == pytest.approx(0.7, abs=tolerance)


@pytest.mark.parametrize("history", ([4, 0, 2, 1, 3, 4, 0], [*range(VOCAB)] * 3), ids=("weak", "strong"))
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "none"])
def test_drafts_of_every_mode_keep_the_targets_law(mode: str, history: list[int], device: torch.device) -> None:
    """Whatever the history says; where it overrides no draft both cases are one."""
    chains = Chains(3, device)
    for _ in range(3):
        chains.round(draft.FINISHED[mode](chains.propose(), history))
    assert_law(chains)


def test_drafts_of_a_second_block_keep_the_targets_law(device: torch.device) -> None:
    """One draft of the drafter and four behind it that only the history makes, in the rounds that open the block."""
    chains, history, widths = Chains(1, device), [*range(VOCAB)] * 3, []
    block = SecondBlock()
    for _ in range(4):
        proposal = lookup.augment(chains.propose(), history, 5, block.opens)
        widths.append(len(proposal))
        chains.round(proposal)
    assert widths == [1, 5, 5, 5]
    assert_law(chains)


@pytest.mark.parametrize("agree", (0, 1, 2))
def test_lookup_drafts_keep_the_targets_law_over_rounds(agree: int, device: torch.device) -> None:
    chains, found = Chains(3, device), torch.tensor([2, 1, 3], device=device)
    for _ in range(3):
        chains.round(lookup.certain_from(chains.propose(), found, agree))
    assert_law(chains)


def test_continuation_takes_the_longest_then_latest_match() -> None:
    history = [1, 2, 3, 9, 9, 2, 3, 5, 6, 7, 2, 3]
    assert lookup.continuation(history, 3) == (2, [5, 6, 7])
    assert lookup.continuation([4, 1, 2, 3, 8, 8, 5, 2, 3, 9, 1, 2, 3], 2) == (3, [8, 8])
    assert lookup.continuation([1, 2, 3], 3) == (0, [])
    assert lookup.continuation([5, 5, 5, 5], 3)[1] == [5]


@pytest.mark.parametrize("accepted", (0, 2))
def test_target_noise_is_keyed_by_the_tokens_own_position(accepted: int) -> None:
    """The token behind `accepted` drafts is the one that a block beginning later would draw at that position."""
    seed, start = torch.arange(200), torch.full((200,), 30)
    law = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4], dtype=torch.float64).expand(200, 3, VOCAB).clone()
    law[:, :accepted] = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.float64)
    drafts = torch.zeros(200, 2, dtype=torch.long)
    proposal = Proposal(drafts, drafts[..., None], torch.ones(200, 2, 1, dtype=torch.float64))
    verdict = accept(Distribution(ALL.expand(200, 3, VOCAB), law, torch.tensor(False)), proposal, seed, start)
    assert (verdict.accepted == accepted).all()
    expected = draw(ALL.expand(200, VOCAB), law[:, 2], noise.TARGET, seed[:, None], (start + 1 + accepted)[:, None])
    assert torch.equal(verdict.token, expected) and len(verdict.token.unique()) == 4


def drafted(tokens: list[int]) -> Proposal:
    """A proposal of one request whose drafts had q = 0.25 among four candidates."""
    ids = torch.stack([torch.tensor([token, 90, 91, 92]) for token in tokens])
    return Proposal(torch.tensor([tokens]), ids[None], torch.full((1, len(tokens), 4), 0.25, dtype=torch.float64))


def test_a_weak_match_is_used_only_behind_agreeing_drafts() -> None:
    history = [5, 6, 7, 8, 9, 10, 1, 5, 6]
    agreeing = lookup.augment(drafted([7, 8, 30, 31]), history)
    assert agreeing.tokens.tolist() == [[7, 8, 9, 10]]
    assert agreeing.q[0, :2].tolist() == [[0.25] * 4] * 2 and agreeing.q[0, 2:].tolist() == [[1.0, 0, 0, 0]] * 2
    for tokens in ([7, 40, 30, 31], [40, 8, 30, 31]):
        other = lookup.augment(drafted(tokens), history)
        assert other.tokens.tolist() == [tokens] and torch.equal(other.q, drafted(tokens).q)


def test_a_strong_match_replaces_every_draft_and_a_stray_token_none() -> None:
    history = [*range(20, 30), 1, 2, 3, 4, 0, *range(20, 30)]
    strong = lookup.augment(drafted([40, 41, 42, 43]), history)
    assert strong.tokens.tolist() == [[1, 2, 3, 4]] and strong.q[..., 0].tolist() == [[1.0] * 4]
    assert lookup.augment(drafted([40, 41]), [3, 4, 5, 3]).tokens.tolist() == [[40, 41]]


def test_only_a_strong_match_fills_a_second_block() -> None:
    strong, weak = [*range(20, 30), 1, 2, 3, 4, 0, *range(20, 30)], [5, 6, 7, 8, 9, 10, 1, 5, 6]
    told: list[bool] = []

    def opens(strength: bool) -> bool:
        told.append(strength)
        return strength

    filled = lookup.augment(drafted([40, 41]), strong, 6, opens)
    assert filled.tokens.tolist() == [[1, 2, 3, 4, 0, 20]] and filled.ids[0, :, 0].tolist() == [1, 2, 3, 4, 0, 20]
    assert filled.q[0].tolist() == [[1.0, 0, 0, 0]] * 6
    assert lookup.augment(drafted([7, 8]), weak, 6, opens).tokens.tolist() == [[7, 8]]
    assert len(lookup.augment(drafted([40, 41]), strong, 2, opens)) == 2 and told == [True, False]
