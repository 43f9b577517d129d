"""The gated projection in the models: what runs where, and that a named `projection` still runs in the MLP."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels import gated, projection
from kernels.checking.compare import rel_l2
from kernels.projection import nvfp4
from kernels.routes import Routes
from runtime.audits.shadow import Shadow
from runtime.config import TargetConfig
from runtime.models.layers import GatedSideBySide, Mlp, Weight
from runtime.models.parallel import ShardedWeights
from runtime.models.random_weights import random_weights
from runtime.models.shapes import target_shapes
from runtime.operators import Operators

NATIVE = ("cpu-dot", "cpu-tile", "cpu-pair")
PREFIX = "layers.0.mlp"


@pytest.fixture(scope="module", autouse=True)
def on_this_processor(device: torch.device) -> None:
    """Native schedules of the CPU: their guards know where they do not run."""
    x, weight = torch.zeros(8, 16, device=device), projection.DenseWeight(torch.zeros(32, 16, device=device))
    if refusal := gated.OP.schedule("cpu-tile").refusal(gated.problem_of(x, weight)):
        pytest.skip(refusal.reason)


class Sites:
    """Notes which schedule ran at which site."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str, str]] = set()

    def run(self, routes: Routes, site: str, op: Any, problem: Any, operands: tuple[Any, ...]) -> Any:
        self.seen.add((site, op.name, routes.selection(op, problem).schedule.name))
        return routes.run(op, problem, *operands)

    def range(self, name: str) -> Any:
        return nullcontext()


def mlp_weights(make: Any) -> dict[str, torch.Tensor]:
    weights = random_weights(target_shapes(TargetConfig.from_hf(make.target_json())), 1)
    return {name: weights[name] for name in weights if name.startswith(PREFIX)}


def quantised(weights: Mapping[str, torch.Tensor]) -> dict[str, Weight]:
    """Every part in 4 bits under one global scale, so that gate and up can be joined."""
    parts = {name: nvfp4.quantise(value) for name, value in weights.items()}
    return {name: replace(part, global_scale=1000.0) for name, part in parts.items()}


def answers(weights: Mapping[str, Weight], x: torch.Tensor, routes: dict[str, str]) -> tuple[torch.Tensor, Sites]:
    operators = Operators(Routes())
    operators.routes.enable(routes)
    operators.observer = sites = Sites()
    return Mlp(weights, PREFIX, operators)(x), sites


@pytest.mark.parametrize("form", ("dense", "nvfp4"))
@pytest.mark.parametrize("name", NATIVE)
def test_a_fused_schedule_replaces_the_projection_of_gate_and_up(make: Any, form: str, name: str) -> None:
    weights, x = mlp_weights(make), torch.randn(8, 48, generator=torch.Generator().manual_seed(3))
    chosen = weights if form == "dense" else quantised(weights)
    plain, before = answers(chosen, x, {})
    fused, sites = answers(chosen, x, {"gated": name})
    assert before.seen == {
        (f"{PREFIX}.gated", "gated", "separate"),
        (f"{PREFIX}.gate_up", "projection", "dense"),
        (f"{PREFIX}.down", "projection", "dense"),
    }
    assert sites.seen == {(f"{PREFIX}.gated", "gated", name), (f"{PREFIX}.down", "projection", "dense")}
    assert rel_l2(fused, plain) < 1e-5
    assert torch.equal(fused, answers(chosen, x, {"gated": "cpu-dot"})[0])


def test_an_arm_that_names_a_projection_runs_it_in_the_mlp(make: Any) -> None:
    x = torch.randn(8, 48, generator=torch.Generator().manual_seed(3))
    for routes in ({"projection": "cpu-tile"}, {"projection": "cpu-tile", "gated": "separate"}):
        _, sites = answers(mlp_weights(make), x, routes)
        assert (f"{PREFIX}.gate_up", "projection", "cpu-tile") in sites.seen
        assert (f"{PREFIX}.gated", "gated", "separate") in sites.seen


def test_the_default_computes_what_the_three_operations_compute(make: Any) -> None:
    weights, x = mlp_weights(make), torch.randn(5, 48, generator=torch.Generator().manual_seed(4))
    gate, up, down = (weights[f"{PREFIX}.{name}_proj.weight"] for name in ("gate", "up", "down"))
    both = torch.nn.functional.linear(x, torch.cat((gate, up)))
    wanted = torch.nn.functional.linear(torch.nn.functional.silu(both[:, :80]) * both[:, 80:], down)
    assert torch.equal(answers(weights, x, {})[0], wanted)


def test_parts_that_cannot_be_joined_stay_apart(make: Any) -> None:
    weights = {name: nvfp4.quantise(value) for name, value in mlp_weights(make).items()}
    mlp = Mlp(weights, PREFIX, Operators(Routes()))
    assert isinstance(mlp.gated, GatedSideBySide)
    x = torch.randn(4, 48, generator=torch.Generator().manual_seed(5))
    dense = Mlp({name: weight.dequantised() for name, weight in weights.items()}, PREFIX, Operators(Routes()))
    torch.testing.assert_close(mlp(x), dense(x), rtol=1e-5, atol=1e-6)


def test_ranks_add_up_to_the_whole(make: Any) -> None:
    config, weights = TargetConfig.from_hf(make.target_json()), mlp_weights(make)
    x = torch.randn(8, 48, generator=torch.Generator().manual_seed(6))
    whole, _ = answers(weights, x, {})
    shares = [answers(ShardedWeights(weights, config, rank, 2), x, {"gated": "cpu-tile"}) for rank in range(2)]
    torch.testing.assert_close(shares[0][0] + shares[1][0], whole, rtol=1e-5, atol=1e-5)
    assert all((f"{PREFIX}.gated", "gated", "cpu-tile") in sites.seen for _, sites in shares)


def test_an_answer_counts_its_fused_projections_and_does_not_depend_on_the_tile(make: Any) -> None:
    tokens = {}
    for name in NATIVE:
        engine = make.engine(routes={"gated": name})
        answer = make.answer(engine, make.prompt_of(20), max_tokens=12)
        tokens[name] = answer.tokens
        runs = {(op, schedule): hits for op, schedule, hits in answer.rounds[0].routes}
        # Four layers of the target and two of the drafter; a prompt's rows have an operator of their own.
        assert runs["gated", name] == 6 and ("gated", "separate") not in runs
        counted = {(row["operator"], row["schedule"]): row["hits"] for row in engine.routes.counters()}
        assert counted["prefill_gated", "separate"] == 4
    assert tokens["cpu-dot"] == tokens["cpu-tile"] == tokens["cpu-pair"]


def test_the_shadow_audit_covers_it(make: Any) -> None:
    engine = make.engine(routes={"gated": "cpu-dot"})
    observer = engine.decoder.operators.observer = Shadow("gated", "cpu-pair")
    make.answer(engine, make.prompt_of(12), max_tokens=8)
    *sites, summary = observer.lines()
    assert summary["passed"] and summary["calls"] > 0
    target, drafter = (f"layers.{i}.mlp.gated" for i in range(4)), (f"drafter.layers.{i}.mlp.gated" for i in range(2))
    assert {line["site"] for line in sites} == {*target, *drafter}


def test_a_shadow_of_the_projection_still_sees_the_mlp(make: Any) -> None:
    engine = make.engine(routes={"projection": "cpu-dot"})
    observer = engine.decoder.operators.observer = Shadow("projection", "cpu-tile")
    make.answer(engine, make.prompt_of(12), max_tokens=8)
    *sites, summary = observer.lines()
    assert summary["passed"] and "layers.0.mlp.gate_up" in {line["site"] for line in sites}
