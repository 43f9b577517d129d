"""A server of declared weights: it says what it made, twice the same, and its answers end with their budget."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.models.random_model import main

TARGET = {
    "model_type": "qwen3_5_text", "vocab_size": 4096, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "max_position_embeddings": 512, "eos_token_id": 7,
}  # fmt: skip
DRAFTER = {
    "architectures": ["DFlash2DraftModel"], "vocab_size": 4096, "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 1, "layer_types": ["sliding_attention"], "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "use_sliding_window": True, "sliding_window": 64, "rope_parameters": {"rope_theta": 1e5},
    "dflash_config": {"block_size": 8, "mask_token_id": 3, "target_layer_ids": [0], "selector_rank": 16},
}  # fmt: skip


@pytest.mark.acceptance
def test_two_lives_make_the_same_weights_and_say_so(start: Any, tmp_path: Path) -> None:
    shape = tmp_path / "shape.json"
    shape.write_text(json.dumps({"target": TARGET, "drafter": DRAFTER}))
    assert main([str(tmp_path / "model"), "--shape", str(shape), "--seed", "4"]) == 0
    identities, answers = [], []
    for _ in range(2):
        with start("--keep-nvfp4", model=tmp_path / "model") as server:
            asked = {"prompt": "Ida has 5 pears.", "max_tokens": 40, "seed": 3, "return_token_ids": True}
            answers.append(server.ask("POST", "/v1/completions", asked).json["choices"][0])
            identities.append(server.ask("GET", "/campaign/identity").json)
    made = [identity["made_weights"] for identity in identities]
    assert made[0] == made[1] and (made[0]["seed"], made[0]["format"]) == (4, "nvfp4") and len(made[0]["sha256"]) == 64
    assert answers[0]["token_ids"] == answers[1]["token_ids"] and answers[0]["finish_reason"] == "length"
    assert max(answers[0]["token_ids"]) > 2560, "ids that the tokenizer does not know"
