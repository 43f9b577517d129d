"""The target against transformers, eight-row verification against single rows, and the rules of its state slots."""

from typing import Any

import pytest
import torch
from torch import Tensor

from runtime.memory.state import RequestState
from runtime.models.steps import Memory, PrefillStep, VerifyStep
from runtime.models.target import Target

PROMPTS = (1, 2, 3, 4, 63, 64, 65, 300)
DECODE = 4
TOLERANCE = 1e-4
Logits = dict[str, Tensor]
SHAPES: dict[str, dict[str, Any]] = {
    "odd": {
        "num_hidden_layers": 5,
        "layer_types": ["linear_attention"] * 2 + ["full_attention", "linear_attention", "full_attention"],
    },
    "tied": {"tie_word_embeddings": True, "linear_num_key_heads": 1, "linear_num_value_heads": 5},
    "alternating": {},
    "one-kv-head": {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 24, "linear_num_key_heads": 3},
    "by-interval": {"layer_types": None, "num_hidden_layers": 4, "linear_num_key_heads": 6},
}


class Rows:
    """A target with one request's memory, fed by hand."""

    def __init__(self, make: Any, shape: str = "alternating", **options: Any) -> None:
        built = make.engine(make.target_json(**SHAPES[shape]), {}, **({"max_model_len": 512} | options))
        self.target: Target = built.decoder.target
        self.memory: Memory = built.decoder.memory
        self.state = self.memory.pool.acquire()

    def tensor(self, ids: Any) -> Tensor:
        return torch.tensor(ids, device=self.memory.pool.device)

    def prefill(self, ids: list[int], start: int = 0) -> Tensor:
        step = PrefillStep(self.target.rotary, start, len(ids), self.memory, self.state)
        with torch.inference_mode():
            hidden = self.target.prefill(self.tensor(ids), step).hidden
            self.state.select(1)
            return self.target.head(hidden).cpu()

    def verify(self, ids: list[int], start: int, state: RequestState | None = None) -> Tensor:
        positions = torch.arange(start, start + len(ids), device=self.memory.pool.device)
        step = VerifyStep(self.target.rotary.table(positions), positions, self.memory, state or self.state)
        with torch.inference_mode():
            return self.target.head(self.target.verify(self.tensor(ids), step).hidden).cpu()

    def one_by_one(self, ids: list[int], start: int) -> Tensor:
        rows = []
        for offset, token in enumerate(ids):
            rows.append(self.verify([token], start + offset))
            self.state.select(1)
        return torch.cat(rows)

    def snapshot(self) -> dict[str, Tensor]:
        pool = self.memory.pool
        states = {f"state.{i}": tensor.clone() for i, tensor in pool.recurrent.items()}
        return states | {f"conv.{i}": tensor.clone() for i, tensor in pool.conv.items()}


@pytest.fixture(scope="module")
def oracle(make: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    work = tmp_path_factory.mktemp("qwen3_5")
    jobs = []
    for name, changes in SHAPES.items():
        folder = make.write_target(work / name, make.target_json(**changes))
        ids = make.prompt_of(max(PROMPTS) + DECODE)
        jobs.append({"name": name, "model": str(folder), "ids": ids, "prompts": PROMPTS, "decode": DECODE})
    return make.run_oracle("qwen3_5.py", work, jobs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_prefill_and_decode_agree_with_transformers(make: Any, oracle: Logits, shape: str, prompt: int) -> None:
    rows, ids = Rows(make, shape), make.prompt_of(max(PROMPTS) + DECODE)
    mine = torch.cat((rows.prefill(ids[:prompt]), rows.one_by_one(ids[prompt : prompt + DECODE], prompt)))
    torch.testing.assert_close(mine, oracle[f"{shape}.{prompt}"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("shape", SHAPES)
def test_training_forward_agrees_with_transformers(make: Any, oracle: Logits, shape: str) -> None:
    rows = Rows(make, shape)
    mine = rows.target.head(rows.target.sequence(rows.tensor([make.prompt_of(300)])).hidden)[0].cpu()
    torch.testing.assert_close(mine, oracle[f"{shape}.300"][:300], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("chunk", (5, 16, 37, 64))
def test_chunked_prefill_agrees_with_one_chunk(make: Any, chunk: int) -> None:
    ids, whole, parts = make.prompt_of(130), Rows(make), Rows(make)
    expected = whole.prefill(ids)
    mine = torch.cat([parts.prefill(ids[i : i + chunk], i) for i in range(0, len(ids), chunk)])
    torch.testing.assert_close(mine, expected, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(parts.verify([9], 130), whole.verify([9], 130), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("rows", range(1, 9))
def test_verified_rows_agree_with_single_rows(make: Any, rows: int) -> None:
    ids, together, apart = make.prompt_of(80), Rows(make), Rows(make)
    together.prefill(ids[:50]), apart.prefill(ids[:50])
    mine, expected = together.verify(ids[50 : 50 + rows], 50), apart.one_by_one(ids[50 : 50 + rows], 50)
    torch.testing.assert_close(mine, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("selector", range(1, 9))
def test_every_selector_continues_as_single_rows_do(make: Any, selector: int) -> None:
    """After eight rows of which `selector` stay, other tokens follow; the rejected ones leave no trace."""
    ids, other, rows, apart = make.prompt_of(80), make.prompt_of(16, seed=5), Rows(make), Rows(make)
    rows.prefill(ids[:50]), apart.prefill(ids[:50])
    rows.verify(ids[50:58], 50)
    rows.state.select(selector)
    mine = rows.verify(other[:8], 50 + selector)
    expected = apart.one_by_one(ids[50 : 50 + selector] + other[:8], 50)[selector:]
    torch.testing.assert_close(mine, expected, rtol=0, atol=TOLERANCE)


def test_selectors_differ(make: Any) -> None:
    """The test above could not tell if all slots held one state."""
    rows, ids = Rows(make), make.prompt_of(80)
    rows.prefill(ids[:50])
    rows.verify(ids[50:58], 50)
    pool = rows.memory.pool.recurrent[0]
    states = [pool[slot] for slot in rows.state.slots]
    assert all(not torch.equal(states[0], state) for state in states[1:])


def test_copied_state_is_bitwise_equal_and_continues_alike(make: Any) -> None:
    rows, ids = Rows(make), make.prompt_of(80)
    rows.prefill(ids[:50])
    rows.verify(ids[50:58], 50)
    rows.state.select(5)
    twin = rows.memory.pool.acquire()
    rows.memory.pool.copy(rows.state, twin)
    for pool in rows.memory.pool.recurrent.values():
        assert torch.equal(pool[list(twin.slots)], pool[list(rows.state.slots)])
    assert twin.selector == 5 and int(twin.selector_device) == 5
    assert torch.equal(rows.verify(ids[55:63], 55, twin), rows.verify(ids[55:63], 55))


def test_narrow_verification_leaves_later_slots_and_columns_alone(make: Any) -> None:
    """Three rows write three states and shift the window; everything behind is bit-unchanged."""
    rows, ids = Rows(make), make.prompt_of(80)
    rows.prefill(ids[:50])
    rows.verify(ids[50:58], 50)
    rows.state.select(8)
    before = rows.snapshot()
    rows.verify(ids[58:61], 58)
    slots, line, history = list(rows.state.slots), rows.state.line, rows.memory.pool.history
    for layer in rows.memory.pool.recurrent:
        state, conv = rows.memory.pool.recurrent[layer], rows.memory.pool.conv[layer]
        assert torch.equal(state[slots[3:]], before[f"state.{layer}"][slots[3:]])
        assert not torch.equal(state[slots[:3]], before[f"state.{layer}"][slots[:3]])
        assert torch.equal(conv[line][:, history + 2 :], before[f"conv.{layer}"][line][:, history + 2 :])
        # The first columns are the selected history without its oldest input, copied.
        assert torch.equal(conv[line][:, : history - 1], before[f"conv.{layer}"][line][:, 8 : 8 + history - 1])


def test_retired_slots_stay_bit_unchanged(make: Any) -> None:
    rows, ids = Rows(make), make.prompt_of(80)
    rows.prefill(ids[:20])
    rows.verify(ids[20:28], 20)
    retired = rows.state
    rows.memory.pool.release(retired)
    before = rows.snapshot()
    rows.state = rows.memory.pool.acquire()
    # Graphs belong to a line, so the next request takes the one that was given back last.
    assert not set(rows.state.slots) & set(retired.slots) and rows.state.line == retired.line
    rows.prefill(ids[:50])
    rows.verify(ids[50:58], 50)
    after, slots = rows.snapshot(), list(retired.slots)
    for layer in rows.memory.pool.recurrent:
        assert torch.equal(after[f"state.{layer}"][slots], before[f"state.{layer}"][slots])
        idle = 1 - rows.state.line
        assert torch.equal(after[f"conv.{layer}"][idle], before[f"conv.{layer}"][idle])


@pytest.mark.parametrize("length", (1, 2, 3, 4, 5))
def test_short_prompt_never_sees_recycled_state(make: Any, length: int) -> None:
    """A singleton prompt that was taken for a decode step read the previous owner's state in a public engine."""
    ids, fresh, recycled = make.prompt_of(40), Rows(make), Rows(make)
    for pool in (*recycled.memory.pool.recurrent.values(), *recycled.memory.pool.conv.values()):
        pool.fill_(float("nan"))
    for pages in (*recycled.memory.cache.k.values(), *recycled.memory.cache.v.values()):
        pages.fill_(float("nan"))
    assert torch.equal(recycled.prefill(ids[:length]), fresh.prefill(ids[:length]))
    rows = ids[length : length + 8]
    assert torch.equal(recycled.verify(rows, length), fresh.verify(rows, length))


def test_padding_slots_write_nothing(make: Any) -> None:
    """A slot table entry of -1 is no slot: not the last one of the pool, and not slot 0."""
    rows, ids = Rows(make), make.prompt_of(80)
    rows.prefill(ids[:50])
    before, slots = rows.snapshot(), rows.state.slots
    rows.state.slot_table[4:] = -1
    logits = rows.verify(ids[50:58], 50)
    after = rows.snapshot()
    for layer, pool in rows.memory.pool.recurrent.items():
        untouched = [slot for slot in range(len(pool)) if slot not in slots[:4]]
        assert torch.equal(after[f"state.{layer}"][untouched], before[f"state.{layer}"][untouched])
    twin = Rows(make)
    twin.prefill(ids[:50])
    assert torch.equal(logits, twin.verify(ids[50:58], 50))


def test_gradients_reach_every_leaf(make: Any) -> None:
    from kernels.routes import Routes
    from runtime.config import TargetConfig
    from runtime.models.shapes import target_shapes
    from runtime.operators import Operators

    config = TargetConfig.from_hf(make.target_json())
    leaves = {name: value.requires_grad_() for name, value in make.weights(target_shapes(config), 3).items()}
    target = Target(config, leaves, Operators(Routes.differentiable()), (1,))
    output = target.sequence(torch.tensor([make.prompt_of(70), make.prompt_of(70, seed=9)], device=make.device))
    (target.head(output.hidden).square().mean() + output.aux.square().mean()).backward()
    dead = [name for name, leaf in leaves.items() if leaf.grad is None or not leaf.grad.abs().sum() > 0]
    assert not dead
