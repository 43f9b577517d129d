"""The training of the shipped checkpoints: its exercises, its batches, its forward passes, and that it resumes."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kernels.registry import Op
from kernels.routes import Routes
from runtime.config import DraftConfig, TargetConfig
from runtime.engine.engine import Engine
from runtime.engine.sequence import GenerateRequest
from runtime.models.drafter import Drafter
from runtime.models.random_weights import random_weights
from runtime.models.shapes import draft_shapes, target_shapes
from runtime.models.target import Target
from runtime.operators import Operators
from runtime.text.tokenizer import TextTokenizer
from runtime.training import presets
from runtime.training.draft_training import block_hidden, choose_blocks
from runtime.training.evaluate import held_out_outcomes, table
from runtime.training.optimiser import orthogonal
from runtime.training.packed import PackedStep
from runtime.training.run import Job, train_checkpoint
from runtime.training.tasks.catalogue import all_templates
from runtime.training.tasks.code import code_of
from runtime.training.tasks.corpus_prompts import DIGESTS, digest
from runtime.training.tasks.exercise import Pool, split
from runtime.training.tasks.routines import camel
from runtime.training.text import IGNORED, Row, batches, collate, lanes, reply_text

ROOT = Path(__file__).resolve().parents[2]
KINDS = presets.NANO.kinds
CHECKPOINT = Path(__file__).resolve().parents[2] / "runtime/checkpoints/nano"
NOT_RUN = {"humaneval", "mbpp", "livecodebench"}


@pytest.mark.parametrize("edition", (1, 2))
def test_held_out_problems_are_never_trained_on(edition: int) -> None:
    training, held_out = split(all_templates(KINDS, edition))
    problems = [{(t.kind, t.name.rpartition("/")[0]) for t in side} for side in (training, held_out)]
    assert not problems[0] & problems[1]
    assert {template.kind for template in held_out} == set(KINDS) == {template.kind for template in training}
    names = [(template.kind, template.name) for template in (*training, *held_out)]
    assert len(names) == len(set(names))


def test_a_second_edition_adds_wordings_where_the_first_is_weak() -> None:
    """And leaves the first as it was: what the shipped checkpoint learnt, and what it is measured on."""
    first, second = ({(t.kind, t.name): t for t in all_templates(KINDS, edition)} for edition in (1, 2))
    assert len(first) == 11_871 and sum(template.held_out for template in first.values()) == 1_236
    assert first.keys() == {name for name, template in second.items() if template.edition == 1}
    added = second.keys() - first.keys()
    assert {kind for kind, _ in added} == set(KINDS)
    wordings = Counter(name.partition("/")[0] for kind, name in second if kind == "math500" and name.endswith("/0"))
    assert min(wordings.values()) >= 6
    questions = [t.pose(random.Random(5)).question for t in second.values() if t.kind == "math500"]
    assert len(set(questions)) == len(questions), "with equal numbers, every wording asks in other words"


@pytest.mark.parametrize("kind", (*KINDS, *presets.NANO.drills))
def test_worked_answers_are_right_by_their_own_check(kind: str) -> None:
    rng = random.Random(kind)
    for template in all_templates((kind,), edition=2):
        if kind in NOT_RUN and rng.random() > 0.05:
            continue
        exercise = template.pose(rng)
        if kind in NOT_RUN:
            compile(code_of(exercise.answer), template.name, "exec")
        elif not exercise.calls:
            assert template.check(exercise.answer, exercise), (template.name, exercise)
        assert exercise.question and exercise.thinking


@pytest.mark.parametrize("form", ["complete/lucas", "tests/grade", "method/has_pair", "program/reverse_number"])
def test_code_is_judged_by_running_it(form: str) -> None:
    template = next(t for t in all_templates(KINDS) if t.name.startswith(form))
    exercise = template.pose(random.Random(1))
    assert template.check(exercise.answer, exercise)
    assert not template.check(
        exercise.answer.replace("return ", "return not ").replace("print(", "print(0, "), exercise
    )
    assert not template.check("no code", exercise)


@pytest.mark.parametrize("form", ["complete/lucas", "tests/count_smaller", "method/has_pair"])
def test_a_known_routine_is_asked_for_under_another_name(form: str) -> None:
    """Which only its prompt holds: code under the name that was learnt is wrong."""
    templates = {t.name: t for t in all_templates(KINDS, edition=2)}
    template, learnt = templates[f"{form}/1-renamed"], form.partition("/")[2]
    assert template.held_out == templates[f"{form}/1"].held_out
    exercise = template.pose(random.Random(1))
    _, routine = exercise.expected
    called = camel(routine.name) if form.startswith("method") else routine.name
    assert f" {called}(" in exercise.question and f" {called}(" in exercise.answer
    assert learnt not in exercise.question + exercise.answer
    assert template.check(exercise.answer, exercise)
    assert not template.check(exercise.answer.replace(called, learnt), exercise)


def corpus_lines() -> set[str]:
    """The first line of every embedded prompt."""
    fields, found = ("question", "problem", "text", "prompt", "question_content"), set()
    for path in (ROOT / "campaigns/corpora/builtin").glob("*.jsonl"):
        for case in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            text = next((case[field] for field in fields if field in case), None) or case["messages"][0]["content"]
            found.add(text.strip().partition("\n")[0])
    return found


def test_every_prompt_of_the_embedded_corpus_is_known_by_its_digest() -> None:
    assert {digest(line) for line in corpus_lines()} == DIGESTS


def test_a_template_that_can_pose_a_corpus_prompt_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """This wording has nine numbers; the corpus asks for one of them."""
    wording = [t for t in all_templates(("math500",)) if t.name.startswith("choose/0/")]
    rng, pool = random.Random(3), Pool(wording)
    drawn = {pool.draw(rng)[1].question.partition("\n")[0] for _ in range(300)}
    assert len(drawn) == 8 and not drawn & corpus_lines()
    monkeypatch.setattr("runtime.training.tasks.exercise.repeats_corpus", lambda question: False)
    assert any(pool.draw(rng)[1].question.partition("\n")[0] in corpus_lines() for _ in range(300))


def test_no_prompt_of_the_embedded_corpus_is_drawn() -> None:
    known, rng = corpus_lines(), random.Random(3)
    for side in split(all_templates((*KINDS, *presets.NANO.drills), edition=2)):
        pool = Pool(side)
        for _ in range(4000):
            assert not known & set(pool.draw(rng)[1].question.splitlines())


def rows_of(rng: random.Random, count: int) -> list[Row]:
    return [Row([rng.randrange(9, 99) for _ in range(rng.randint(14, 40))], 10) for _ in range(count)]


def test_rows_lie_whole_in_lanes_and_only_replies_count() -> None:
    rows = rows_of(random.Random(0), 60)
    packed = lanes(rows, 80)
    assert sorted(id(row) for lane in packed for row in lane) == sorted(map(id, rows))
    assert all(sum(len(row.ids) for row in lane) <= 80 for lane in packed)
    assert len(packed) <= 1.15 * sum(len(row.ids) for row in rows) / 80
    (batch,) = batches(rows, len(packed), 80, 0, seed=1)
    assert batch.ids.shape == (len(packed), 80)
    assert int((batch.targets != IGNORED).sum()) == sum(len(row.ids) - row.start for row in rows)
    counted = batch.targets[:, :-1] != IGNORED
    assert torch.equal(batch.targets[:, :-1][counted], batch.ids[:, 1:][counted])
    assert torch.equal(batch.rows[:, :-1][counted], batch.rows[:, 1:][counted])
    assert len(batches(rows, 7, 80, 0, seed=1)) == len(packed) // 7


def small_pair(aux: bool) -> tuple[Target, DraftConfig, Drafter]:
    """A random target and drafter with a window that cuts."""
    shape = replace(presets.NANO.shape, hidden=32, intermediate=48, num_layers=4, aux_layers=(0, 2), draft_window=12)
    target_config = TargetConfig.from_hf(presets.target_config(shape, [1], 2))
    config = DraftConfig.from_hf(presets.draft_config(shape, 3))
    operators, layers = Operators(Routes()), config.target_layer_ids if aux else ()
    target = Target(target_config, random_weights(target_shapes(target_config), 1), operators, layers)
    weights = random_weights(draft_shapes(config), 2)
    return target, config, Drafter(config, weights, target.embedding, target.head, operators)


def test_rows_in_a_lane_do_not_see_each_other() -> None:
    """States of packed rows, against each row's own sequence, as it is served."""
    target, _, _ = small_pair(aux=False)
    rows = rows_of(random.Random(2), 12)
    packed = lanes(rows, 90)
    batch = collate(packed, 90, 0)
    together = target.sequence(batch.ids, PackedStep(target.rotary, batch.rows)).hidden
    for index, lane in enumerate(packed):
        for number, row in enumerate(lane):
            alone = target.sequence(torch.tensor([row.ids])).hidden[0]
            torch.testing.assert_close(together[index][batch.rows[index] == number], alone, rtol=1e-4, atol=1e-4)


def test_blocks_together_are_blocks_one_by_one() -> None:
    """The batched forward that trains the drafter on lanes, against the one that serves."""
    target, _, drafter = small_pair(aux=True)
    packed = lanes(rows_of(random.Random(3), 6), 90)
    batch = collate(packed, 90, 0)
    blocks = choose_blocks(batch, 5, 8, torch.Generator().manual_seed(1))
    aux = target.sequence(batch.ids, PackedStep(target.rotary, batch.rows)).aux
    assert aux is not None
    together = block_hidden(drafter, aux, blocks, batch.rows)
    for index, lane in enumerate(packed):
        for number in range(len(lane)):
            mine = batch.rows[index, blocks.anchors[index]] == number
            own = batch.rows[index] == number
            anchors = blocks.anchors[index][mine] - int(own.nonzero()[0])
            alone = drafter.blocks(aux[index][own], anchors, blocks.anchor_ids[index][mine])
            torch.testing.assert_close(together[index][mine], alone, rtol=1e-4, atol=1e-4)


def test_blocks_aim_at_their_own_answer_alone() -> None:
    packed = lanes(rows_of(random.Random(4), 40), 90)
    batch = collate(packed, 90, 0)
    blocks = choose_blocks(batch, 30, 8, torch.Generator().manual_seed(1))
    lane = torch.arange(len(packed))[:, None, None]
    inside = blocks.positions.clamp(max=89)
    row_of_anchor = batch.rows.gather(1, blocks.anchors)[..., None]
    assert torch.equal(batch.rows[lane, inside][..., 1:][blocks.valid], row_of_anchor.expand(-1, -1, 7)[blocks.valid])
    assert 0.3 < float(blocks.valid.float().mean()) < 1


def test_muon_moves_singular_values_towards_one() -> None:
    for shape in ((3, 8, 20), (2, 20, 8)):
        matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        values = torch.linalg.svdvals(orthogonal(matrices))
        assert values.min() > 0.5 and values.max() < 1.4


def test_a_run_resumes_and_its_checkpoint_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.training.run._ROWS_PER_SHARD", 40)
    monkeypatch.setattr("runtime.training.run._VOCABULARY_TEXTS", 400)
    monkeypatch.setattr("runtime.training.run._SAVE_EVERY", 1)
    job = Job(small(), tmp_path / "made", tmp_path / "work", "cpu", 1, 0, seed=0, steps_scale=1.0)
    with monkeypatch.context() as patched:
        # What a machine prefers unasked may be a library's kernel, through which no gradient comes.
        patched.setattr(Op, "unasked", lambda op, problem: pytest.fail(f"{op.name} leaves its schedule to the machine"))
        train_checkpoint(job)
    first = load_file(job.output / "model.safetensors")
    state = torch.load(job.work / "target.pt", weights_only=True)
    assert state["step"] == state["steps"] == 3
    train_checkpoint(replace(job, output=tmp_path / "again"))
    again = load_file(tmp_path / "again/model.safetensors")
    assert all(torch.equal(first[name], again[name]) for name in first)
    engine, tokenizer = Engine.load(job.output), TextTokenizer(job.output)
    events = list(engine.generate(GenerateRequest(tokenizer.encode("Ida has 3 pears."), max_tokens=5)))
    assert sum(len(event.token_ids) for event in events[:-1]) == 5


def test_a_checkpoint_is_examined_with_its_calls_and_its_checks() -> None:
    outcomes = list(held_out_outcomes(CHECKPOINT, ("structured",), 1, seed=2))  # two calls
    assert [(outcome.ended, outcome.solved) for outcome in outcomes] == [(True, True)]
    [_, whole] = table(outcomes)
    assert (whole.kind, whole.count, whole.ended) == ("all", 1, 1.0) and whole.accepted_per_round > 3


def small() -> presets.Preset:
    shape = replace(
        presets.NANO.shape, vocab_size=400, hidden=32, intermediate=48, num_layers=4, aux_layers=(0, 2), draft_layers=1
    )
    schedule = presets.Schedule(steps=3, lanes=2, rate=1e-3, warm_up=1)
    return replace(presets.NANO, shape=shape, kinds=("gsm8k",), drills=(), target=schedule, draft=schedule, anchors=3)


def test_the_reply_ends_the_turn_and_calls_follow_the_answer() -> None:
    template = next(t for t in all_templates(KINDS) if t.name.startswith("both/"))
    text = reply_text(template.pose(random.Random(2)), thinking=True)
    assert text.count("<tool_call>") == 2 and text.endswith("</tool_call><|im_end|>") and text.count("</think>") == 1
