"""Audit mode: a shadow finds one changed bit, fails without coverage, and leaves generation alone."""

import json
import sys
from typing import Any

import pytest
import torch

from kernels import gdn, projection
from kernels.registry import Bound, Op, Schedule
from runtime.audits import audit, shadow
from runtime.audits.shadow import Shadow
from runtime.engine.shape import EngineOptions
from runtime.models.steps import VerifyStep
from runtime.speculation.sampling import SamplingParams


def with_candidate(patch: pytest.MonkeyPatch, op: Op, spoil: Any) -> str:
    """Add a schedule `spoilt` to `op`: the default, then `spoil(result, operands)`."""
    default = op.schedule(op.default)

    def run(*operands: Any) -> Any:
        return spoil(default.run(*operands), operands)

    spoilt = Schedule("spoilt", 1, Bound(0.0, "for tests"), default.guard, run)
    patch.setattr(type(op), "schedule", lambda self, name: spoilt if name == "spoilt" else schedule_of(self, name))
    return "spoilt"


schedule_of = Op.schedule


def shadowed(make: Any, op: str, candidate: str, **request: Any) -> tuple[list[int], list[dict[str, Any]]]:
    engine = make.engine()
    observer = engine.decoder.operators.observer = Shadow(op, candidate)
    tokens = make.answer(engine, make.prompt_of(12), **({"max_tokens": 8} | request)).tokens
    return tokens, list(observer.lines())


@pytest.mark.parametrize("op", ("gdn", "attention", "selection"))
def test_a_schedule_shadowed_by_itself_agrees_everywhere(make: Any, op: str) -> None:
    name = {"gdn": "sequential", "attention": "gathered", "selection": "keys"}[op]
    tokens, lines = shadowed(make, op, name)
    assert tokens == make.answer(make.engine(), make.prompt_of(12), max_tokens=8).tokens
    assert lines[-1]["passed"] and lines[-1]["calls"] > 0 and not lines[-1]["refusals"]
    if op == "gdn":
        assert {line["site"] for line in lines[:-1]} == {f"layers.{i}.linear_attn.recurrence" for i in (0, 2)}


def test_one_changed_bit_is_found_with_its_coordinate(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(out: torch.Tensor, operands: Any) -> torch.Tensor:
        if out.shape == (8, 48):
            out = out.clone()
            out.view(torch.int32)[5, 7] ^= 1
        return out

    tokens, lines = shadowed(make, "projection", with_candidate(monkeypatch, projection.OP, spoil))
    assert not lines[-1]["passed"] and lines[-1]["differing"] > 0
    assert any("first at (5, 7)" in (line.get("first") or "") for line in lines[:-1])
    assert tokens == make.answer(make.engine(), make.prompt_of(12), max_tokens=8).tokens


def test_a_wrong_state_write_is_found_and_does_not_leak(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(out: torch.Tensor, operands: Any) -> torch.Tensor:
        operands[4].pool[-1, 0, 0, 0] += 1
        return out

    tokens, lines = shadowed(make, "gdn", with_candidate(monkeypatch, gdn.OP, spoil))
    assert not lines[-1]["passed"]
    assert all("operands[4].pool" in line["first"] for line in lines[:-1])
    assert tokens == make.answer(make.engine(), make.prompt_of(12), max_tokens=8).tokens


def test_no_coverage_fails(make: Any) -> None:
    _, lines = shadowed(make, "gdn", "sequential", max_tokens=1)
    assert lines == [lines[-1]] and lines[-1]["calls"] == 0 and not lines[-1]["passed"]


def test_refused_calls_are_counted_and_the_rest_compared(
    make: Any, column_tiles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Column tiles take a block's rows and would refuse a prompt's, which has an operator of its own."""
    monkeypatch.setattr("kernels.prefill_projection.MOST_ROWS", 64)
    engine = make.engine(routes={"projection": "columns-32"})
    observer = engine.decoder.operators.observer = Shadow("projection", "columns-128")
    make.answer(engine, make.prompt_of(40), max_tokens=8)
    summary = list(observer.lines())[-1]
    assert summary["passed"] and summary["calls"] > 0
    assert any("40 rows" in reason for reason in summary["refusals"])


def test_copies_keep_their_layout_and_share_no_memory() -> None:
    base = torch.arange(24.0).view(4, 6)
    copy = shadow.isolated((base[:, 1:3], 7, torch.zeros(2).to(torch.float8_e4m3fn)))
    assert copy[0].stride() == (6, 1) and torch.equal(copy[0], base[:, 1:3]) and copy[1] == 7
    copy[0].zero_()
    assert base[0, 1] == 1


def test_forced_logits_are_those_of_one_plain_forward(make: Any) -> None:
    engine, tape = make.engine(), make.prompt_of(70)
    logits = audit.forced(engine, tape[:41], tape[41:])
    target = engine.decoder.target
    with torch.inference_mode():
        expected = target.head(target.sequence(torch.tensor([tape], device=make.device)).hidden)[0, 40:].cpu()
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_forced_rows_meet_the_page_table_that_a_round_shows(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    made = VerifyStep.__init__

    def noted(step: Any, *operands: Any) -> None:
        made(step, *operands)
        shown.append((int(step.row_lengths[-1]), len(step.pages)))

    monkeypatch.setattr(VerifyStep, "__init__", noted)
    monkeypatch.setattr("kernels.attention.BY_TABLE", frozenset({"gathered"}))
    engine, tape = make.engine(max_model_len=256, page_size=64), make.prompt_of(90)
    engine.routes.enable({"attention": "gathered"})
    audit.forced(engine, tape[:41], tape[41:])
    assert shown and all((end <= 64) == (pages == 1) for end, pages in shown)
    assert {pages for _, pages in shown} == {1, 4}


def test_comparison_statistics() -> None:
    control = torch.log(torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]))
    candidate = torch.log(torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]))
    same, changed, summary = audit.compare(control, candidate, SamplingParams(top_k=2), (2,))
    assert same["bitwise_equal"] and same["softmax_tv"] == 0 and not same["top1_changed"]
    assert changed["softmax_tv"] == pytest.approx(0.3, abs=1e-6)
    # Top 2: (0.625, 0.375, 0) against (0, 0.375, 0.625).
    assert changed["sampling_tv"] == pytest.approx(0.625, abs=1e-6)
    assert changed["top1_changed"] and changed["support_changed"]
    assert changed["eos_probability_difference"] == pytest.approx(0.3, abs=1e-6)
    assert not summary["passed"] and summary["top1_changed_rows"] == 1 and summary["rows"] == 2


def test_one_differing_bit_is_not_bitwise_equal() -> None:
    control = torch.zeros(1, 3)
    candidate = torch.tensor([[-0.0, 0.0, 0.0]])
    row, summary = audit.compare(control, candidate, SamplingParams(), (0,))
    assert not row["bitwise_equal"] and row["softmax_tv"] == 0 and not summary["passed"]


@pytest.fixture(scope="module")
def files(make: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    work = tmp_path_factory.mktemp("audit")
    folder = make.write_target(work / "model", make.target_json(max_position_embeddings=256))
    make.write_drafter(folder / "drafter", make.draft_json())
    ids = make.prompt_of(40)
    (work / "tape.json").write_text(json.dumps({"prompt_ids": ids[:14], "forced_ids": ids[14:]}))
    return ["--model", str(folder), "--tape", str(work / "tape.json")]


@pytest.mark.parametrize(("candidate", "code"), (("columns-128", 0), ("dense", 2), ("none", 1)))
@pytest.mark.parametrize("kind", ("fixed-prefix", "shadow"))
def test_command_line(files: list[str], capsys: Any, monkeypatch: Any, kind: str, candidate: str, code: int) -> None:
    arms = ["--control", "projection=columns-32", "--candidate", f"projection={candidate}"]
    monkeypatch.setattr(sys, "argv", ["audit", kind, *files, *arms])
    assert audit.main() == code
    out, err = capsys.readouterr()
    if code == 1:
        assert "'none'" in err and err.count("\n") == 1
        return
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["passed"] == (code == 0)
    if kind == "fixed-prefix":
        assert lines[-1]["rows"] == 27 == len(lines) - 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is missing; --tape wants"),
        ("[1]", "holds a JSON list, not an object"),
        ('{"prompt_ids": [1]}', "has no token ids as forced_ids; give a list of integers"),
        ('{"prompt_ids": ["a"], "forced_ids": [1]}', "has no token ids as prompt_ids; give a list of integers"),
    ],
)
def test_a_tape_that_is_none_is_one_sentence(
    content: str | None, said: str, tmp_path: Any, capsys: Any, monkeypatch: Any
) -> None:
    tape = tmp_path / "tape.json"
    if content is not None:
        tape.write_text(content)
    words = ["fixed-prefix", "--model", "/nowhere", "--tape", str(tape), "--candidate", "gdn=cpu-bv8"]
    monkeypatch.setattr(sys, "argv", ["audit", *words])
    assert audit.main() == 1
    assert said in capsys.readouterr().err


def test_the_engine_of_an_audit_is_the_servers(files: list[str], monkeypatch: Any) -> None:
    made = []

    def load(folder: Any, options: EngineOptions) -> Any:
        made.append(options)
        raise OSError("only its options were asked for")

    monkeypatch.setattr(audit.Engine, "load", load)
    words = ["--max-model-len", "4096", "--dtype", "float16", "--kv-cache-dtype", "fp8_e4m3", "--keep-nvfp4"]
    monkeypatch.setattr(sys, "argv", ["audit", "fixed-prefix", *files, *words, "--candidate", "gdn=cpu-bv8"])
    assert audit.main() == 1
    wanted = EngineOptions(max_model_len=4096, dtype="float16", kv_cache_dtype="fp8_e4m3", keep_quantised=True)
    assert made == [wanted]
