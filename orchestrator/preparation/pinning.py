"""A corpus' prompts are pinned as token ids: the first campaign records them, every later one must make the same.

Keyed by corpus, tokenizer files and chat template, so what a mismatch finds is a change of rendering or of a library.
Prompts that only the server can tokenise are not pinned.
"""

from __future__ import annotations

from campaigns.errors import IdentityMismatch
from campaigns.hashes import token_sha256
from orchestrator.preparation.prepare import Prepared
from results.store.writer import Store


def pin_prompts(store: Store, prepared: Prepared) -> None:
    """Raises IdentityMismatch naming the first prompt whose ids differ from those recorded before."""
    corpus = prepared.plan.corpus
    if not corpus or not prepared.prompt_ids:
        return
    tokenizer = prepared.expected["tokenizer_sha256"]
    template = str(prepared.provenance["template_sha256"])
    hashes = {name: token_sha256(ids) for name, ids in prepared.prompt_ids.items()}
    differing = store.prompt_hashes(corpus, tokenizer, template, hashes)
    if differing is not None:
        raise IdentityMismatch(
            f"prompt {differing}: its token ids are not those that this store recorded for corpus {corpus[:12]} with "
            f"the same tokenizer ({tokenizer[:12]}) and template ({template[:12]}); a library or the rendering changed"
        )
