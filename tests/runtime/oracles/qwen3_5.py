"""Oracle: transformers' Qwen3.5 text decoder over checkpoint folders. Usage: qwen3_5.py JOBS.json OUT.safetensors

A job is {"name", "model", "ids", "prompts"}: for each prompt length n the logits of the first n ids in one forward,
then of the ids up to the end token by token with a cache. Runs where neither `kernels` nor `runtime` is importable.
"""

import json
import sys
import warnings
from pathlib import Path

# transformers takes what it can import: our `kernels` of an editable install, and libraries instead of its torch path.
sys.modules |= dict.fromkeys(("kernels", "fla", "causal_conv1d"))
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import Qwen3_5ForCausalLM  # noqa: E402


def logits(model: torch.nn.Module, ids: torch.Tensor, prompt: int) -> torch.Tensor:
    """[len(ids), V]: the prompt at once, the rest one by one."""
    out = model(ids[None, :prompt], use_cache=True)
    rows, cache = [out.logits[0]], out.past_key_values
    for token in ids[prompt:]:
        out = model(token.view(1, 1), past_key_values=cache, use_cache=True)
        rows.append(out.logits[0])
    return torch.cat(rows)


def main() -> None:
    torch.set_num_threads(1)
    results = {}
    for job in json.loads(Path(sys.argv[1]).read_text()):
        model = Qwen3_5ForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval()
        for prompt in job["prompts"]:
            ids = torch.tensor(job["ids"][: prompt + job["decode"]])
            with torch.no_grad():
                results[f"{job['name']}.{prompt}"] = logits(model, ids, prompt).contiguous()
    save_file(results, sys.argv[2])


main()
