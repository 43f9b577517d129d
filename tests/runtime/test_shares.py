"""What a rank of a tensor-parallel group holds: every share's shape, and 4-bit shares beside their values'."""

import json
from pathlib import Path

import pytest
import torch

from kernels.projection.nvfp4 import Nvfp4Weight, quantise
from kernels.routes import Routes
from runtime.config import DraftConfig, TargetConfig
from runtime.errors import ModelError
from runtime.models.layers import Linear, Weight
from runtime.models.parallel import ShardedWeights, shard_config, shard_draft
from runtime.models.quant import quantisable
from runtime.models.random_weights import random_weights
from runtime.models.shapes import draft_shapes, target_shapes
from runtime.operators import Operators

SHAPE_27B = Path(__file__).resolve().parents[2] / "benchmarks/qwen3_8_27b.json"


@pytest.mark.parametrize("size", (1, 2, 4))
def test_shares_of_the_public_shape_are_those_of_a_smaller_model(size: int) -> None:
    config = TargetConfig.from_hf(json.loads(SHAPE_27B.read_text())["target"])
    whole = {name: torch.empty(shape, device="meta") for name, shape in target_shapes(config).items()}
    shares = ShardedWeights(whole, config, size - 1, size)
    expected = target_shapes(shard_config(config, size))
    expected["lm_head.weight"] = (config.vocab_size // size, config.hidden_size)
    assert {name: tuple(shares[name].shape) for name in shares} == expected


@pytest.mark.parametrize("size", (1, 2, 4, 5))
def test_shares_of_the_public_drafter_are_those_of_a_smaller_one_where_its_heads_divide(size: int) -> None:
    config = DraftConfig.from_hf(json.loads(SHAPE_27B.read_text())["drafter"])
    whole = {name: torch.empty(shape, device="meta") for name, shape in draft_shapes(config).items()}
    mine = shard_draft(config, size)
    shares = ShardedWeights(whole, config, size - 1, size) if mine != config else whole
    assert (mine == config) == (size in (1, 5)) and mine.num_key_value_heads in (8, 4, 2)
    assert {name: tuple(shares[name].shape) for name in shares} == draft_shapes(mine)


@pytest.mark.parametrize("size", (2, 4))
def test_a_share_of_4_bit_weights_has_the_values_of_a_share_of_their_values(make, size: int) -> None:
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "linear_num_key_heads": 4, "linear_num_value_heads": 8}
    widths = {"linear_value_head_dim": 16, "intermediate_size": 128}
    config = TargetConfig.from_hf(make.target_json(**heads, **widths))
    dense = random_weights(target_shapes(config), 1)
    codes: dict[str, Weight] = {name: quantise(dense[name]) if quantisable(name) else dense[name] for name in dense}
    values = {name: values_of(weight) for name, weight in codes.items()}
    kept = 0
    for rank in range(size):
        mine, theirs = ShardedWeights(codes, config, rank, size), ShardedWeights(values, config, rank, size)
        for name in codes:
            assert torch.equal(values_of(mine[name]), values_of(theirs[name])), name
            kept += isinstance(mine[name], Nvfp4Weight)
    assert kept == size * sum(map(quantisable, codes))


@pytest.mark.parametrize(("rows", "operator"), ((8, "projection"), (40, "prefill_projection")))
def test_a_prompts_share_is_a_projection_of_many_rows(rows: int, operator: str) -> None:
    """Not one of verification's, whose default decodes 4-bit weights slice by slice."""
    weight, operators = quantise(torch.randn(48, 64)), Operators(Routes())
    x = torch.randn(rows, 64).half()
    share = Linear(weight, operators, "out").share(x, weight)
    assert share.dtype == torch.float32
    torch.testing.assert_close(share, x.float() @ values_of(weight).T, rtol=1e-5, atol=1e-5)
    assert [row["operator"] for row in operators.routes.counters()] == [operator]


def test_a_group_with_one_scale_is_not_cut(make) -> None:
    config = TargetConfig.from_hf(make.target_json(intermediate_size=48))
    name = "layers.0.mlp.down_proj.weight"
    codes = {name: quantise(random_weights(target_shapes(config), 1)[name])}
    with pytest.raises(ModelError, match=r"down_proj.weight has 48 inputs, 16 .* size 2 would cut .* without --keep-"):
        ShardedWeights(codes, config, 0, 2)[name]


def values_of(weight: Weight) -> torch.Tensor:
    return weight.dequantised() if isinstance(weight, Nvfp4Weight) else weight
