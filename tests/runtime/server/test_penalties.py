"""Penalties, biases and prefilled answers through the server, against what transformers makes of them."""

import json
import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from runtime.errors import ModelError
from runtime.http.requests.chat import read_chat
from runtime.http.requests.defaults import Defaults
from runtime.http.requests.order import ModelCard, completion_order
from runtime.text.generation import Speculation
from runtime.text.tokenizer import ChatTemplate

CHECKPOINT = Path(__file__).resolve().parents[3] / "runtime/checkpoints/nano"
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
PROMPT = "Ida has 5 pears and buys 4 more pears. Ida has"
BIASED = {"300": 2.5, "17": -100, "900": 1.0}
PENALISED = {"presence_penalty": 0.8, "frequency_penalty": 0.5, "repetition_penalty": 1.15, "logit_bias": BIASED}
MODES = ("none", "dflash", "lookup")


def said(server: Any, **body: Any) -> Any:
    asked = {"prompt": PROMPT, "max_tokens": 48, "ignore_eos": True, "return_token_ids": True, **body}
    reply = server.ask("POST", PLAIN, asked)
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]


def penalised(row: Tensor, prompt: Sequence[int], answer: Sequence[int]) -> Tensor:
    """One row [V] as transformers' processors and OpenAI's formula change it."""
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

    ids, row = torch.tensor([[*prompt, *answer]]), row[None].clone()
    row = SequenceBiasLogitsProcessor({(int(token),): float(bias) for token, bias in BIASED.items()})(ids, row)
    row = RepetitionPenaltyLogitsProcessor(PENALISED["repetition_penalty"])(ids, row)[0]
    for token, count in Counter(answer).items():
        row[token] -= count * PENALISED["frequency_penalty"] + PENALISED["presence_penalty"]
    return row


def test_greedy_answers_are_the_same_with_drafts_and_without(server: Any) -> None:
    answers = [said(server, temperature=0, speculation=mode, **PENALISED)["token_ids"] for mode in MODES]
    assert answers[0] == answers[1] == answers[2] != said(server, temperature=0)["token_ids"]


@pytest.mark.acceptance  # ten seconds; the engine's own test has the law
def test_the_sampled_law_of_every_token_is_theirs(server: Any, oracle_logits: Any) -> None:
    asked = {"logprobs": 20, "logprobs_mode": "processed_logprobs", "return_tokens_as_token_ids": True}
    choice = said(server, temperature=0.9, top_k=0, top_p=1, seed=3, **asked, **PENALISED)
    prompt, ids = choice["prompt_token_ids"], choice["token_ids"]
    for i, row in enumerate(oracle_logits(prompt, ids)):
        law = (penalised(row, prompt, ids[:i]).double() / 0.9).softmax(-1)
        told = {int(name.removeprefix("token_id:")): p for name, p in choice["logprobs"]["top_logprobs"][i].items()}
        assert len(told) >= 20
        for token, logprob in told.items():
            assert math.exp(logprob) == pytest.approx(float(law[token]), abs=2e-3), (i, token)


def test_penalties_stay_under_a_mask(server: Any) -> None:
    """A form of the answer and penalties together: the form holds, and drafts change nothing."""
    form = {"structured_outputs": {"regex": "[ab ]{30}"}, "ignore_eos": False}
    texts = {said(server, temperature=0, speculation=mode, **form, **PENALISED)["text"] for mode in MODES}
    assert len(texts) == 1 and len(texts.pop()) == 30


def test_a_bias_forces_and_forbids(server: Any) -> None:
    only = said(server, temperature=1, seed=1, logit_bias={"300": 100})["token_ids"]
    assert set(only) == {300}
    free = said(server, temperature=0)["token_ids"]
    assert free[0] not in said(server, temperature=0, logit_bias={str(free[0]): -100})["token_ids"]


@pytest.fixture
def card(tmp_path: Path) -> ModelCard:
    folder = tmp_path / "model"
    shutil.copytree(CHECKPOINT, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    settings = folder / "generation_config.json"
    own = {"repetition_penalty": 1.05, "max_new_tokens": 40, "top_k": None}
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **own}))
    return ModelCard.read(folder, "nano", 512, Speculation(), 7)


def test_a_checkpoints_own_repetition_penalty_holds_unless_asked(card: ModelCard) -> None:
    def repetition(**body: Any) -> float:
        return completion_order({"prompt": "a", **body}, card).generation.penalties.repetition

    assert repetition() == repetition(repetition_penalty=None) == 1.05
    assert repetition(repetition_penalty=1) == 1.0


def test_a_checkpoints_own_limit_holds_for_every_request(card: ModelCard) -> None:
    def limit(**body: Any) -> int:
        return completion_order({"prompt": "a", **body}, card).generation.max_tokens

    assert limit() == 16 and limit(max_tokens=39) == 39
    assert limit(max_tokens=41) == limit(max_tokens=400) == 40
    assert completion_order({"prompt": "a"}, card).generation.sampling.top_k == 0  # null is a field that is not set


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", "hot"), ("top_p", 7), ("max_new_tokens", 0), ("top_k", True), ("eos_token_id", None)],
)
def test_a_generation_configuration_that_cannot_hold_is_refused_by_name(tmp_path: Path, field: str, value: Any) -> None:
    for name in ("config.json", "generation_config.json"):
        raw = json.loads((CHECKPOINT / name).read_text())
        changed = raw | {field: value} if name.startswith("gen") or field == "eos_token_id" else raw
        (tmp_path / name).write_text(json.dumps(changed))
    with pytest.raises(ModelError, match=field):
        Defaults.read(tmp_path)


TEMPLATES = {
    "nano": json.loads((CHECKPOINT / "tokenizer_config.json").read_text())["chat_template"],
    "trims": "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>\n{% endfor %}",
    "repeats": "{{ messages[-1].content | length }}{% for m in messages %}[{{ m.content }}]{% endfor %}assistant",
}
TEXTS = ("The answer is", "The answer is ", " four\n", "assistant", "<think>\nI add.</think>So ", "]")


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("text", TEXTS)
def test_a_continued_prompt_is_what_transformers_renders(card: ModelCard, template: str, text: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [{"role": "user", "content": "2 + 2? The answer is"}, {"role": "assistant", "content": text}]
    (theirs,), _ = render_jinja_template(
        [messages], chat_template=TEMPLATES[template], continue_final_message=True, add_generation_prompt=False
    )
    body = {"messages": messages, "continue_final_message": True}
    mine = read_chat(body, ChatTemplate(TEMPLATES[template], {}), card.grammars)
    if (
        template != "repeats"
    ):  # theirs counts its own mark in what the template computes from the text, and so does ours
        assert mine.prompt == theirs
    assert mine.prompt.endswith(text.strip() if template == "trims" else text)


def test_a_continued_answer_goes_on_where_it_was_cut(server: Any) -> None:
    asked = {"temperature": 0, "max_tokens": 200, "return_token_ids": True}
    question = {"role": "user", "content": "Ida has 14 pears and gives 5 pears to Leo. How many pears are left?"}
    quiet = {"chat_template_kwargs": {"enable_thinking": False}}
    whole = server.ask("POST", CHAT, {"messages": [question], **asked, **quiet}).json["choices"][0]
    text, ids = whole["message"]["content"], whole["token_ids"]
    for kept in range(1, len(ids) - 1, 4):
        begun = server.ask("POST", "/detokenize", {"tokens": ids[:kept]}).json["prompt"]
        history = [question, {"role": "assistant", "content": f"<think>\n</think>{begun}"}]
        body = {"messages": history, "continue_final_message": True, **asked}
        rest = server.ask("POST", CHAT, body).json["choices"][0]
        assert rest["message"]["reasoning"] is None and begun + rest["message"]["content"] == text, kept
