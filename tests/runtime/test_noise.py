"""The noise: a known hash, uniform, independent between keys, the same wherever a block began."""

import numpy as np
import pytest
import torch
from scipy import stats

from kernels import noise

MASK = (1 << 64) - 1


def mixed(x: int) -> int:
    """SplitMix64's finaliser on plain integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def expected(stream: int, seed: int, position: int, token: int) -> float:
    golden = 0x9E3779B97F4A7C15
    state = mixed((seed + stream) & MASK)
    state = mixed((state + position * golden) & MASK)
    state = mixed((state + (token + 1) * golden) & MASK)
    return ((state >> 11) + 0.5) * 2.0**-53


@pytest.mark.parametrize("stream", (noise.DRAFT, noise.ACCEPT, noise.TARGET))
def test_hash_is_the_written_one(stream: int, device: torch.device) -> None:
    for seed, position, token in ((0, 0, 0), (1, 2, 3), (2**64 - 1, 262143, 248319), (2**63, 17, 5)):
        keys = (torch.tensor(key, device=device) for key in (noise.signed(seed), position, token))
        drawn = noise.uniform(stream, *keys)
        assert float(drawn) == expected(stream, seed, position, token)


def grid(stream: int, seeds: int = 40, positions: int = 50, tokens: int = 60) -> np.ndarray:
    axes = (torch.arange(seeds)[:, None, None], torch.arange(positions)[:, None], torch.arange(tokens))
    return noise.uniform(stream, *axes).numpy()


def test_noise_is_uniform_and_uncorrelated_along_every_key() -> None:
    values = grid(noise.TARGET)
    assert stats.kstest(values.ravel(), "uniform").pvalue > 1e-3
    for axis in range(3):
        first = np.moveaxis(values, axis, 0)
        assert abs(np.corrcoef(first[:-1].ravel(), first[1:].ravel())[0, 1]) < 0.01


def test_streams_are_independent() -> None:
    draft, target = grid(noise.DRAFT), grid(noise.TARGET)
    assert abs(np.corrcoef(draft.ravel(), target.ravel())[0, 1]) < 0.01
    assert not (draft == target).any()


def test_race_draws_in_proportion_to_weight() -> None:
    weight = torch.tensor([0.5, 0.0, 1.5, 3.0], dtype=torch.float64)
    seeds = torch.arange(100_000)[:, None]
    drawn = (weight / noise.exponential(noise.TARGET, seeds, torch.tensor(3), torch.arange(4))).argmax(-1)
    counts = torch.bincount(drawn, minlength=4).numpy()
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], np.array([0.1, 0.3, 0.6]) * 100_000).pvalue > 1e-3


@pytest.mark.gpu
def test_noise_is_the_same_on_both_devices() -> None:
    axes = (torch.arange(64)[:, None, None], torch.arange(99)[:, None], torch.arange(50))
    for stream in (noise.DRAFT, noise.ACCEPT, noise.TARGET):
        there = noise.uniform(stream, *(axis.cuda() for axis in axes))
        assert torch.equal(there.cpu(), noise.uniform(stream, *axes))
