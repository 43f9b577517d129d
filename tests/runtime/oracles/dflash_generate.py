"""Oracle: whole greedy answers of PyPI's `dflash` with transformers' target. Usage: dflash_generate.py JOBS.json OUT

A job is {"name", "model", "drafter", "prompts", "max_new_tokens"}: for every prompt (ids) the tokens behind it and the
tokens that each round produced, the drafts accepted and one more.

The target is computed anew from the whole sequence each time. In transformers 5.24 a cropped cache of linear attention
does not go back to where it was, and the package's greedy answers leave transformers' own greedy ones.
"""

import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

# transformers takes what it can import: our `kernels` of an editable install, and libraries instead of its torch path.
sys.modules |= dict.fromkeys(("kernels", "fla", "causal_conv1d"))
warnings.filterwarnings("ignore")

import dflash.model  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import Qwen3_5ForCausalLM  # noqa: E402


class NoCache:
    """Stands for the target's cache, of which the package asks nothing but its length."""

    def get_seq_length(self) -> int:
        return 0

    def crop(self, count: int) -> None:
        pass


class Exact:
    """The target without a cache: it remembers tokens, not states."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.config, self.device, self.lm_head = model, None, model.device, model.lm_head
        self.get_input_embeddings = model.get_input_embeddings
        self.known = torch.zeros(1, 0, dtype=torch.long)

    def __call__(
        self, ids: torch.Tensor, position_ids: torch.Tensor, logits_to_keep: int = 0, **ignored: object
    ) -> SimpleNamespace:
        self.known = torch.cat((self.known[:, : int(position_ids[0, 0])], ids), 1)
        out = self.model(self.known, use_cache=False, output_hidden_states=True)
        rows = slice(-ids.shape[1], None)
        return SimpleNamespace(
            logits=out.logits[:, rows][:, -logits_to_keep:], hidden_states=[x[:, rows] for x in out.hidden_states]
        )


def main() -> None:
    torch.set_num_threads(1)
    results = {}
    make_cache = dflash.model._make_cache
    dflash.model._make_cache = lambda config: NoCache() if config is None else make_cache(config)
    dflash.model._cuda_time = lambda: 0.0  # accepted counts come with times, and there may be no CUDA
    for job in json.loads(Path(sys.argv[1]).read_text()):
        target = Exact(Qwen3_5ForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval())
        drafter = dflash.model.DFlash2DraftModel.from_pretrained(job["drafter"], dtype=torch.float32).eval()
        for index, ids in enumerate(job["prompts"]):
            out = dflash.model.dflash_generate(
                drafter, target, torch.tensor([ids]), job["max_new_tokens"], None, return_stats=True
            )
            results[f"{job['name']}.{index}.tokens"] = out.output_ids[0, len(ids) :].contiguous()
            results[f"{job['name']}.{index}.rounds"] = torch.tensor(out.acceptance_lengths)
    save_file(results, sys.argv[2])


main()
