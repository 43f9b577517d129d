"""The inverse that the delta rule uses on CUDA, held to a dense inverse and to its own derivative, on the CPU."""

import pytest
import torch

from kernels.prefill_gdn.delta import UnitLowerInverse, chunked_delta_rule


@pytest.mark.parametrize("n", [1, 2, 3, 5, 37, 64])
def test_it_is_the_inverse(n: int) -> None:
    system = torch.tril(0.2 * torch.randn(3, 2, n, n, dtype=torch.float64), -1)
    inverse = UnitLowerInverse.apply(system)
    expected = torch.linalg.inv(torch.eye(n, dtype=torch.float64) + system)
    torch.testing.assert_close(inverse, expected, rtol=1e-9, atol=1e-9)


def test_equal_keys_do_not_make_it_grow() -> None:
    """All keys alike and no decay: powers of A reach 1e18 here, the inverse holds only -1, 0 and 1."""
    inverse = UnitLowerInverse.apply(torch.tril(torch.ones(64, 64), -1))
    assert inverse.unique().tolist() == [-1.0, 0.0, 1.0]


def test_derivative() -> None:
    system = torch.tril(torch.randn(2, 5, 5, dtype=torch.float64), -1).requires_grad_()
    assert torch.autograd.gradcheck(UnitLowerInverse.apply, (system,))


def test_the_delta_rule_is_the_same_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(2, 70, 2, 8), torch.randn(2, 70, 2, 8), torch.randn(2, 70, 4, 8)
    g, beta = -torch.rand(2, 70, 4), torch.rand(2, 70, 4)
    by_solving = chunked_delta_rule(q, k, v, g, beta, None)
    inverse = lambda system, *right: tuple(UnitLowerInverse.apply(system) @ r for r in right)  # noqa: E731
    monkeypatch.setattr("kernels.prefill_gdn.delta.solve_unit_lower", inverse)
    for solved, inverted in zip(by_solving, chunked_delta_rule(q, k, v, g, beta, None), strict=True):
        torch.testing.assert_close(solved, inverted, rtol=1e-4, atol=1e-5)
