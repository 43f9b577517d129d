"""The operators between projections in the models: where they run, and that schedules of an arm answer alike."""

from typing import Any

import pytest
import torch

from kernels import norm
from kernels.routes import Routes
from runtime.audits.shadow import Shadow
from runtime.models.layers import RmsNorm
from runtime.operators import Operators
from runtime.speculation.sampling import SamplingParams


@pytest.fixture(scope="module", autouse=True)
def on_this_processor(device: torch.device) -> None:
    """Native schedules of the CPU: their guards know where they do not run."""
    if refusal := norm.OP.schedule("cpu-rows").refusal(norm.problem_of(torch.zeros(8, 16, device=device), None)):
        pytest.skip(refusal.reason)


def test_an_answer_counts_every_operator_and_does_not_depend_on_the_schedule(make: Any) -> None:
    tokens = []
    small = {"walk": "cpu-path", "accept": "cpu-verdict", "commit": "cpu-rows"}
    for routes in ({}, {"norm": "cpu-rows", "gated_norm": "cpu-heads", **small}):
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
        assert all(runs[op, routes.get(op, "separate")] == 1 for op in ("walk", "commit"))
    assert tokens[0] == tokens[1]


SAMPLING = {
    "greedy": ({"temperature": 0}, {}),
    "public": ({"temperature": 1.0, "top_k": 20, "top_p": 0.95, "seed": 3}, {}),
    "hot": ({"temperature": 5.0, "top_k": 30, "min_p": 0.02, "seed": 9}, {}),
    "first": ({"temperature": 1.0, "top_k": 1, "seed": 4}, {}),
    "two-drafts": ({"temperature": 0.8, "top_k": 12, "seed": 5}, {"num_speculative_tokens": 2}),
    "history": ({"temperature": 0.9, "top_k": 12, "seed": 6}, {"speculation": "lookup"}),
    "alone": ({"temperature": 1.1, "top_k": 12, "seed": 7}, {"speculation": "none"}),
    "whole": ({"temperature": 1.0, "top_p": 0.9, "seed": 8}, {}),
}


@pytest.mark.parametrize("name", SAMPLING)
def test_the_small_steps_draw_the_same_tokens_in_one_call_each(make: Any, name: str) -> None:
    sampling, options = SAMPLING[name]
    answers = []
    for routes in ({}, {"walk": "cpu-path", "accept": "cpu-verdict", "commit": "cpu-rows"}):
        engine = make.engine(routes=routes)
        prompt = make.prompt_of(9) * 3  # a history that repeats
        answers.append(make.answer(engine, prompt, max_tokens=40, sampling=SamplingParams(**sampling), **options))
        ran = {(op, schedule) for record in answers[-1].rounds for op, schedule, _ in record.routes}
        drafts, shortlist = name != "alone", name != "whole"
        assert (("walk", routes.get("walk", "separate")) in ran) == drafts
        assert (("accept", routes.get("accept", "separate")) in ran) == shortlist
        assert ("commit", routes.get("commit", "separate")) in ran
        assert not engine.routes.refusals()
    assert answers[0].tokens == answers[1].tokens
    assert [r.accepted for r in answers[0].rounds] == [r.accepted for r in answers[1].rounds]


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
