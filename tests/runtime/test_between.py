"""The operators between projections in the models: where they run, and that schedules of an arm answer alike."""

from typing import Any

import pytest
import torch

from kernels import norm
from kernels.routes import Routes
from runtime.audits.shadow import Shadow
from runtime.models.layers import RmsNorm
from runtime.operators import Operators


@pytest.fixture(scope="module", autouse=True)
def on_this_processor(device: torch.device) -> None:
    """Native schedules of the CPU: their guards know where they do not run."""
    if refusal := norm.OP.schedule("cpu-rows").refusal(norm.problem_of(torch.zeros(8, 16, device=device), None)):
        pytest.skip(refusal.reason)


def test_an_answer_counts_every_operator_and_does_not_depend_on_the_schedule(make: Any) -> None:
    tokens = []
    for routes in ({}, {"norm": "cpu-rows", "gated_norm": "cpu-heads"}):
        engine = make.engine(routes=routes)
        answer = make.answer(engine, make.prompt_of(20), max_tokens=12)
        tokens.append(answer.tokens)
        runs = {(op, schedule): hits for op, schedule, hits in answer.rounds[0].routes}
        config, drafter = engine.decoder.target.config, engine.decoder.drafter.config
        layers, drafts = config.num_hidden_layers, drafter.num_hidden_layers
        # Two norms a layer and the last one, of target and drafter, and the drafter's of the context.
        assert runs["norm", routes.get("norm", "separate")] == 2 * layers + 1 + 2 * drafts + 1 + 1
        assert runs["gated_norm", routes.get("gated_norm", "separate")] == len(config.linear_layers)
        assert runs["rotary", "separate"] == len(config.full_layers) + 2 * drafts
        assert runs["output_gate", "separate"] == len(config.full_layers)
        assert runs["block_conv", "separate"] == 4 * drafts and runs["block_attention", "separate"] == drafts
    assert tokens[0] == tokens[1]


def test_a_shadow_sees_every_site_of_a_norm(make: Any) -> None:
    engine = make.engine()
    observer = engine.decoder.operators.observer = Shadow("norm", "separate")
    make.answer(engine, make.prompt_of(12), max_tokens=8)
    *sites, summary = observer.lines()
    seen = {line["site"] for line in sites}
    assert summary["passed"]
    assert {"norm", "layers.0.input_layernorm", "layers.3.post_attention_layernorm", "drafter.norm"} <= seen
    assert {"drafter.hidden_norm", "drafter.layers.1.input_layernorm"} <= seen


def test_a_stream_is_summed_once_and_in_its_own_shape() -> None:
    norm_of = RmsNorm(torch.zeros(8), 1e-6, True, Operators(Routes()), "here")
    x, delta = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    total, normed = norm_of.after(x, delta)
    assert torch.equal(total, x + delta) and torch.equal(normed, norm_of(x + delta)) and normed.shape == x.shape
    assert torch.equal(norm_of.after(x, None)[0], x)
