"""Reading checkpoints: both name prefixes, shards, 16-bit and NVFP4 tensors, and every refusal in one sentence."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kernels.projection import nvfp4
from kernels.projection.fp8 import Fp8Weight
from kernels.routes import Routes
from runtime.config import DraftConfig, TargetConfig, eos_token_ids
from runtime.engine.capacity import kept_saving
from runtime.engine.engine import Engine
from runtime.engine.shape import EngineOptions, EngineShape
from runtime.errors import CapacityError, ModelError
from runtime.models import quant
from runtime.models.layers import GatedLinear, Linear
from runtime.models.parallel import ShardedWeights
from runtime.models.random_weights import random_weights
from runtime.models.shapes import target_shapes
from runtime.models.target import Head
from runtime.models.weights import read_target
from runtime.operators import Operators
from runtime.speculation.sampling import SamplingParams

CPU = torch.device("cpu")
OPTIONS = EngineOptions(max_model_len=256)


def edited(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    raw = json.loads((folder / "config.json").read_text())
    change(raw)
    (folder / "config.json").write_text(json.dumps(raw))


def retensored(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.fixture
def model(make: Any, tmp_path: Path) -> Path:
    folder = make.write_target(tmp_path / "model", make.target_json())
    make.write_drafter(folder / "drafter", make.draft_json())
    return folder


@pytest.mark.parametrize("prefix", ("model.", "model.language_model."))
@pytest.mark.parametrize("shards", (1, 3))
def test_values_are_the_stored_ones(make: Any, tmp_path: Path, prefix: str, shards: int) -> None:
    raw = make.target_json()
    if prefix == "model.language_model.":
        raw = {"model_type": "qwen3_5", "text_config": raw, "vision_config": {}, "eos_token_id": [5, 6]}
    folder = make.write_target(tmp_path / "model", raw, seed=4, prefix=prefix, shards=shards)
    config = TargetConfig.from_hf(raw)
    expected, found = random_weights(target_shapes(config), 4), read_target(folder, config, CPU, torch.float32)
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    half = read_target(folder, config, CPU, torch.bfloat16)
    assert half["norm.weight"].dtype == torch.bfloat16 and half["layers.0.linear_attn.A_log"].dtype == torch.float32


def test_loaded_engine_answers_as_one_made_in_memory(make: Any, model: Path) -> None:
    loaded, made = Engine.load(model, EngineOptions(max_model_len=512, page_size=16)), make.engine()
    prompt = make.prompt_of(30)
    assert make.answer(loaded, prompt, max_tokens=16).tokens == make.answer(made, prompt, max_tokens=16).tokens


def test_eos_ids_come_from_the_generation_configuration(make: Any, model: Path) -> None:
    config = TargetConfig.from_hf(make.target_json())
    assert eos_token_ids(model, config) == (7,)
    (model / "generation_config.json").write_text('{"eos_token_id": [9, 11]}')
    assert eos_token_ids(model, config) == (9, 11)
    assert Engine.load(model, OPTIONS).eos_ids == (9, 11)


def drop(name: str) -> Callable[[dict[str, torch.Tensor]], Any]:
    return lambda tensors: tensors.pop(name)


def put(name: str, value: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], Any]:
    return lambda tensors: tensors.update({name: value})


REFUSED_CONFIGS = {
    "moe-type": ({"model_type": "qwen3_5_moe"}, "model_type is 'qwen3_5_moe'"),
    "experts": ({"num_experts": 8}, "experts"),
    "bias": ({"attention_bias": True}, "attention_bias"),
    "activation": ({"hidden_act": "gelu"}, "gelu"),
    "ungated": ({"attn_output_gate": False}, "attn_output_gate"),
    "state-dtype": ({"mamba_ssm_dtype": "bfloat16"}, "bfloat16"),
    "rope": ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
    "layer-type": ({"layer_types": ["chunked"] * 4}, "chunked"),
    "layer-count": ({"num_hidden_layers": 6}, "lists 4 layers"),
    "heads": ({"num_key_value_heads": 4}, "not a multiple of num_key_value_heads 4"),
    "mtp": ({"mtp_num_hidden_layers": 1}, "no mtp"),
    "missing-field": ({"linear_key_head_dim": ...}, "linear_key_head_dim"),
    "quantisation": ({"quantization_config": {"format": "int-quantized"}}, "int-quantized"),
    "fp8-of-five-bits": ({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}, "fmt 'e5m2'; only e4m3"),
    "fp8-in-rows": ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}, r"is \[128\]; two"),
    "fp8-by-others": ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, "modelopt"),
    "fp8-in-groups": (
        {"quantization_config": {"format": "float-quantized", "config_groups": {"g": {"weights": {"num_bits": 8}}}}},
        "a scale per channel",
    ),
}


@pytest.mark.parametrize("case", REFUSED_CONFIGS)
def test_configurations_that_cannot_be_served(model: Path, case: str) -> None:
    changes, words = REFUSED_CONFIGS[case]
    edited(model, lambda raw: raw.update(changes) if ... not in changes.values() else raw.pop(next(iter(changes))))
    with pytest.raises(ModelError, match=words) as error:
        Engine.load(model, OPTIONS)
    assert "\n" not in str(error.value)


REFUSED_TENSORS = {
    "missing": (drop("model.layers.1.mlp.up_proj.weight"), r"no tensor 'layers\.1\.mlp\.up_proj\.weight'"),
    "missing-head": (drop("lm_head.weight"), "no tensor 'lm_head.weight'"),
    "misshapen": (put("model.layers.1.self_attn.q_proj.weight", torch.zeros(96, 48)), r"shape \[96, 48\].*\[192, 48\]"),
}


@pytest.mark.parametrize("case", REFUSED_TENSORS)
def test_tensors_that_do_not_fit(model: Path, case: str) -> None:
    change, words = REFUSED_TENSORS[case]
    retensored(model, change)
    with pytest.raises(ModelError, match=words):
        Engine.load(model, OPTIONS)


def test_files_that_cannot_be_read(make: Any, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        Engine.load(tmp_path / "nowhere", OPTIONS)
    (model / "model.safetensors").write_bytes(b"\x08not safetensors")
    with pytest.raises(ModelError, match="not a readable safetensors file"):
        Engine.load(model, OPTIONS)
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="has no"):
        Engine.load(model, OPTIONS)
    sharded = make.write_target(tmp_path / "sharded", make.target_json(), shards=2)
    next(sharded.glob("model-*.safetensors")).unlink()
    with pytest.raises(ModelError, match="lists it"):
        Engine.load(sharded, OPTIONS)


DRAFT_REFUSALS = {
    "architecture": ({"architectures": ["DFlashDraftModel"]}, "DFlashDraftModel"),
    "no-config": ({"dflash_config": {}}, "lacks a field"),
    "width": ({"hidden_size": 64, "head_dim": 16}, "hidden_size is 64"),
    "layers": ({"dflash_config": None}, "reads target layers"),
    "window": ({"use_sliding_window": False}, "without use_sliding_window true"),
    "window-unsaid": ({"use_sliding_window": None}, "without use_sliding_window true"),
    "layer-list": ({"layer_types": ["full_attention"]}, "lists 1 layers, num_hidden_layers says 2"),
    "taps": ({"conv_kernel_size": 9, "dflash_config": None}, "conv_kernel_size is 9"),
    "no-taps": ({"conv_kernel_size": 0, "dflash_config": None}, "conv_kernel_size is 0"),
    "block": ({"block_size": 16, "dflash_config": None}, "block_size is 16"),
}


@pytest.mark.parametrize("case", DRAFT_REFUSALS)
def test_drafters_that_cannot_be_served(make: Any, model: Path, case: str) -> None:
    changes, words = DRAFT_REFUSALS[case]
    raw, own = make.draft_json(), dict(make.draft_json()["dflash_config"])
    if changes.get("dflash_config", ...) is None:
        named = {key: changes[key] for key in ("block_size", "conv_kernel_size") if key in changes}
        own |= named or {"target_layer_ids": [0, 3]}
        changes = {"dflash_config": own}
    (model / "drafter" / "config.json").write_text(json.dumps(raw | changes))
    with pytest.raises(ModelError, match=words):
        Engine.load(model, OPTIONS)


def quantised(folder: Path, *others: str) -> dict[str, torch.Tensor]:
    """Quantise every linear of the checkpoint in place, and `others`; returns the FP64 values its codes stand for."""
    values: dict[str, torch.Tensor] = {}

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if "_proj" in name or name in others]:
            weight = nvfp4.quantise(tensors.pop(name))
            stem = name.removesuffix(".weight")
            tensors[f"{stem}.weight_packed"], tensors[f"{stem}.weight_scale"] = weight.packed, weight.scales
            tensors[f"{stem}.weight_global_scale"] = torch.tensor([weight.global_scale])
            tensors[f"{stem}.input_global_scale"] = torch.tensor([1.0])
            codes = torch.stack((weight.packed & 15, weight.packed >> 4), -1).flatten(1).long()
            magnitude = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]).double()[codes & 7]
            scales = weight.scales.double().repeat_interleave(16, 1)
            signs = 1 - 2 * (codes >> 3)
            values[name.removeprefix("model.")] = signs * magnitude * scales / weight.global_scale

    retensored(folder, change)
    groups = {"group_0": {"format": "nvfp4-pack-quantized", "weights": {"num_bits": 4, "group_size": 16}}}
    edited(
        folder, lambda raw: raw.update(quantization_config={"format": "nvfp4-pack-quantized", "config_groups": groups})
    )
    return values


def test_nvfp4_checkpoint_is_read_exactly(make: Any, tmp_path: Path) -> None:
    raw = make.target_json(linear_value_head_dim=16)
    folder = make.write_target(tmp_path / "model", raw)
    values = quantised(folder)
    config = TargetConfig.from_hf(json.loads((folder / "config.json").read_text()))
    found = read_target(folder, config, CPU, torch.float32)
    assert len(values) == 2 * 5 + 2 * 4 + 4 * 3 == sum("_proj" in name for name in target_shapes(config))
    for name, value in values.items():
        torch.testing.assert_close(found[name].double(), value, rtol=1e-7, atol=0)
    tokens = make.answer(Engine.load(folder, EngineOptions(max_model_len=128)), make.prompt_of(108), speculation="none")
    assert len(tokens.tokens) == 20


@pytest.mark.parametrize(
    ("part", "value", "words"),
    (
        ("weight_packed", torch.zeros(80, 12, dtype=torch.uint8), r"shape \[80, 12\]"),
        ("weight_scale", torch.zeros(80, 2).to(torch.float8_e4m3fn), r"shape \[80, 2\]"),
        ("weight_global_scale", torch.tensor([0.0]), "positive divisor"),
    ),
)
def test_misshapen_nvfp4_parts_are_refused(
    make: Any, tmp_path: Path, part: str, value: torch.Tensor, words: str
) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json(linear_value_head_dim=16))
    quantised(folder)
    retensored(folder, put(f"model.layers.0.mlp.up_proj.{part}", value))
    with pytest.raises(ModelError, match=words):
        Engine.load(folder, OPTIONS)


FP8_CONFIG = {
    # As llm-compressor's FP8_DYNAMIC recipe declares it.
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
        }
    },
}


def e4m3(codes: np.ndarray) -> np.ndarray:
    """FP64 values of E4M3 bytes by definition: sign, four bits of exponent with bias 7, three of mantissa."""
    bits = codes.astype(np.int64)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    normal, subnormal = (1 + mantissa / 8) * 2.0 ** (exponent - 7), mantissa / 8 * 2.0**-6
    return np.where(bits >> 7, -1.0, 1.0) * np.where(exponent == 0, subnormal, normal)


# As Transformers' FineGrainedFP8Config and vLLM's checkpoints declare it: scales of blocks, or one for a tensor.
BLOCK = 32
FP8_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
FP8_TENSOR = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}


def in_eight_bits(
    folder: Path, scale_type: torch.dtype = torch.bfloat16, declared: dict[str, Any] = FP8_CONFIG
) -> dict[str, np.ndarray]:
    """Every linear as codes with scales as `declared` has them; returns the FP64 values that they stand for."""
    values: dict[str, np.ndarray] = {}
    part = "scale" if declared is FP8_CONFIG else "scale_inv"

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if "_proj" in name]:
            weight = tensors[name].float()
            n, k = weight.shape
            rows, inputs = {id(FP8_BLOCKS): (BLOCK, BLOCK), id(FP8_TENSOR): (n, k)}.get(id(declared), (1, k))
            scale = torch.zeros(-(-n // rows), -(-k // inputs), dtype=scale_type)
            every = np.zeros((n, k))
            for i, j in np.ndindex(*scale.shape):
                block = slice(i * rows, (i + 1) * rows), slice(j * inputs, (j + 1) * inputs)
                scale[i, j] = weight[block].abs().max() / 448
                every[block] = float(scale[i, j])
            codes = (weight / torch.tensor(every).float()).clamp(-448, 448).to(torch.float8_e4m3fn)
            tensors[name], tensors[f"{name}_{part}"] = codes, scale.reshape(()) if declared is FP8_TENSOR else scale
            values[name.removeprefix("model.")] = e4m3(codes.view(torch.uint8).numpy()) * every

    retensored(folder, change)
    edited(folder, lambda raw: raw.update(quantization_config=declared))
    return values


@pytest.mark.parametrize(
    ("declared", "scale_type"),
    [
        (FP8_CONFIG, torch.bfloat16),
        (FP8_CONFIG, torch.float32),
        (FP8_BLOCKS, torch.float32),
        (FP8_TENSOR, torch.float32),
    ],
    ids=["rows", "rows-float32", "blocks", "tensor"],
)
def test_an_fp8_checkpoint_has_the_values_of_its_codes_and_runs_every_schedule(
    make: Any, tmp_path: Path, column_tiles: None, declared: dict[str, Any], scale_type: torch.dtype
) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json())
    values = in_eight_bits(folder, scale_type, declared)
    config = TargetConfig.from_hf(json.loads((folder / "config.json").read_text()))
    found = read_target(folder, config, CPU, torch.float32)
    assert len(values) == sum("_proj" in name for name in target_shapes(config))
    for name, value in values.items():
        np.testing.assert_allclose(found[name].double().numpy(), value, rtol=2**-24, atol=0)
    engine = Engine.load(folder, OPTIONS)
    plain = make.answer(engine, make.prompt_of(40), max_tokens=12, speculation="none")
    engine.routes.enable({"projection": "columns-32"})
    assert len(make.answer(engine, make.prompt_of(40), max_tokens=12, speculation="none").tokens) == len(plain.tokens)
    assert any(row["schedule"] == "columns-32" and row["hits"] for row in engine.counters())


@pytest.mark.parametrize(
    ("scale", "words"),
    (
        (torch.ones(80, 2), r"weight_scale has shape \[80, 2\]; one scale per row of \[80, 48\]"),
        (torch.ones(79, 1), r"weight_scale has shape \[79, 1\]"),
        (torch.zeros(80, 1), "not positive and finite"),
        (torch.full((80, 1), torch.inf), "not positive and finite"),
        (None, "up_proj.weight is E4M3 without a weight_scale"),
    ),
)
def test_fp8_scales_that_do_not_fit_are_refused(
    make: Any, tmp_path: Path, scale: torch.Tensor | None, words: str
) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json())
    in_eight_bits(folder)
    name = "model.layers.0.mlp.up_proj.weight_scale"
    retensored(folder, put(name, scale) if scale is not None else lambda tensors: tensors.pop(name))
    with pytest.raises(ModelError, match=words):
        Engine.load(folder, OPTIONS)


@pytest.mark.parametrize("declared", [FP8_CONFIG, FP8_TENSOR], ids=["rows", "tensor"])
def test_kept_fp8_linears_are_joined_and_answer_as_their_values(
    make: Any, tmp_path: Path, declared: dict[str, Any]
) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json())
    values, greedy, answers = in_eight_bits(folder, torch.float32, declared), SamplingParams(temperature=0), []
    for keep in (False, True):
        engine = Engine.load(folder, EngineOptions(max_model_len=128, keep_quantised=keep))
        answers.append(make.answer(engine, make.prompt_of(40), sampling=greedy, max_tokens=20, speculation="none"))
    assert answers[0].tokens == answers[1].tokens
    layer = engine.decoder.target.layers[0]
    assert isinstance(layer.mlp.gated, GatedLinear) and isinstance(layer.mixer.project, Linear)
    joined, stem = layer.mlp.gated.both.weight, "layers.0.mlp.{}_proj.weight"
    both = np.concatenate([values[stem.format(side)] for side in ("gate", "up")])
    assert isinstance(joined, Fp8Weight) and layer.mlp.down.weight.format == "fp8"
    np.testing.assert_allclose(joined.dequantised().double().numpy(), both, rtol=2**-24, atol=0)


def test_fp8_values_are_those_that_transformers_reads(make: Any, tmp_path: Path) -> None:
    """Scales of blocks in FP32 and in E8M0, and one for a tensor under either of its names."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    theirs, config = Fp8Dequantize(None), TargetConfig.from_hf(make.target_json())
    stem, draw = "layers.0.mlp.up_proj", torch.Generator().manual_seed(2)
    codes = torch.randint(0, 127, (80, 48), generator=draw, dtype=torch.uint8).view(torch.float8_e4m3fn)
    grid = torch.rand(5, 3, generator=draw) + 0.1
    cases = [("weight_scale_inv", grid), ("weight_scale_inv", grid.to(torch.float8_e8m0fnu))]
    cases += [("weight_scale_inv", torch.tensor(0.37)), ("weight_scale", torch.tensor([0.37]))]
    for i, (part, scale) in enumerate(cases):
        folder = make.write_target(tmp_path / str(i), make.target_json())
        added = {f"model.{stem}.weight": codes, f"model.{stem}.{part}": scale}
        retensored(folder, lambda tensors, added=added: tensors.update(added))
        size = [16, 16] if scale.numel() > 1 else None
        edited(folder, lambda raw, size=size: raw.update(quantization_config=FP8_BLOCKS | {"weight_block_size": size}))
        found = read_target(folder, config, CPU, torch.float32)[f"{stem}.weight"]
        assert torch.equal(found, theirs._dequantize_one(codes, scale, torch.float32)), (part, scale.dtype)


def test_exponents_stored_as_integers_are_refused(make: Any, tmp_path: Path) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json())
    in_eight_bits(folder, torch.float32, FP8_BLOCKS)
    name = "model.layers.0.mlp.up_proj.weight_scale_inv"
    retensored(folder, lambda tensors: tensors.update({name: torch.full_like(tensors[name], 127).byte()}))
    with pytest.raises(ModelError, match=r"up_proj\.weight_scale_inv is torch\.uint8; exponents"):
        Engine.load(folder, OPTIONS)


def test_what_no_schedule_reads_is_not_kept(make: Any, tmp_path: Path) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json())
    in_eight_bits(folder, torch.float32, FP8_BLOCKS)
    with pytest.raises(ModelError, match="each block of 32 x 32, which no schedule reads: serve it without"):
        Engine.load(folder, EngineOptions(max_model_len=128, keep_quantised=True))


def test_a_code_that_is_no_number_is_refused(make: Any, tmp_path: Path) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json())
    in_eight_bits(folder)
    name = "model.layers.1.mlp.down_proj.weight"
    retensored(folder, lambda tensors: tensors[name].view(torch.uint8)[5].fill_(0xFF))
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.down_proj\.weight holds an E4M3 code that is no number"):
        Engine.load(folder, OPTIONS)


def test_a_rank_cuts_codes_and_scales_as_it_cuts_values(make: Any, tmp_path: Path) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json())
    values = in_eight_bits(folder, torch.float32)
    config = TargetConfig.from_hf(json.loads((folder / "config.json").read_text()))
    whole, kept = (read_target(folder, config, CPU, torch.float32, keep) for keep in (False, True))
    for rank in range(2):
        dense, codes = (ShardedWeights(weights, config, rank, 2) for weights in (whole, kept))
        for name in values:
            assert torch.equal(codes[name].dequantised(), dense[name]), name


def test_options_that_cannot_be_served(model: Path) -> None:
    for options, words in (
        (EngineOptions(dtype="float64"), "float64"),
        (EngineOptions(kv_cache_dtype="int8"), "int8"),
        (EngineOptions(max_model_len=5000), "5000"),
        (EngineOptions(world_size=2), "tensor-parallel size 2"),
    ):
        with pytest.raises(ModelError, match=words):
            Engine.load(model, options)


def test_capacity_is_checked_against_memory_with_the_numbers(make: Any) -> None:
    raw = make.target_json(max_position_embeddings=1 << 42)
    shape = EngineShape.of(
        TargetConfig.from_hf(raw), DraftConfig.from_hf(make.draft_json()), EngineOptions(max_model_len=1 << 40)
    )
    with pytest.raises(
        CapacityError, match=r"max_model_len 1099511627776 needs [\d.]+ GiB \(weights.*are free"
    ) as error:
        shape.check_memory()
    assert "\n" not in str(error.value)


def test_a_head_in_four_bits_is_read_kept_and_counted(make: Any, tmp_path: Path) -> None:
    folder = make.write_target(tmp_path / "model", make.target_json(linear_value_head_dim=16))
    value = quantised(folder, "lm_head.weight")["lm_head.weight"]
    config = TargetConfig.from_hf(json.loads((folder / "config.json").read_text()))
    whole, kept = (read_target(folder, config, CPU, torch.float16, keep) for keep in (False, True))
    torch.testing.assert_close(whole["lm_head.weight"], value.half(), rtol=0, atol=0)
    assert isinstance(kept["lm_head.weight"], nvfp4.Nvfp4Weight) and not whole.kept
    assert "lm_head.weight" in kept.kept and "embed_tokens.weight" not in kept.kept
    saved = kept_saving(target_shapes(config), {"lm_head.weight": "nvfp4"}, torch.float16)
    assert saved == value.numel() * 23 // 16  # two bytes less half of one and a sixteenth
    hidden = torch.randn(8, config.hidden_size, generator=torch.Generator().manual_seed(3)).half()
    logits = Head(kept["lm_head.weight"], Operators(Routes()), "lm_head")(hidden)
    assert logits.dtype == torch.float32  # not rounded to 16 bits
    torch.testing.assert_close(logits.double(), hidden.double() @ value.T, rtol=1e-5, atol=1e-5)
    engines = [Engine.load(folder, EngineOptions(max_model_len=128, keep_quantised=keep)) for keep in (False, True)]
    answers = [make.answer(engine, make.prompt_of(40), speculation="none").tokens for engine in engines]
    assert answers[0] == answers[1]


def test_kept_nvfp4_answers_as_its_dequantised_values(make: Any, tmp_path: Path) -> None:
    """Parts of one projection have different global scales here, so they stay apart; two that agree are joined."""
    folder = make.write_target(tmp_path / "model", make.target_json(linear_value_head_dim=16))
    quantised(folder)

    def one_scale(tensors: dict[str, torch.Tensor]) -> None:
        stem = "model.layers.0.mlp.{}_proj.weight_global_scale"
        tensors[stem.format("up")] = tensors[stem.format("gate")].clone()

    retensored(folder, one_scale)
    prompt, tokens = make.prompt_of(40), []
    for keep in (False, True):
        engine = Engine.load(folder, EngineOptions(max_model_len=128, keep_quantised=keep))
        greedy = SamplingParams(temperature=0)
        tokens.append(make.answer(engine, prompt, sampling=greedy, max_tokens=20, speculation="none").tokens)
        kinds = {type(layer.mlp.gated).__name__ for layer in engine.decoder.target.layers}
        assert kinds == ({"GatedLinear", "GatedSideBySide"} if keep else {"GatedLinear"})
    assert tokens[0] == tokens[1]


def test_a_drafter_in_four_bits_proposes_as_its_values_do(make: Any, model: Path) -> None:
    values = quantised(model / "drafter")
    assert {"layers.0.self_attn.q_proj.weight", "candidate_selector.hidden_projection.weight"} <= values.keys()
    greedy, answers, engines = SamplingParams(temperature=0), [], []
    for keep in (False, True):
        engines.append(Engine.load(model, EngineOptions(max_model_len=128, keep_quantised=keep)))
        answer = make.answer(engines[-1], make.prompt_of(40), sampling=greedy, max_tokens=20)
        answers.append([(record.drafted, record.accepted, record.token_ids) for record in answer.rounds])
    assert answers[0] == answers[1]
    kept = [type(engine.decoder.drafter.layers[0].attention.out.weight).__name__ for engine in engines]
    assert kept == ["DenseWeight", "Nvfp4Weight"]


@pytest.mark.parametrize(("width", "padded"), ((4120, 4128), (8240, 8256)))
def test_tensor_parallel_widths_are_padded_physically_and_cropped_logically(width: int, padded: int) -> None:
    """A rank's fused GDN projection is 4120 or 8240 wide; both were once computed wrong for want of padding."""
    generator = torch.Generator().manual_seed(0)
    halves = [nvfp4.quantise(torch.randn(width // 2, 32, generator=generator)) for _ in range(2)]
    parts = [replace(half, global_scale=halves[0].global_scale) for half in halves]
    joined = quant.joined(parts)
    assert joined is not None and (joined.n, joined.physical_n) == (width, padded)
    expected = torch.cat([part.dequantised() for part in parts])
    assert torch.equal(joined.dequantised(), expected)
    x = torch.randn(8, 32, generator=generator)
    mine = Linear(joined, Operators(Routes()), "test")(x)
    assert mine.shape == (8, width)
    torch.testing.assert_close(mine.double(), x.double() @ expected.double().T, rtol=0, atol=1e-5)
