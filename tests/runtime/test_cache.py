"""The paged cache: page rule, arbitrary tables, every E4M3 byte; and the drafter's window."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernels import commit
from kernels.rotary import storing
from kernels.rotary.storing import encode
from runtime.config import DraftConfig, TargetConfig
from runtime.memory.cache import CACHE_DTYPES, E4M3, DraftCache, PagedCache, hybrid_pages

CPU = torch.device("cpu")
PUBLIC = json.loads((Path(__file__).parents[2] / "benchmarks/qwen3_8_27b.json").read_text())


def test_hybrid_page_rule_at_the_public_shape() -> None:
    target, drafter = TargetConfig.from_hf(PUBLIC["target"]), DraftConfig.from_hf(PUBLIC["drafter"])
    assert hybrid_pages(target, drafter, E4M3) == (3296, 1648)
    assert hybrid_pages(target, drafter, E4M3, rows=16) == (3456, 1728)
    assert hybrid_pages(target, drafter, torch.float16) == (832, 832)


def e4m3_values() -> np.ndarray:
    """The value of every byte by the format's definition: 4 exponent bits (bias 7), 3 mantissa bits, NaN at 0x7f."""
    byte = np.arange(256)
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    return np.where(byte & 127 == 127, np.nan, value) * np.where(byte & 128, -1, 1)


def test_every_e4m3_byte_survives_and_every_fp16_value_rounds_to_nearest_even(device: torch.device) -> None:
    values = e4m3_values()
    stored = torch.arange(256, dtype=torch.uint8).view(E4M3)
    decoded = stored.to(device).float().cpu()
    assert np.array_equal(decoded.numpy(), values.astype(np.float32), equal_nan=True)
    finite = ~np.isnan(values)
    assert torch.equal(
        encode(decoded.to(device), E4M3).view(torch.uint8).cpu()[finite], stored.view(torch.uint8)[finite]
    )

    inputs = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.float16)
    codes = encode(inputs.to(device), E4M3).view(torch.uint8).cpu().numpy()
    exact = inputs.double().numpy()
    assert np.isnan(values[codes[np.isnan(exact)]]).all()
    exact, codes = exact[~np.isnan(exact)], codes[~np.isnan(exact)]
    # Positive half of the format in ascending order; the code's parity is the tie rule.
    ladder = values[:127]
    magnitude = np.minimum(np.abs(exact), 448.0)
    above = np.clip(np.searchsorted(ladder, magnitude), 1, 126)
    low, high = magnitude - ladder[above - 1], ladder[above] - magnitude
    nearest = np.where(low < high, above - 1, np.where(high < low, above, above - above % 2))
    assert np.array_equal(codes & 127, nearest)
    assert np.array_equal(codes >> 7, np.signbit(exact))


@pytest.mark.parametrize("kind", CACHE_DTYPES)
def test_rows_come_back_in_order_through_any_page_table(make: Any, kind: str) -> None:
    config = TargetConfig.from_hf(make.target_json())
    cache = PagedCache(config, 61, 8, CACHE_DTYPES[kind], make.device)
    cache.remap([3, 0, 7, 5, 1, 6, 2, 4])
    rows = torch.randn(61, 2, 16).to(make.device)
    for start in range(0, 61, 9):
        positions = torch.arange(start, min(start + 9, 61), device=make.device)
        storing.write(cache.store(1, cache.slots(positions)), rows[positions], -rows[positions])
    k, v = cache.read(1, 61, torch.float32)
    expected = encode(rows, CACHE_DTYPES[kind]).float()
    assert torch.equal(k, expected) and torch.equal(v, -expected)
    assert not cache.k[3].float().any()


@pytest.mark.parametrize("kind", ("float32", "float16", "fp8_e4m3"))
def test_answers_do_not_depend_on_the_page_table(make: Any, kind: str) -> None:
    plain, shuffled = (make.engine(kv_cache_dtype=kind) for _ in range(2))
    table = torch.randperm(512 // 16, generator=torch.Generator().manual_seed(3)).tolist()
    shuffled.decoder.memory.cache.remap(table)
    prompt = make.prompt_of(70)
    assert make.answer(plain, prompt, max_tokens=24).tokens == make.answer(shuffled, prompt, max_tokens=24).tokens


@pytest.mark.parametrize("size", (1, 7, 16, 512))
def test_answers_hardly_depend_on_the_page_size(make: Any, size: int) -> None:
    """One page size is one order of reads, not one order of sums: here even the tokens agree."""
    prompt = make.prompt_of(70)
    expected = make.answer(make.engine(), prompt, max_tokens=24).tokens
    assert make.answer(make.engine(page_size=size), prompt, max_tokens=24).tokens == expected


def test_draft_window_keeps_accepted_rows_only(make: Any) -> None:
    config = DraftConfig.from_hf(make.draft_json())
    cache = DraftCache(config, 512, torch.float32, CPU)
    ring = config.sliding_window + config.block_size
    assert cache.rings == [ring] * 2

    def rows(first: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        values = torch.arange(first, first + count).float()[:, None, None].expand(count, 2, 16)
        return [(values, -values)] * 2

    cache.store(0, 100, rows(0, 103))
    cache.store(100, 3, rows(100, 8))
    for keys, values, positions in cache.visible():
        assert sorted(positions.tolist()) == list(range(103 - ring, 103))
        assert torch.equal(keys[:, 0, 0].long(), positions) and torch.equal(-values[:, 0, 0].long(), positions)
    before = [keys.clone() for keys in cache.k]
    cache.store(103, 0, rows(103, 8))
    assert all(torch.equal(a, b) for a, b in zip(before, cache.k, strict=True))


def test_draft_window_is_no_longer_than_the_capacity(make: Any) -> None:
    config = DraftConfig.from_hf(make.draft_json(layer_types=["full_attention", "sliding_attention"]))
    assert DraftCache(config, 512, torch.float32, CPU).rings == [512, 40]
    assert DraftCache(config, 20, torch.float32, CPU).rings == [20, 20]


@pytest.mark.parametrize("schedule", ("separate", "cpu-rows"))
@pytest.mark.parametrize("keep", range(9))
def test_rows_accepted_on_the_device_leave_the_bytes_that_the_host_would(make: Any, keep: int, schedule: str) -> None:
    """A ring that has turned, one that is longer, and rejected rows that would evict what is still seen."""
    config = DraftConfig.from_hf(make.draft_json(layer_types=["full_attention", "sliding_attention"]))
    host, device = (DraftCache(config, 512, torch.float32, make.device) for _ in range(2))
    generator = torch.Generator().manual_seed(keep)
    layers = torch.randn(2, 2, 97, 2, 16, generator=generator).to(make.device)
    block = torch.randn(2, 2, 8, 2, 16, generator=generator).to(make.device)
    for cache in (host, device):
        cache.store(0, 97, [(k, v) for k, v in layers])
    host.store(97, keep, [(k, v) for k, v in block])
    packed = torch.tensor([keep == 0, 0, keep - 1, 5], device=make.device)  # an outcome that does not hold keeps none
    bonus, selector = torch.tensor([1, 97, 0], device=make.device), torch.ones(1, device=make.device).int()
    schedule = schedule.removeprefix("cpu-") if make.device.type == "cuda" else schedule
    commit.OP.schedule(schedule).run(packed, bonus, selector, device.window(block))
    device.follow(97, keep)
    assert host.length == device.length == int(device.device_length) == int(host.device_length)
    assert all(torch.equal(a, b) for a, b in zip(host.k + host.v, device.k + device.v, strict=True))
