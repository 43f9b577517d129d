"""The guards of the CUDA schedules, line by line. A guard sees a problem, so it needs no device to be asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels import (
    accept,
    attention,
    block_attention,
    block_conv,
    commit,
    gated_norm,
    gdn,
    norm,
    output_gate,
    prefill_attention,
    prefill_gdn,
    projection,
    publication,
    rotary,
    selection,
    shortlist,
    walk,
)
from kernels.operators import OPERATORS, operator
from kernels.prefill_gdn import chunked
from kernels.prefill_gdn.flash_linear import trial
from kernels.registry import Refusal, select

STRIDES = (3296 * 256, 256, 256, 1)
ATTENTION = attention.Problem(
    8, 6, 1, 256, 3296, 4, q_dtype="float16", kv_dtype="float8_e4m3fn", q_strides=(1536, 256, 1),
    k_strides=STRIDES, v_strides=STRIDES, device="cuda", arch="sm_90",
)  # fmt: skip
GDN = gdn.Problem(
    8, 4, 12, 128, 128, dtype="float16", weight_dtype="float16", row_strides=(2592, 2592, 2592), device="cuda",
    arch="sm_90",
)  # fmt: skip
PROJECTION = projection.Problem(
    8, 4120, 5120, dtype="float16", weight_format="nvfp4", weight_dtype="nvfp4", physical_n=4128, row_stride=5120,
    device="cuda", arch="sm_90",
)  # fmt: skip
SELECTION = selection.Problem(8, 248320, 20, row_stride=248320, device="cuda", arch="sm_90")
GATED = replace(PROJECTION, n=8704, physical_n=8704)
HERE = {"dtype": "float16", "device": "cuda", "arch": "sm_90"}
GOOD = {
    "attention": ATTENTION,
    "gated": GATED,
    "gdn": GDN,
    "walk": walk.Problem(7, 16, False, **HERE | {"dtype": "float32"}),
    "accept": accept.Problem(8, 21, 16, False, **HERE | {"dtype": "float32"}),
    "commit": commit.Problem(5, 8, 2048, cache="float16", slots=(2056,) * 5, **HERE),
    "projection": PROJECTION,
    "prefill_projection": replace(PROJECTION, m=3296),
    "prefill_gated": replace(GATED, m=3296),
    "prefill_attention": prefill_attention.Problem(3296, 32960, 24, 4, 256, **HERE),
    "prefill_gdn": prefill_gdn.Problem(3296, 16, 48, 128, 128, **HERE),
    "selection": SELECTION,
    "shortlist": shortlist.Problem(8, 248320, 5120, 21, row_stride=5120, **HERE),
    "norm": norm.Problem(8, 5120, row_strides=(5120, 5120), **HERE),
    "publication": publication.Problem(8, 5120, 8704, 2, row_stride=5120, **HERE),
    "rotary": rotary.Problem(8, 24, 4, 256, 64, True, row_stride=14336, cache="float8_e4m3fn", **HERE),
    "output_gate": output_gate.Problem(8, 24, 256, gate_strides=(14336, 512), **HERE),
    "gated_norm": gated_norm.Problem(8, 48, 128, gate_stride=16480, **HERE),
    "block_conv": block_conv.Problem(1, 8, 5120, 2, 320, dynamic_strides=(1280, 320), **HERE),
    "block_attention": block_attention.Problem(8, 32, 8, 128, 2056, cache="float16", strides=(1024, 6144), **HERE),
}
UNALIGNED, SCATTERED = (3296 * 256 + 1, 257, 256, 1), (3296 * 256, 1, 1, 256)

REFUSALS = [
    ("attention", "scalar", {"rows": 9}, "9 rows"),
    ("attention", "scalar", {"q_dtype": "float64"}, "q is float64"),
    ("attention", "scalar", {"kv_dtype": "float8_e5m2"}, "K and V are float8_e5m2"),
    ("attention", "scalar", {"head_dim": 24}, "head dimension 24"),
    ("attention", "scalar", {"q_strides": (3072, 256, 1)}, "only contiguous"),
    ("attention", "scalar", {"k_strides": SCATTERED}, "last axis"),
    ("attention", "scalar", {"v_strides": UNALIGNED}, "no multiple"),
    ("attention", "grouped", {"rows": 9}, "9 rows"),
    ("attention", "grouped", {"q_heads": 16}, "128 query rows and heads"),
    ("attention", "grouped", {"q_dtype": "bfloat16"}, "q is bfloat16"),
    ("attention", "grouped", {"kv_dtype": "float16"}, "K and V are float16"),
    ("attention", "grouped", {"head_dim": 128}, "head dimension 128"),
    ("attention", "grouped", {"q_strides": (3072, 256, 1)}, "only contiguous"),
    ("attention", "grouped", {"v_strides": SCATTERED}, "last axis"),
    ("attention", "grouped", {"k_strides": UNALIGNED}, "no multiple of 16 bytes"),
    ("gdn", "bv8", {"rows": 9}, "9 rows"),
    ("gdn", "bv2", {"key_dim": 64}, "(64, 128)"),
    ("gdn", "bv16", {"conv_width": 3}, "3 taps"),
    ("gdn", "bv32", {"dtype": "float64"}, "qkv is float64"),
    ("gdn", "bv8", {"weight_dtype": "float64"}, "weights are float64"),
    ("gdn", "joint-bv16", {"table_slots": 16}, "16 slots; at most 8"),
    ("gdn", "joint-bv16", {"dtype": "float32", "weight_dtype": "float32"}, "qkv is float32"),
    ("gdn", "joint-bv16", {"weight_dtype": "bfloat16"}, "weights are bfloat16; float16 or float32"),
    ("gdn", "joint-bv16", {"row_strides": (2593, 2593, 2593)}, "2593 elements apart; a multiple of 8"),
    ("gdn", "shared-bv16", {"value_heads": 8}, "2 value heads a key head; only 3"),
    ("gdn", "shared-bv16", {"table_slots": 7}, "7 slots; only 8"),
    ("gdn", "shared-bv16", {"rows": 9}, "9 rows"),
    ("projection", "nvfp4-rows", {"weight_format": "dense"}, "weight format 'dense'"),
    ("projection", "nvfp4-rows", {"dtype": "bfloat16"}, "x is bfloat16"),
    ("projection", "nvfp4-rows", {"m": 9}, "9 rows"),
    ("projection", "nvfp4-rows", {"k": 5136}, "K = 5136; a multiple of 32"),
    ("projection", "nvfp4-stream", {"k": 5152}, "K = 5152; a multiple of 128"),
    ("projection", "nvfp4-stream", {"row_stride": 5124}, "5124 elements apart"),
    ("projection", "nvfp4-stream", {"physical_n": 4120}, "4120 physical columns; pad the weight"),
    ("projection", "nvfp4-stream-paired", {"physical_n": None}, "4120 physical columns; pad the weight"),
    ("projection", "nvfp4-stream-exchange", {"n": 8240, "physical_n": 8248}, "8248 physical columns; pad the weight"),
    ("projection", "nvfp4-rows", {"wide": True}, "FP32 outputs"),
    ("projection", "fp8-stream", {"weight_format": "nvfp4"}, "weight format 'nvfp4'; only 'fp8'"),
    ("projection", "fp8-stream", {"dtype": "bfloat16"}, "x is bfloat16"),
    ("projection", "fp8-stream", {"m": 9}, "9 rows"),
    ("projection", "fp8-stream", {"k": 5152}, "K = 5152; a multiple of 128"),
    ("projection", "fp8-stream", {"row_stride": 5124}, "5124 elements apart"),
    ("gated", "fp8-stream", {"weight_format": "dense"}, "weight format 'dense'; only 'fp8'"),
    ("gated", "fp8-stream", {"n": 8705}, "8705 rows are no gates"),
    ("publication", "peers", {"apart": "GPU 0 does not reach the memory of GPU 1"}, "does not reach"),
    ("publication", "peers", {"ranks": 9}, "9 ranks; 2 to 8"),
    ("publication", "peers", {"dtype": "float32"}, "the residual is float32"),
    ("publication", "peers", {"rows": 9}, "9 rows; 1 to 8"),
    ("publication", "peers", {"width": 8196}, "rows of 8196; at most 8192"),
    ("publication", "peers", {"width": 5121}, "rows of 5121; a multiple of 4"),
    ("publication", "peers", {"row_stride": 5122}, "5122 apart"),
    ("publication", "peers-stream", {"apart": "GPU 0 does not reach the memory of GPU 1"}, "does not reach"),
    ("publication", "peers-stream", {"rows": 9}, "9 rows; 1 to 8"),
    ("norm", "rows", {"dtype": "float32"}, "x is float32"),
    ("norm", "rows", {"width": 8196}, "rows of 8196; at most 8192"),
    ("norm", "rows", {"width": 5121}, "rows of 5121; a multiple of 4"),
    ("norm", "rows", {"row_strides": (5122, 5120)}, "rows (5122, 5120) apart"),
    ("rotary", "heads", {"dtype": "float32"}, "qkv is float32"),
    ("rotary", "heads", {"dim": 64}, "heads of 64; one of (128, 256)"),
    ("rotary", "heads", {"rotated": 24}, "24 values of a head rotate"),
    ("rotary", "heads", {"axes": 2}, "2 axes before the columns"),
    ("rotary", "heads", {"row_stride": 14338}, "rows 14338 elements apart"),
    ("rotary", "heads", {"cache": "bfloat16"}, "the cache is bfloat16"),
    ("rotary", "heads", {"dense": False}, "that are not contiguous"),
    ("output_gate", "pieces", {"dtype": "float32"}, "x is float32"),
    ("output_gate", "pieces", {"dim": 30}, "heads of 30; a multiple of 4"),
    ("output_gate", "pieces", {"axes": 2}, "2 axes before the heads"),
    ("output_gate", "pieces", {"dense": False}, "is not contiguous"),
    ("output_gate", "pieces", {"gate_strides": (14338, 512)}, "gates (14338, 512) apart"),
    ("gated_norm", "heads", {"dtype": "float32"}, "x is float32"),
    ("gated_norm", "heads", {"dim": 64}, "heads of 64; only 128"),
    ("gated_norm", "heads", {"axes": 2}, "2 axes before the heads"),
    ("gated_norm", "heads", {"dense": False}, "is not contiguous"),
    ("gated_norm", "heads", {"gate_stride": 16482}, "16482 elements apart; a multiple of 4"),
    ("walk", "path", {"dtype": "float16"}, "scores are float16"),
    ("walk", "path", {"width": 65}, "65 candidates a row; 1 to 64"),
    ("walk", "path", {"rows": 16, "width": 17}, "16 rows of 17 candidates"),
    ("walk", "path", {"dense": False}, "are not contiguous"),
    ("accept", "verdict", {"dtype": "float64"}, "logits are float64"),
    ("accept", "verdict", {"rows": 33}, "33 rows; at most 32"),
    ("accept", "verdict", {"support": 66}, "8 rows of 66 logits"),
    ("accept", "verdict", {"rows": 32, "support": 40}, "32 rows of 40 logits"),
    ("accept", "verdict", {"dense": False}, "are not contiguous"),
    ("commit", "rows", {"layers": 17}, "17 layers; at most 16"),
    ("commit", "rows", {"cache": "float32"}, "context float16 for rings of float32"),
    ("commit", "rows", {"row_bytes": 24}, "rows of 24 bytes; a multiple of 16"),
    ("commit", "rows", {"slots": (2056, 7)}, "8 rows for rings of (2056, 7) slots"),
    ("commit", "rows", {"dense": False}, "are not contiguous"),
    ("shortlist", "codes", {"dtype": "bfloat16"}, "x is bfloat16"),
    ("shortlist", "codes", {"weight_dtype": "bfloat16"}, "the weight is bfloat16"),
    ("shortlist", "rows", {"m": 9}, "9 rows; 1 to 8"),
    ("shortlist", "codes", {"k": 5248}, "K = 5248; a multiple of 256 up to 5120"),
    ("shortlist", "codes", {"k": 384}, "K = 384"),
    ("shortlist", "codes", {"n": 1 << 24}, "16777216 logits"),
    ("shortlist", "codes", {"wanted": 129}, "129 logits wanted; at most 128"),
    ("shortlist", "codes", {"row_stride": 5124}, "5124 elements apart"),
    ("block_conv", "pieces", {"dtype": "float32"}, "x is float32"),
    ("block_conv", "pieces", {"blocks": 2}, "2 blocks; only 1"),
    ("block_conv", "pieces", {"groups": 2560}, "groups of 2 channels"),
    ("block_conv", "pieces", {"dense": False}, "are not contiguous"),
    ("block_attention", "cluster", {"dtype": "bfloat16"}, "q is bfloat16"),
    ("block_attention", "cluster", {"cache": "float32"}, "the context is float32"),
    ("block_attention", "cluster", {"dim": 64}, "heads of 64; only 128"),
    ("block_attention", "cluster", {"rows": 9}, "9 rows; 1 to 8"),
    ("block_attention", "cluster", {"q_heads": 64}, "64 query rows and heads a KV head"),
    ("block_attention", "cluster", {"context": 2169}, "2177 keys; at most 2176"),
    ("block_attention", "cluster", {"dense": False}, "are not contiguous"),
    ("block_attention", "cluster", {"strides": (1028, 6144)}, "rows (1028, 6144) apart"),
    ("prefill_projection", "decoded", {"m": 16}, "16 rows; at least 17"),
    ("prefill_projection", "decoded", {"dtype": "float32"}, "x is float32"),
    ("prefill_projection", "decoded", {"weight_format": "dense"}, "weight format 'dense'"),
    ("prefill_gated", "product", {"m": 16}, "16 rows; at least 17"),
    ("prefill_gated", "product", {"dtype": "float32"}, "x is float32"),
    ("prefill_gated", "product", {"n": 8712}, "8712 rows; a multiple of 16"),
    ("prefill_attention", "flash", {"dtype": "float32"}, "q is float32"),
    ("prefill_attention", "flash", {"head_dim": 264}, "heads of 264; a multiple of 8, at most 256"),
    ("prefill_attention", "flash", {"kv_heads": 5}, "24 query heads of 5 KV heads"),
    ("prefill_attention", "cudnn", {"dtype": "float32"}, "q is float32"),
    ("prefill_attention", "cudnn", {"rows": 1}, "1 rows after 32959 keys"),
    ("prefill_attention", "cudnn", {"rows": 32959}, "32959 rows after 1 keys"),
    ("prefill_gdn", "fla", {"dtype": "float32"}, "qkv is float32"),
    ("prefill_gdn", "fla", {"rows": 63}, "63 rows; at least 64"),
    ("prefill_gdn", "fla", {"key_dim": 96}, "heads of (96, 128)"),
    ("prefill_gdn", "fla", {"key_heads": 36}, "48 value heads of 36 key heads"),
    ("selection", "threshold", {"dtype": "bfloat16"}, "logits are bfloat16"),
    ("selection", "threshold", {"k": 100000}, "k = 100000"),
    ("selection", "threshold", {"vocab": 1 << 30}, "1073741824 logits"),
    ("selection", "cluster", {"dtype": "bfloat16"}, "logits are bfloat16"),
    ("selection", "cluster", {"k": 32}, "k = 32; 1 to 31"),
    ("selection", "cluster", {"vocab": 262145}, "262145 logits; at most 262144"),
]
CUDA = [(op, s) for op in OPERATORS for s in op.schedules if s.machine and s.machine.device == "cuda"]


@pytest.fixture(autouse=True)
def equipped(monkeypatch):
    """As on a machine with the libraries, whose cuDNN takes these heads."""
    monkeypatch.setattr("kernels.registry.find_spec", lambda module: module)
    monkeypatch.setattr("kernels.native.building.lacking", lambda spec: None)
    monkeypatch.setattr("kernels.prefill_attention.flash.cudnn_trial", lambda *heads: "")
    monkeypatch.setattr("kernels.prefill_gdn.flash_linear.trial", lambda *heads: "")


def good_for(name, schedule):
    """A problem that the schedule takes."""
    if not schedule.startswith("fp8"):
        return GOOD[name]
    return replace(GOOD[name], weight_format="fp8", weight_dtype="float8_e4m3fn", physical_n=None)


@pytest.mark.parametrize(("op", "schedule"), CUDA, ids=[f"{op.name}/{s.name}" for op, s in CUDA])
def test_takes_the_target_on_hopper_and_nowhere_else(op, schedule):
    good = good_for(op.name, schedule.name)
    assert select(op, good, schedule.name).refusals == ()
    for change, words in (({"device": "cpu", "arch": "x86-64-v4"}, "device 'cpu'"), ({"arch": "sm_80"}, "'sm_80'")):
        chosen = select(op, replace(good, **change), schedule.name)
        assert chosen.schedule.name == op.default and words in chosen.refusals[0][1].reason


def test_a_prompt_takes_libraries_unasked_where_they_are_and_torch_where_not(monkeypatch):
    def taken():
        names = ("prefill_attention", "prefill_gdn", "prefill_projection", "prefill_gated")
        return [select(operator(name), GOOD[name]).schedule.name for name in names]

    assert taken() == ["cudnn", "fla", "decoded", "product"]
    monkeypatch.setattr("kernels.prefill_attention.flash.cudnn_trial", lambda *heads: "no heads of 256")
    monkeypatch.setattr("kernels.registry.find_spec", lambda module: None)
    monkeypatch.setattr("kernels.native.building.lacking", lambda spec: "no compiler")
    assert taken() == ["flash", "chunked", "dense", "separate"]


@pytest.mark.parametrize(
    ("name", "schedule", "change", "words"), REFUSALS, ids=[f"{row[0]}-{row[1]}-{row[3]}" for row in REFUSALS]
)
def test_refuses_with_a_reason(name, schedule, change, words):
    chosen = select(operator(name), replace(good_for(name, schedule), **change), schedule)
    assert chosen.schedule.name != schedule
    assert words in chosen.refusals[0][1].reason


def test_a_library_that_computes_something_else_or_fails_here_is_refused(monkeypatch):
    """The trial runs on the CPU here, torch's form in the library's place; what it finds wrong is a guard's reason."""
    tried = trial.__wrapped__  # past the cache

    def at(change):
        def run(*operands):
            out, after = chunked.run(*operands)
            return change(out), after

        monkeypatch.setattr("kernels.prefill_gdn.flash_linear.run", run)
        return tried(2, 4, 64, 64, 4, "float16", "cpu")

    assert at(lambda out: out) == ""
    assert at(lambda out: out * 1.02).startswith("fla-core is 0.02 from torch's form for heads of 64")
    assert at(lambda out: torch.roll(out, 1, 0)).startswith("fla-core is 1.")
    assert at(lambda out: out.view(3, 5)).startswith("fla-core fails: RuntimeError: ")
    monkeypatch.setattr("kernels.prefill_gdn.flash_linear.trial", lambda *heads: "told")
    assert select(operator("prefill_gdn"), GOOD["prefill_gdn"], "fla").refusals == (("fla", Refusal("told")),)
