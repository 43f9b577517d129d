"""Oracle: the drafter of PyPI's `dflash`. Usage: dflash2.py JOBS.json OUT.safetensors

A job is {"name", "drafter", "inputs", "lengths", "temperature"}. `inputs` (safetensors) holds the target's `embedding`
and `head`, and `aux` [T, n * H]. For every length n: a block anchored at position n with context [0, n): its hidden
states, the greedy path, a sampled path with its candidates and probabilities.
"""

import json
import sys
import warnings
from pathlib import Path

# transformers takes what it can import: our `kernels` of an editable install, and libraries instead of its torch path.
sys.modules |= dict.fromkeys(("kernels", "fla", "causal_conv1d"))
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from dflash.model import DFlash2DraftModel  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402


def block(model: torch.nn.Module, inputs: dict[str, torch.Tensor], length: int, anchor: int) -> torch.Tensor:
    rows = model.block_size
    ids = torch.tensor([anchor] + [model.mask_token_id] * (rows - 1))
    scale = model.config.dflash_config.get("input_embedding_scale", 1.0)
    noise = torch.nn.functional.embedding(ids, inputs["embedding"])[None] * scale
    positions = torch.arange(length + rows)[None]
    return model(position_ids=positions, noise_embedding=noise, target_hidden=inputs["aux"][None, :length])[:, 1:]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results = {}
    for job in json.loads(Path(sys.argv[1]).read_text()):
        model = DFlash2DraftModel.from_pretrained(job["drafter"], dtype=torch.float32).eval()
        inputs = load_file(job["inputs"])
        head = torch.nn.Linear(inputs["head"].shape[1], inputs["head"].shape[0], bias=False)
        head.weight.data = inputs["head"]
        for length in job["lengths"]:
            with torch.no_grad():
                hidden = block(model, inputs, length, job["anchor"])
                anchor = torch.tensor([job["anchor"]])
                greedy, *_ = model.propose(hidden, anchor, head, 0.0)
                path, candidates, q = model.propose(hidden, anchor, head, job["temperature"])
            parts = {"hidden": hidden, "greedy": greedy, "path": path, "candidates": candidates, "q": q}
            results |= {f"{job['name']}.{length}.{key}": value[0].contiguous() for key, value in parts.items()}
    save_file(results, sys.argv[2])


main()
