"""The drafter against PyPI's `dflash`, its window of context K/V, and the public checkpoint's size."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from kernels.walk import Draws
from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine
from runtime.engine.shape import EngineOptions
from runtime.memory.cache import DraftCache
from runtime.models.drafter import Drafter
from runtime.models.shapes import draft_shapes, parameter_count, target_shapes
from runtime.speculation import draft
from runtime.speculation.draft import draws_of
from runtime.speculation.sampling import SamplingParams

ANCHOR, LENGTHS, TEMPERATURE = 11, (1, 2, 31, 40, 41, 100), 0.7
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
SHAPES: dict[str, dict[str, Any]] = {
    "public-like": {},
    "full-attention": {"layer_types": ["full_attention", "sliding_attention"]},
    "causal": {"is_causal": True, "num_attention_heads": 6, "num_key_value_heads": 3},
    "by-default-causal": {"is_causal": None},
    "mixed-by-default": {"is_causal": None, "layer_types": MIXED, "num_hidden_layers": 3},
    "mixed-causal": {"is_causal": True, "layer_types": MIXED, "num_hidden_layers": 3},
    "no-window": {"use_sliding_window": None, "layer_types": None, "is_causal": None},
    "from-layer": {"use_sliding_window": True, "layer_types": None, "is_causal": None, "max_window_layers": 1},
    "taps-1": {"conv_kernel_size": 1},
    "taps-4": {"conv_kernel_size": 4},
    "taps-8": {"conv_kernel_size": 8, "is_causal": True},
    "scaled": {"output_multiplier": 0.5, "final_logit_softcapping": 4.0, "input_embedding_scale": 3.0},
}
QUESTIONS = (
    "<|im_start|>user\nAda has 7 pears and buys 5 more. How many pears has she?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a function that adds two numbers.<|im_end|>\n<|im_start|>assistant\n<think>\n",
)
OWN = ("conv_kernel_size", "output_multiplier", "final_logit_softcapping", "input_embedding_scale")


def raw_config(make: Any, shape: str) -> dict[str, Any]:
    changes = SHAPES[shape]
    raw = make.draft_json(**{key: value for key, value in changes.items() if key not in OWN})
    raw["dflash_config"] = raw["dflash_config"] | {key: changes[key] for key in OWN if key in changes}
    return {key: value for key, value in raw.items() if value is not None}


@pytest.fixture(scope="module")
def inputs(make: Any) -> dict[str, Tensor]:
    target = make.weights(target_shapes(TargetConfig.from_hf(make.target_json())), 1)
    aux = torch.randn(max(LENGTHS), 3 * 48, generator=torch.Generator().manual_seed(4)).to(make.device)
    return {"embedding": target["embed_tokens.weight"], "head": target["lm_head.weight"], "aux": aux}


@pytest.fixture(scope="module")
def oracle(make: Any, inputs: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    work = tmp_path_factory.mktemp("dflash2")
    save_file({name: value.cpu() for name, value in inputs.items()}, work / "inputs.safetensors")
    jobs = []
    for name in SHAPES:
        folder = make.write_drafter(work / name, raw_config(make, name))
        common = {"inputs": str(work / "inputs.safetensors"), "lengths": LENGTHS, "anchor": ANCHOR}
        jobs.append({"name": name, "drafter": str(folder), "temperature": TEMPERATURE} | common)
    return make.run_oracle("dflash2.py", work, jobs)


def drafter_of(make: Any, shape: str, inputs: dict[str, Tensor]) -> Drafter:
    config = DraftConfig.from_hf(raw_config(make, shape))
    operators = make.engine().decoder.operators
    head = make.engine().decoder.target.head
    assert torch.equal(head.weight, inputs["head"])
    return Drafter(config, make.weights(draft_shapes(config), 2), inputs["embedding"], head, operators)


def anchor_of(make: Any) -> Tensor:
    return torch.tensor([ANCHOR], device=make.device)


def at(make: Any, position: int) -> Tensor:
    return torch.tensor([position], device=make.device)


def drawn(make: Any, params: SamplingParams, start: int) -> Draws:
    return draws_of(params, torch.tensor([params.seed], device=make.device), at(make, start))


def filled(drafter: Drafter, aux: Tensor, length: int, pieces: int) -> DraftCache:
    """A context cache that got its `length` positions in pieces, each followed by rejected rows."""
    cache = DraftCache(drafter.config, 512, torch.float32, aux.device)
    size = -(-length // pieces)
    for start in range(0, length, size):
        keep = min(size, length - start)
        rejected = torch.full((3, aux.shape[1]), 7.0, device=aux.device)
        rows = torch.cat((aux[start : start + keep], rejected))
        positions = torch.arange(start, start + len(rows), device=aux.device)
        cache.store(start, keep, drafter.context(rows, positions))
    return cache


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("pieces", (1, 4))
def test_hidden_states_agree_with_dflash(
    make: Any, inputs: dict[str, Tensor], oracle: dict[str, Tensor], shape: str, length: int, pieces: int
) -> None:
    drafter = drafter_of(make, shape, inputs)
    cache = filled(drafter, inputs["aux"], length, pieces)
    hidden = drafter.block(anchor_of(make), at(make, length), 8, cache.visible())
    torch.testing.assert_close(hidden.cpu(), oracle[f"{shape}.{length}.hidden"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", LENGTHS)
def test_proposals_and_probabilities_agree_with_dflash(
    make: Any, inputs: dict[str, Tensor], oracle: dict[str, Tensor], shape: str, length: int
) -> None:
    drafter, expected = (
        drafter_of(make, shape, inputs),
        {k: oracle[f"{shape}.{length}.{k}"] for k in ("greedy", "path")},
    )
    hidden = drafter.block(anchor_of(make), at(make, length), 8, filled(drafter, inputs["aux"], length, 1).visible())
    unary, candidates = torch.sort(drafter.unary(hidden), dim=-1, descending=True, stable=True)
    unary, candidates = unary[:, :16], candidates[:, :16]
    scores = draft.lattice(drafter, hidden, unary, candidates, anchor_of(make))
    greedy = draft.walk(scores, candidates, drawn(make, SamplingParams(temperature=0), length))
    assert greedy.tokens[0].tolist() == expected["greedy"].tolist()

    # Follow the oracle's sampled path and compare the law at each of its steps, candidate by candidate.
    law = torch.softmax(scores.double() / TEMPERATURE, -1)
    theirs, q, place = oracle[f"{shape}.{length}.candidates"], oracle[f"{shape}.{length}.q"], 0
    for row, token in enumerate(expected["path"].tolist()):
        mine = dict(zip(candidates[row].tolist(), law[row, place].tolist(), strict=True))
        assert set(mine) == set(theirs[row].tolist())
        for candidate, probability in zip(theirs[row].tolist(), q[row].tolist(), strict=True):
            assert mine[candidate] == pytest.approx(probability, abs=1e-4)
        place = candidates[row].tolist().index(token)


def test_sampled_walk_returns_the_law_it_drew_from(make: Any, inputs: dict[str, Tensor]) -> None:
    drafter = drafter_of(make, "public-like", inputs)
    hidden = drafter.block(anchor_of(make), at(make, 40), 8, filled(drafter, inputs["aux"], 40, 1).visible())
    unary, candidates = (x[:, :16] for x in torch.sort(drafter.unary(hidden), dim=-1, descending=True, stable=True))
    scores = draft.lattice(drafter, hidden, unary, candidates, anchor_of(make))
    law, seen = torch.softmax(scores.double() / 2, -1), set()
    for seed in range(40):
        proposal = draft.walk(scores, candidates, drawn(make, SamplingParams(temperature=2, seed=seed), 40))
        place = 0
        for row, token in enumerate(proposal.tokens[0].tolist()):
            torch.testing.assert_close(proposal.q[0, row], law[row, place])
            assert proposal.ids[0, row].tolist() == candidates[row].tolist()
            place = candidates[row].tolist().index(token)
        seen.add(tuple(proposal.tokens[0].tolist()))
    assert len(seen) > 20


def test_draws_do_not_depend_on_where_the_block_began(make: Any, inputs: dict[str, Tensor]) -> None:
    """The same scores at the same absolute positions give the same tokens from a block that began earlier."""
    scores = torch.randn(7, 16, 16, generator=torch.Generator().manual_seed(1)).to(make.device)
    scores = scores[:, :1].expand(7, 16, 16).contiguous()
    candidates = torch.arange(7 * 16, device=make.device).view(7, 16)
    params = SamplingParams(temperature=1.5, seed=9)

    def walked(first: int, start: int) -> list[int]:
        draws = drawn(make, params, start)
        return draft.walk(scores[first:], candidates[first:], draws).tokens[0].tolist()

    assert walked(0, 100)[3:] == walked(3, 103)
    assert walked(0, 101) != walked(0, 100)


@pytest.mark.parametrize("shape", ("public-like", "full-attention", "causal"))
@pytest.mark.parametrize("length", (1, 31, 41, 100))
def test_whole_window_with_unfilled_slots_is_the_visible_one(
    make: Any, inputs: dict[str, Tensor], shape: str, length: int
) -> None:
    """A captured draft sees every slot of the ring; those that hold nothing yet must not count."""
    drafter = drafter_of(make, shape, inputs)
    cache = filled(drafter, inputs["aux"], length, 3)
    for tensor in (*cache.k, *cache.v):
        tensor[length:] = 3.0
    seen, whole = (
        drafter.block(anchor_of(make), at(make, length), 8, view) for view in (cache.visible(), cache.whole())
    )
    torch.testing.assert_close(whole, seen, rtol=0, atol=1e-5)


def test_block_training_forward_agrees_with_single_blocks(make: Any, inputs: dict[str, Tensor]) -> None:
    drafter, aux = drafter_of(make, "public-like", inputs), inputs["aux"]
    anchors, tokens = torch.tensor([[1, 30, 64, 99], [12, 13, 14, 15]], device=make.device)
    together = drafter.blocks(aux, anchors, tokens)
    for row, (anchor, token) in enumerate(zip(anchors.tolist(), tokens, strict=True)):
        alone = drafter.block(token.view(1), at(make, anchor), 8, filled(drafter, aux, anchor, 1).visible())
        torch.testing.assert_close(together[row], alone, rtol=0, atol=1e-4)


def test_convolution_never_crosses_the_block(make: Any, inputs: dict[str, Tensor]) -> None:
    """A later block's rows do not depend on an earlier block's, although both go through one forward."""
    drafter, aux = drafter_of(make, "public-like", inputs), inputs["aux"]
    anchors, first, second = torch.tensor([[50, 58], [12, 14], [99, 14]], device=make.device)
    one, other = drafter.blocks(aux, anchors, first), drafter.blocks(aux, anchors, second)
    assert torch.equal(one[1], other[1]) and not torch.equal(one[0], other[0])


@pytest.mark.parametrize("taps", range(1, 9))
@pytest.mark.parametrize("rows", range(2, 9))
def test_a_narrow_block_is_the_head_of_a_whole_one(make: Any, inputs: dict[str, Tensor], taps: int, rows: int) -> None:
    """Causal layers and causal taps: no row may depend on rows behind it, however far the taps reach."""
    raw = make.draft_json(is_causal=True)
    raw["dflash_config"] |= {"conv_kernel_size": taps}
    config = DraftConfig.from_hf(raw)
    engine = make.engine()
    weights, decoder = make.weights(draft_shapes(config), 2), engine.decoder
    drafter = Drafter(config, weights, inputs["embedding"], decoder.target.head, decoder.operators)
    context = filled(drafter, inputs["aux"], 40, 1).visible()
    narrow, whole = (drafter.block(anchor_of(make), at(make, 40), n, context) for n in (rows, 8))
    torch.testing.assert_close(narrow, whole[: rows - 1], rtol=0, atol=1e-5)


def test_taps_that_reach_further_than_the_last_rounds_rows(make: Any) -> None:
    raw = make.draft_json()
    raw["dflash_config"] |= {"conv_kernel_size": 8}
    engine = make.engine(draft=raw, max_model_len=48)
    full = make.answer(engine, make.prompt_of(30), sampling=SamplingParams(temperature=0))
    plain = make.answer(engine, make.prompt_of(30), sampling=SamplingParams(temperature=0), speculation="none")
    assert full.tokens == plain.tokens and len(full.tokens) == 18
    assert {round.rows for round in full.rounds} >= {2, 3, 8}


@pytest.mark.acceptance
def test_answers_of_nano_agree_with_dflash(make: Any, tmp_path: Path) -> None:
    """The public package runs the embedded checkpoint as it lies there: equal tokens, equally many accepted a round."""
    nano = Path(__file__).parents[2] / "runtime/checkpoints/nano"
    engine = Engine.load(nano, EngineOptions(max_model_len=512, device=make.device.type))
    prompts = [Tokenizer.from_file(str(nano / "tokenizer.json")).encode(text).ids for text in QUESTIONS]
    job = {"model": str(nano), "drafter": str(nano / "drafter"), "prompts": prompts, "max_new_tokens": 60}
    oracle = make.run_oracle("dflash_generate.py", tmp_path, [{"name": "nano"} | job])
    drafted = 0
    for index, prompt in enumerate(prompts):
        mine = make.answer(engine, prompt, sampling=SamplingParams(temperature=0), max_tokens=60)
        assert mine.tokens == oracle[f"nano.{index}.tokens"].tolist()
        # Near the end their rounds are narrower: they draft no further than max_new_tokens.
        theirs = oracle[f"nano.{index}.rounds"].tolist()
        theirs = [kept for kept, end in zip(theirs, itertools.accumulate(theirs), strict=True) if end - kept <= 60 - 9]
        assert [len(round.token_ids) for round in mine.rounds][: len(theirs)] == theirs
        drafted += sum(theirs) - len(theirs)
    assert drafted > 60, "the comparison saw accepted drafts"


def test_public_configuration_counts() -> None:
    """On the meta device: 1,924,404,480 drafter parameters and 851 target tensors."""
    cases = json.loads((Path(__file__).parents[2] / "benchmarks/qwen3_8_27b.json").read_text())
    target, drafter = TargetConfig.from_hf(cases["target"]), DraftConfig.from_hf(cases["drafter"])
    tensors = {name: torch.empty(shape, device="meta") for name, shape in draft_shapes(drafter).items()}
    assert sum(tensor.numel() for tensor in tensors.values()) == 1_924_404_480
    assert parameter_count(draft_shapes(drafter)) == 1_924_404_480
    assert len(target_shapes(target)) == 851
    assert tensors["fc.weight"].shape == (5120, 25600)
    assert tensors["layers.4.mlp_conv.kernel_projection.weight"].shape == (1280, 5120)
