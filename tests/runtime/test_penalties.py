"""Penalties and biases against transformers' processors and OpenAI's formula, and that speculation stays exact."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from kernels import noise
from kernels.accept.laws import Distribution, distribution
from kernels.accept.rejection import Proposal, accept, draw
from runtime.engine.sequence import GenerateRequest
from runtime.errors import RequestError
from runtime.speculation.penalties import History, Penalties
from runtime.speculation.sampling import SamplingParams

VOCAB, SEEDS, LENGTH = 4, 40_000, 3
PROMPT = [3, 1, 1]
LOGITS = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(8)) * 1.5
ALL = Penalties(presence=0.7, frequency=0.4, repetition=1.3, bias=((2, 1.5), (3, -0.5)))
KINDS = {
    "presence": Penalties(presence=1.2),
    "frequency": Penalties(frequency=-0.9),
    "repetition": Penalties(repetition=1.7),
    "encouraged": Penalties(repetition=0.6),
    "bias": Penalties(bias=((0, 3.0), (4, -100.0))),
    "all": ALL,
}


def expected_row(logits: Tensor, prompt: Sequence[int], answer: Sequence[int], asked: Penalties) -> Tensor:
    """One row [V] by transformers' processors, then by the sum that OpenAI's API reference writes down."""
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

    row, ids = logits[None].clone(), torch.tensor([[*prompt, *answer]])
    if asked.bias:
        row = SequenceBiasLogitsProcessor({(token,): bias for token, bias in asked.bias})(ids, row)
    if asked.repetition != 1:
        row = RepetitionPenaltyLogitsProcessor(asked.repetition)(ids, row)
    for token in set(answer):
        count = sum(1 for other in answer if other == token)
        row[0, token] -= count * asked.frequency + (1.0 if count > 0 else 0.0) * asked.presence
    return row[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_what_others_make_of_its_tokens(kind: str, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(3)
    prompt, answer, drafts = (torch.randint(0, 12, (n,), generator=generator).tolist() for n in (9, 7, 6))
    logits = torch.randn(7, 40, generator=generator) * 3
    history = History(KINDS[kind], prompt, 40, device)
    history.append(answer[:3])
    history.append(answer[3:])
    rows = history.rows(torch.tensor(drafts, device=device))
    mine = rows.applied(logits.to(device)).cpu()
    wanted = [expected_row(row, prompt, answer + drafts[:i], KINDS[kind]) for i, row in enumerate(logits)]
    torch.testing.assert_close(mine, torch.stack(wanted))
    halves = [rows.columns(first, 20).applied(logits[:, first : first + 20].to(device)).cpu() for first in (0, 20)]
    assert torch.equal(torch.cat(halves, 1), mine)


def chain_law(asked: Penalties) -> np.ndarray:
    """Probability of every answer of LENGTH tokens behind PROMPT, one token at a time."""
    law = []
    for answer in itertools.product(range(VOCAB), repeat=LENGTH):
        p = 1.0
        for i, token in enumerate(answer):
            last = answer[i - 1] if i else PROMPT[-1]
            p *= float(expected_row(LOGITS[last], PROMPT, answer[:i], asked).double().softmax(0)[token])
        law.append(p)
    return np.array(law)


def spoken(asked: Penalties, certain: bool) -> np.ndarray:
    """How many of SEEDS say each answer: from every beginning, shortest first, a round of two drafts."""
    found, begun = np.zeros(VOCAB**LENGTH), {(): [torch.arange(SEEDS)]}
    while begun:
        said = min(begun, key=len)
        seeds = torch.cat(begun.pop(said))
        if len(said) >= LENGTH:
            found[np.ravel_multi_index(said[:LENGTH], (VOCAB,) * LENGTH)] += len(seeds)
            continue
        proposal = proposed(said, seeds, certain)
        for drafts in proposal.tokens.unique(dim=0):
            own = (proposal.tokens == drafts).all(1)
            part = Proposal(proposal.tokens[own], proposal.ids[own], proposal.q[own])
            for grown, some in judged(asked, said, part, seeds[own]):
                begun.setdefault(grown, []).append(some)
    return found


def proposed(said: tuple[int, ...], seeds: Tensor, certain: bool) -> Proposal:
    """Two drafts that know of no penalties: the same for all seeds, or drawn evenly by each seed's noise."""
    ids = torch.arange(VOCAB).expand(len(seeds), 2, VOCAB)
    if certain:
        tokens = torch.tensor([(sum(said) + 2) % VOCAB, 2]).expand(len(seeds), 2)
        return Proposal(tokens, ids, (ids == tokens[..., None]).double())
    even = torch.full(ids.shape, 1 / VOCAB, dtype=torch.float64)
    places = torch.tensor([len(said) + 1, len(said) + 2])[:, None]
    return Proposal(draw(ids, even, noise.DRAFT, seeds[:, None, None], places), ids, even)


def judged(
    asked: Penalties, said: tuple[int, ...], proposal: Proposal, seeds: Tensor
) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """What the seeds say behind the drafts, which are the same for all of them."""
    history = History(asked, PROMPT, VOCAB, torch.device("cpu"))
    history.append(said)
    drafts = proposal.tokens[0].tolist()
    rows = history.rows(proposal.tokens[0]).applied(LOGITS[[(*PROMPT, *said)[-1], *drafts]])
    law = distribution(rows, SamplingParams())
    law = Distribution(law.ids.expand(len(seeds), -1, -1), law.p.expand(len(seeds), -1, -1), law.cut_tie)
    verdict = accept(law, proposal, seeds, torch.full_like(seeds, len(said)))
    for count, token in torch.stack((verdict.accepted, verdict.token), 1).unique(dim=0).tolist():
        grown = (*said, *drafts[:count], token)
        yield grown, seeds[(verdict.accepted == count) & (verdict.token == token)]


@pytest.mark.parametrize("certain", [False, True], ids=["drawn", "certain"])
def test_answers_follow_the_law_of_one_token_at_a_time(certain: bool) -> None:
    law, counts = chain_law(ALL), spoken(ALL, certain)
    assert counts.sum() == SEEDS
    assert stats.chisquare(counts, law * SEEDS).pvalue > 1e-3
    free = chain_law(Penalties())
    assert stats.chisquare(counts, free * SEEDS).pvalue < 1e-9, "the penalties move this law far enough to be seen"


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_answers_are_the_same_with_drafts_and_without(make: Any, kind: str) -> None:
    """And every token is the best of a row that others penalised."""
    engine, prompt = make.engine(), make.prompt_of(30)
    asked = {"sampling": SamplingParams(temperature=0), "max_tokens": 20, "penalties": KINDS[kind]}
    alone = make.answer(engine, prompt, speculation="none", **asked).tokens
    assert alone == make.answer(engine, prompt, speculation="dflash", **asked).tokens
    assert alone == make.answer(engine, prompt, speculation="lookup", **asked).tokens
    history = list(prompt)
    for token in alone:
        with torch.inference_mode():
            target = engine.decoder.target
            row = target.head(target.sequence(torch.tensor([history], device=engine.device)).hidden[0, -1]).cpu()
        wanted = expected_row(row, prompt, history[len(prompt) :], KINDS[kind])
        assert wanted[token] > wanted.max() - 1e-4
        history.append(token)


def test_drafts_that_keep_the_penalties_are_accepted(make: Any) -> None:
    """The rows behind right drafts say what plain decoding says, so all seven pass."""
    engine, prompt = make.engine(), make.prompt_of(30)
    asked = {"sampling": SamplingParams(temperature=0), "max_tokens": 25, "penalties": ALL}
    alone = make.answer(engine, prompt, speculation="none", **asked).tokens

    def propose(generation: Any, drafts: int) -> Proposal:
        known = len(generation.tokens) - len(prompt)
        ids = torch.tensor((alone + [0] * drafts)[known : known + drafts], device=engine.device).view(1, drafts, 1)
        return Proposal(ids[..., 0], ids, torch.ones_like(ids, dtype=torch.float64))

    engine.decoder.propose = propose
    engine.decoder.context_pipeline = False  # what is launched ahead of a verdict is the drafter's own
    mine = make.answer(engine, prompt, **asked)
    assert mine.tokens == alone and [record.accepted for record in mine.rounds] == [7, 7, 7]


def test_what_makes_no_sense(make: Any) -> None:
    with pytest.raises(RequestError, match="repetition_penalty is 0"):
        Penalties(repetition=0.0)
    with pytest.raises(RequestError, match="logit_bias names token 131"):
        make.engine().generate(GenerateRequest([3], penalties=Penalties(bias=((131, 1.0),))))
