"""Whole requests: losslessness, stopping, capacity, the context pipeline, and what a request leaves behind."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from kernels.accept.laws import distribution
from kernels.accept.rejection import Proposal
from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine
from runtime.engine.sequence import Finish, GenerateRequest, Prefill, RoundRecord
from runtime.engine.shape import EngineOptions, EngineShape
from runtime.errors import CapacityError, RequestError
from runtime.memory.cache import E4M3
from runtime.models.shapes import draft_shapes, target_shapes
from runtime.models.steps import PrefillStep
from runtime.speculation import lookup
from runtime.speculation.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0)
PROMPTS = [(1, 0), (2, 1), (17, 2), (64, 3), (65, 4)]


def logits_of(engine: Engine, tokens: Sequence[int]) -> torch.Tensor:
    """Logits behind `tokens`, from a forward without caches."""
    with torch.inference_mode():
        target = engine.decoder.target
        return target.head(target.sequence(torch.tensor([tokens], device=engine.device)).hidden[0, -1]).cpu()


def script(engine: Engine, tokens: list[int], prompt: int) -> None:
    """Make the drafter propose what `tokens` (an answer) says, with certainty."""

    def propose(generation: Any, drafts: int) -> Proposal:
        known = len(generation.tokens) - prompt
        wanted = (tokens[known : known + drafts] + [0] * drafts)[:drafts]
        ids = torch.tensor(wanted, device=engine.device).view(1, drafts, 1)
        return Proposal(ids[..., 0], ids, torch.ones_like(ids, dtype=torch.float64))

    engine.decoder.propose = propose
    engine.decoder.context_pipeline = False  # what is launched ahead of a verdict is the drafter's own


@pytest.mark.parametrize("length,seed", PROMPTS)
@pytest.mark.parametrize("drafter", (2, *(pytest.param(seed, marks=pytest.mark.acceptance) for seed in (3, 4))))
def test_greedy_is_lossless_for_every_drafter(make: Any, length: int, seed: int, drafter: int) -> None:
    engine, prompt = make.engine(seeds=(1, drafter)), make.prompt_of(length, seed)
    alone = make.answer(engine, prompt, sampling=GREEDY, max_tokens=24, speculation="none").tokens
    for speculation in ("dflash", "lookup"):
        mine = make.answer(engine, prompt, sampling=GREEDY, max_tokens=24, speculation=speculation).tokens
        if mine == alone:
            continue
        at = next(i for i, (a, b) in enumerate(zip(mine, alone, strict=True)) if a != b)
        top = logits_of(engine, prompt + alone[:at]).topk(2).values
        gap = float(top[0] - top[1])
        print(f"{speculation}: tokens differ at {at} ({mine[at]}, {alone[at]}), where the top-2 gap is {gap:.2e}")
        assert gap < 1e-4


def test_greedy_is_lossless_where_drafts_are_accepted(make: Any) -> None:
    engine, prompt = make.engine(), make.prompt_of(40)
    alone = make.answer(engine, prompt, sampling=GREEDY, max_tokens=40, speculation="none").tokens
    wrong = [token if i % 6 else (token + 1) % 131 for i, token in enumerate(alone)]
    script(engine, wrong, len(prompt))
    mine = make.answer(engine, prompt, sampling=GREEDY, max_tokens=40)
    assert mine.tokens == alone
    accepted = {record.accepted for record in mine.rounds}
    assert 5 in accepted and min(accepted) < 5


def test_lookup_drafts_what_the_history_says(make: Any) -> None:
    """The search is given the request's own tokens, and what it finds is drafted and verified."""
    engine, prompt = make.engine(), make.prompt_of(20)
    alone = make.answer(engine, prompt, sampling=GREEDY, max_tokens=20, speculation="none").tokens
    seen: list[list[int]] = []

    def remembered(tokens: Sequence[int], count: int) -> tuple[int, list[int]]:
        seen.append(list(tokens))
        return lookup.STRONG, alone[len(tokens) - 20 :][:count]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "continuation", remembered)
        looked = make.answer(engine, prompt, sampling=GREEDY, max_tokens=20, speculation="lookup")
    assert looked.tokens == alone
    assert [record.accepted for record in looked.rounds[:2]] == [7, 7]
    assert seen[1] == prompt + alone[:9]


def test_sampled_answers_follow_the_targets_law(make: Any) -> None:
    """Two tokens from 200 seeds, drafted, against the law computed from the target alone."""
    engine, prompt, params = make.engine(max_model_len=64), make.prompt_of(9), {"temperature": 1.3, "top_k": 3}
    expected: dict[tuple[int, int], float] = {}
    first = distribution(logits_of(engine, prompt)[None], SamplingParams(**params))
    for token, p in zip(first.ids[0].tolist(), first.p[0].tolist(), strict=True):
        if p:
            second = distribution(logits_of(engine, [*prompt, token])[None], SamplingParams(**params))
            pairs = zip(second.ids[0].tolist(), second.p[0].tolist(), strict=True)
            expected |= {(token, other): p * q for other, q in pairs if q}
    counts = dict.fromkeys(expected, 0)
    for seed in range(200):
        sampling = SamplingParams(**params, seed=seed)
        counts[tuple(make.answer(engine, prompt, sampling=sampling, max_tokens=2).tokens)] += 1
    law = np.array([expected[pair] for pair in counts])
    assert stats.chisquare(list(counts.values()), law * 200).pvalue > 1e-3


def test_same_seed_same_tokens_and_other_seed_other_tokens(make: Any) -> None:
    engine, prompt = make.engine(), make.prompt_of(20)
    answers = [make.answer(engine, prompt, sampling=SamplingParams(seed=s), max_tokens=12).tokens for s in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


@pytest.mark.parametrize("offset", range(1, 9))
def test_eos_inside_an_accepted_block_ends_exactly_there(make: Any, offset: int) -> None:
    engine, prompt = make.engine(), make.prompt_of(40)
    alone = make.answer(engine, prompt, sampling=GREEDY, max_tokens=9, speculation="none").tokens
    script(engine, alone, len(prompt))
    eos = alone[offset]
    ends = alone.index(eos)
    mine = make.answer(engine, prompt, sampling=GREEDY, eos_ids=(eos,))
    assert mine.tokens == alone[: ends + 1] and mine.finish == "stop"
    if ends:
        assert mine.rounds[-1].accepted == 7 and len(mine.rounds[-1].token_ids) == ends


def test_first_token_may_end_the_sequence(make: Any) -> None:
    engine, prompt = make.engine(), make.prompt_of(40)
    first = make.answer(engine, prompt, sampling=GREEDY, max_tokens=1)
    assert first.finish == "length" and not first.rounds and len(first.tokens) == 1
    stopped = make.answer(engine, prompt, sampling=GREEDY, eos_ids=first.tokens)
    assert stopped.finish == "stop" and stopped.tokens == first.tokens


def test_eos_of_the_checkpoint_ends_unless_ignored(make: Any) -> None:
    engine, prompt = make.engine(), make.prompt_of(40)
    alone = make.answer(engine, prompt, sampling=GREEDY, max_tokens=12).tokens
    engine.eos_ids = (alone[5],)
    assert make.answer(engine, prompt, sampling=GREEDY, eos_ids=None).tokens == alone[: alone.index(alone[5]) + 1]
    assert make.answer(engine, prompt, sampling=GREEDY, max_tokens=12, eos_ids=()).tokens == alone


@pytest.mark.parametrize("length", (40, 41, 44, 46, 47, 48, 54, 62))
def test_last_rounds_narrow_to_one_row_at_capacity(make: Any, length: int) -> None:
    """All drafts accepted, so that rounds are 8, 8, … and one narrower at the end; 1 row is a q1 step."""
    engine, prompt = make.engine(max_model_len=64), make.prompt_of(length)
    alone = make.answer(engine, prompt, sampling=GREEDY, speculation="none").tokens
    assert len(alone) == 64 - length
    script(engine, alone, length)
    mine = make.answer(engine, prompt, sampling=GREEDY)
    assert mine.tokens == alone and mine.finish == "length"
    room, widths = 64 - length - 1, []
    while room:
        widths.append(min(8, room))
        room -= widths[-1]
    assert [record.rows for record in mine.rounds] == widths
    assert [record.kind for record in mine.rounds] == ["q1" if width == 1 else "spec" for width in widths]
    assert [record.drafted for record in mine.rounds] == [width - 1 for width in widths]


def test_every_width_occurs_when_nothing_is_accepted(make: Any) -> None:
    engine, prompt = make.engine(max_model_len=64), make.prompt_of(50)
    alone = make.answer(engine, prompt, sampling=GREEDY, speculation="none").tokens
    script(engine, [(token + 1) % 131 for token in alone], 50)
    widths = [record.rows for record in make.answer(engine, prompt, sampling=GREEDY).rounds]
    assert widths == [8] * 6 + [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("limit", (1, 2, 7, 8, 9, 30))
def test_max_tokens_cuts_what_leaves_the_engine(make: Any, limit: int) -> None:
    engine, prompt = make.engine(), make.prompt_of(40)
    alone = make.answer(engine, prompt, sampling=GREEDY, max_tokens=40, speculation="none").tokens
    script(engine, alone, 40)
    mine = make.answer(engine, prompt, sampling=GREEDY, max_tokens=limit)
    assert mine.tokens == alone[:limit] and mine.finish == "length"
    assert all(len(record.token_ids) <= record.accepted + 1 for record in mine.rounds)


@pytest.mark.parametrize("speculation", ("dflash", "lookup"))
def test_context_pipeline_off_and_on_are_bitwise_equal(make: Any, speculation: str) -> None:
    """Computing the eight rows' context before sampling, or after it, stores the same bytes and draws the same."""
    prompt, sampling, kept = make.prompt_of(60), SamplingParams(seed=5, top_k=4), []
    for pipeline in (True, False):
        engine = make.engine(context_pipeline=pipeline)
        tokens = make.answer(engine, prompt, sampling=sampling, max_tokens=40, speculation=speculation).tokens
        kept.append((tokens, engine.decoder.draft_cache))
    (early, cache), (late, other) = kept
    assert early == late and cache.length == other.length
    assert all(torch.equal(a, b) for a, b in zip(cache.k + cache.v, other.k + other.v, strict=True))


def test_context_pipeline_computes_before_sampling(make: Any) -> None:
    for pipeline in (True, False):
        engine, order = make.engine(context_pipeline=pipeline), []
        for name in ("context", "accept"):
            traced(engine.decoder, name, order)
        make.answer(engine, make.prompt_of(9), max_tokens=2)
        assert order[2:4] == (["context", "accept"] if pipeline else ["accept", "context"])


def traced(decoder: Any, name: str, order: list[str]) -> None:
    inner: Callable[..., Any] = getattr(decoder, name)

    def run(*arguments: Any) -> Any:
        order.append(name)
        return inner(*arguments)

    setattr(decoder, name, run)


def test_a_request_does_not_see_the_one_before(make: Any) -> None:
    used, prompts = make.engine(), [make.prompt_of(n, s) for n, s in ((200, 1), (1, 2), (3, 3), (60, 4))]
    for prompt in prompts:
        assert (
            make.answer(used, prompt, max_tokens=16).tokens == make.answer(make.engine(), prompt, max_tokens=16).tokens
        )


def test_closing_the_iterator_gives_the_slots_back(make: Any) -> None:
    engine = make.engine()
    for _ in range(3):
        events = engine.generate(GenerateRequest(make.prompt_of(9), eos_ids=()))
        next(events), next(events)
        with pytest.raises(CapacityError, match="one request runs at a time"):
            held = engine.decoder.memory.pool.acquire()
            engine.decoder.memory.pool.acquire()
        engine.decoder.memory.pool.release(held)
        events.close()
    assert make.answer(engine, make.prompt_of(9), max_tokens=4).tokens


@pytest.mark.parametrize("speculation", ("none", "dflash"))
def test_two_open_requests_would_share_the_caches(make: Any, speculation: str) -> None:
    engine = make.engine()
    wanted = make.answer(engine, make.prompt_of(12), max_tokens=9, speculation=speculation).tokens
    first, second = (
        engine.generate(GenerateRequest(make.prompt_of(12, seed), max_tokens=9, eos_ids=(), speculation=speculation))
        for seed in (0, 1)
    )
    tokens = list(next(first).token_ids)
    with pytest.raises(RequestError, match="answers another request"):
        next(second)
    tokens += [token for event in first if not isinstance(event, Finish) for token in event.token_ids]
    assert tokens == wanted, "the refused one left no trace"
    assert make.answer(engine, make.prompt_of(12), max_tokens=9, speculation=speculation).tokens == wanted


def test_cancelling_ends_between_rounds(make: Any) -> None:
    engine, seen = make.engine(), []
    request = GenerateRequest(make.prompt_of(9), eos_ids=(), cancelled=lambda: len(seen) >= 3)
    for event in engine.generate(request):
        seen.append(event)
    assert [type(event) for event in seen] == [Prefill, RoundRecord, RoundRecord, Finish]
    assert seen[-1].reason == "cancelled"


@pytest.mark.parametrize(
    ("request_fields", "error", "words"),
    (
        ({"prompt_ids": []}, RequestError, "empty"),
        ({"prompt_ids": [0] * 512}, CapacityError, "512 tokens; with max_model_len 512 at most 511"),
        ({"prompt_ids": [3, 131]}, RequestError, "token 131"),
        ({"prompt_ids": [3], "max_tokens": 0}, RequestError, "max_tokens is 0"),
        ({"prompt_ids": [3], "speculation": "tree"}, RequestError, "'tree'"),
    ),
)
def test_requests_that_make_no_sense(make: Any, request_fields: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        make.engine().generate(GenerateRequest(**request_fields))


def test_without_a_drafter_only_plain_decoding_is_served(make: Any) -> None:
    engine = make.engine(draft={})
    with pytest.raises(RequestError, match="no drafter"):
        engine.generate(GenerateRequest([5]))
    answer = make.answer(engine, make.prompt_of(9), max_tokens=5, speculation="none")
    assert [record.kind for record in answer.rounds] == ["q1"] * 4 and engine.block_size == 1


def test_records_add_up_and_name_their_routes(make: Any) -> None:
    engine = make.engine()
    answer = make.answer(engine, make.prompt_of(9), max_tokens=20)
    assert answer.prefill.cached_tokens == 0 and answer.prefill.num_prompt_tokens == 9
    stamps = [answer.prefill.ended_ns] + [record.ended_ns for record in answer.rounds]
    assert stamps == sorted(stamps)
    for record in answer.rounds:
        phases = [record.draft_ns, record.verify_ns, record.sample_ns, record.commit_ns]
        assert all(phase > 0 for phase in phases if record.kind == "spec")
        # On CUDA the phases are the device's, the total is the host's.
        assert sum(phases) == record.total_ns or make.device.type == "cuda"
        runs = {operator: count for operator, _, count in record.routes}
        assert runs["gdn"] == 2 and runs["attention"] == 2 and runs["selection"] >= 1
    total = sum(row["hits"] for row in engine.routes.counters() if row["operator"] == "gdn")
    assert total == 2 * len(answer.rounds)


def tied_head(engine: Engine) -> None:
    """Every token has a twin with the same logits, so that an odd top-k mostly cuts a tie."""
    weight = engine.decoder.target.head.weight
    with torch.inference_mode():
        weight[1::2].copy_(weight[: len(weight) - 1 : 2])


@pytest.mark.parametrize("top_k", (3, 4))
@pytest.mark.parametrize("speculation", ("dflash", "lookup", "none"))
def test_the_device_knows_what_the_host_is_told(make: Any, top_k: int, speculation: str) -> None:
    """Last token, position, selector and window after every round, also where a tie was cut and judged again."""
    engine, known = make.engine(), 0
    tied_head(engine)
    decoder, round_ = engine.decoder, engine.decoder.round

    def watched(generation: Any, state: Any, rows: int) -> RoundRecord:
        nonlocal known
        record = round_(generation, state, rows)
        if generation.finish is None:
            known += 1
            told = [generation.tokens[-1], generation.bonus_position, generation.sampling.seed]
            assert generation._bonus[1].tolist() == told
            assert int(state.selector_device) == state.selector == record.accepted + 1
            length = generation.bonus_position if speculation != "none" else 0
            assert int(decoder.draft_cache.device_length) == decoder.draft_cache.length == length
        return record

    decoder.round = watched
    sampling = SamplingParams(temperature=2.0, top_k=top_k, seed=11)
    make.answer(engine, make.prompt_of(40), sampling=sampling, max_tokens=40, speculation=speculation)
    assert known >= 5
    assert decoder.vocabulary.gathered or top_k == 4


def test_an_outcome_that_does_not_hold_stores_nothing(make: Any) -> None:
    engine, stored = make.engine(cuda_graphs=False), []  # what is watched is read by the host
    tied_head(engine)
    decoder, commit = engine.decoder, engine.decoder._commit

    def state_of(state: Any) -> list[torch.Tensor]:
        cache = decoder.draft_cache
        return [t.clone() for t in (*cache.k, *cache.v, cache.device_length, state.selector_device)]

    def watched(state: Any, packed: torch.Tensor, bonus: torch.Tensor, *context: torch.Tensor) -> torch.Tensor:
        before = state_of(state)
        after = commit(state, packed, bonus, *context)
        if packed[1]:
            stored.append(packed)
            assert torch.equal(after, bonus)
            assert all(torch.equal(a, b) for a, b in zip(before, state_of(state), strict=True))
        return after

    decoder._commit = watched
    make.answer(engine, make.prompt_of(40), sampling=SamplingParams(top_k=3, seed=1), max_tokens=20)
    assert stored


def test_an_arm_changes_the_schedule_that_runs(make: Any, column_tiles: None) -> None:
    prompt, answers = make.prompt_of(9), []
    for schedule in ("columns-32", "columns-128"):
        engine = make.engine(routes={"projection": schedule})
        answers.append(make.answer(engine, prompt, max_tokens=12))
        assert ("projection", schedule) in {route[:2] for record in answers[-1].rounds for route in record.routes}
    assert answers[0].tokens == answers[1].tokens


class Gate:
    """Allows only tokens whose parity alternates, whatever came before."""

    def __init__(self, start: int) -> None:
        self.parity, self.seen = start, 0

    def allowed(self, drafts: Sequence[int]) -> torch.Tensor:
        parities = (self.parity + self.seen + torch.arange(len(drafts) + 1)) % 2
        return torch.arange(131) % 2 == parities[:, None]

    def advance(self, tokens: Sequence[int]) -> None:
        self.seen += len(tokens)


@pytest.mark.parametrize("speculation", ("dflash", "none"))
def test_gate_masks_every_row(make: Any, speculation: str) -> None:
    engine, gate = make.engine(), Gate(1)
    answer = make.answer(engine, make.prompt_of(9), max_tokens=24, gate=gate, speculation=speculation)
    assert [token % 2 for token in answer.tokens] == [(1 + i) % 2 for i in range(24)] and gate.seen == 24


@pytest.mark.parametrize("budget", (16, 40, 4096))
def test_prefill_chunks_are_cut_at_pages(make: Any, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, lengths, plain = make.engine(prefill_budget=budget), [], PrefillStep.__init__

    def counted(step: Any, rotary: Any, start: int, length: int, *rest: Any) -> None:
        lengths.append(length)
        plain(step, rotary, start, length, *rest)

    monkeypatch.setattr(PrefillStep, "__init__", counted)
    prompt = make.prompt_of(150)
    tokens = make.answer(engine, prompt, sampling=GREEDY, max_tokens=10).tokens
    size = min(150, budget // 16 * 16)
    assert lengths == [size] * (150 // size) + [150 % size] * bool(150 % size)
    assert tokens == make.answer(make.engine(), prompt, sampling=GREEDY, max_tokens=10).tokens


def test_prefill_chunk_at_the_public_shape() -> None:
    raw = json.loads((Path(__file__).parents[2] / "benchmarks/qwen3_8_27b.json").read_text())
    options = EngineOptions(max_model_len=262144, kv_cache_dtype="fp8_e4m3", dtype="float16")
    shape = EngineShape.of(TargetConfig.from_hf(raw["target"]), DraftConfig.from_hf(raw["drafter"]), options)
    assert (shape.page_size, shape.prefill_chunk, shape.cache_dtype) == (3296, 3296, E4M3)


@pytest.mark.gpu
@pytest.mark.parametrize("speculation", ("dflash", "lookup", "none"))
def test_graphs_replay_what_runs_without_them(make: Any, speculation: str) -> None:
    """Tokens and route counters over several requests, arms and both state lines; captures happen in the first two."""
    if make.device.type == "cpu":
        pytest.skip("graphs are CUDA's")
    runs = []
    for graphs in (False, True):
        engine, tokens = make.engine(cuda_graphs=graphs), []
        for seed, length in enumerate((30, 9, 100, 64, 1)):
            sampling = SamplingParams(temperature=seed % 3 * 0.5, seed=seed, top_k=5)
            prompt = make.prompt_of(length, seed)
            tokens.append(make.answer(engine, prompt, sampling=sampling, max_tokens=40, speculation=speculation).tokens)
        runs.append((tokens, engine.routes.counters()))
        assert bool(engine.decoder.graphs._captured) == graphs
    assert runs[0] == runs[1]


def test_the_bytes_of_a_round_are_those_of_its_shapes(make: Any) -> None:
    engine = make.engine()
    target, draft = engine.decoder.target.config, engine.decoder.drafter.config
    matrices = {n: math.prod(s) for n, s in target_shapes(target).items() if len(s) == 2 and "embed" not in n}
    own = {n: math.prod(s) for n, s in draft_shapes(draft).items() if len(s) == 2 and "codebook" not in n}
    again = sum(size for name, size in own.items() if ".k_proj" in name or ".v_proj" in name)  # of the context
    head = target.vocab_size * target.hidden_size
    heads = head * (2 - ("lm_head.weight" in matrices))
    weights = sum(matrices.values()) + sum(own.values()) + again + heads
    window = 2 * sum(engine.decoder.draft_cache.rings) * draft.num_key_value_heads * draft.head_dim
    state = target.linear_num_value_heads * target.linear_key_head_dim * target.linear_value_head_dim
    states = len(target.linear_layers) * (1 + draft.block_size) * state
    token = len(target.full_layers) * 2 * target.num_key_value_heads * target.head_dim
    assert engine.round_bytes() == {"fixed": 4 * (weights + window + states), "per_token": 4 * token}
