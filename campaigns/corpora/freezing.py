"""From published files to a frozen corpus: read, select, write down the rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from campaigns.corpora.case import Case
from campaigns.corpora.manifest import UNPROVEN, Corpus
from campaigns.corpora.proof import Proof, Prover
from campaigns.corpora.readers import gsm8k, humaneval, livecodebench, math500, mbpp, structured
from campaigns.corpora.readers.solutions import published
from campaigns.corpora.selection import RULES, Selecting, Selection
from campaigns.corpora.source import Source, open_all
from campaigns.corpora.templates import DEFAULT
from campaigns.errors import UsageError

MIX: Mapping[str, int] = {
    "gsm8k": 32,
    "math500": 32,
    "humaneval": 32,
    "mbpp": 32,
    "livecodebench": 16,
    "structured": 4,
}


@dataclass(frozen=True)
class Recipe:
    """What to freeze. `paths` by dataset; humanevalplus and mbppplus add tests to their base."""

    paths: Mapping[str, Sequence[Path]]
    mix: Mapping[str, int] = field(default_factory=lambda: MIX)
    selection: Selection = field(default_factory=Selection)
    templates: Mapping[str, str] = field(default_factory=lambda: DEFAULT)
    prefix: str = ""  # put before dataset names, so that other prompts never pass for the public ones


def freeze(recipe: Recipe, fill: Corpus | None = None, prover: Prover | None = None) -> Corpus:
    """The corpus of a recipe; `fill` lends structured cases of kinds that the sources lack.

    With a prover, cases that no published solution passes are left out and named in the header.
    """
    opened: dict[str, tuple[Source, ...]] = {
        name: open_all(recipe.paths.get(name, ()))
        for name in (*MIX, "humanevalplus", "mbppplus")
        if name != "structured"
    }
    proof = Proof(
        prover, {case: s for name in MIX for case, s in published(name, recipe.prefix + name, opened).items()}
    )
    chosen = {name: _select(name, count, recipe, opened, fill, proof) for name, count in recipe.mix.items() if count}
    cases = tuple(case for part in chosen.values() for case in part)
    _check_ids(recipe.selection, cases)
    for case in cases:
        _check_texts(case)
    return Corpus(_header(recipe, opened, chosen) | (proof.header() if prover else {}), cases)


def _select(
    name: str,
    count: int,
    recipe: Recipe,
    opened: Mapping[str, tuple[Source, ...]],
    fill: Corpus | None,
    proof: Proof,
) -> list[Case]:
    if not recipe.paths.get(name):
        if recipe.selection.order is Selecting.IDS:
            return []
        raise UsageError(f"no source for {count} cases of {name}: give --{name} PATH, or --count {name}=0")
    if name == "structured":
        return _structured(count, recipe, fill)
    return recipe.selection.pick(recipe.prefix + name, _pool(name, recipe, opened), count, proof)


def _pool(name: str, recipe: Recipe, opened: Mapping[str, tuple[Source, ...]]) -> list[Case]:
    label, texts, sources = recipe.prefix + name, recipe.templates, opened[name]
    match name:
        case "gsm8k":
            return gsm8k.read(sources, texts, label)
        case "math500":
            return math500.read(sources, texts, label)
        case "humaneval":
            return humaneval.read(sources, opened["humanevalplus"], texts, label)
        case "mbpp":
            return mbpp.read(sources, opened["mbppplus"], texts, label)
        case "livecodebench":
            return livecodebench.read(sources, texts, label)
    raise UsageError(f"unknown dataset {name!r}; the datasets are {', '.join(MIX)}")


def _structured(count: int, recipe: Recipe, fill: Corpus | None) -> list[Case]:
    """Equal shares of the four kinds, the rest to the first kinds."""
    pools = structured.read(recipe.paths["structured"], recipe.templates, recipe.prefix + "structured")
    lent = structured.by_kind(fill.cases) if fill else {}
    share, rest = divmod(count, len(structured.KINDS))
    chosen: list[Case] = []
    for position, kind in enumerate(structured.KINDS):
        pool = pools[kind] or lent.get(kind, [])
        wanted = share + (position < rest)
        chosen += recipe.selection.pick(f"{recipe.prefix}structured ({kind})", pool, wanted)
    return chosen


def _check_ids(selection: Selection, cases: Sequence[Case]) -> None:
    missing = sorted(set(selection.ids) - {case.id for case in cases})
    if missing:
        raise UsageError(f"--ids {missing[0]}: no source has a case of this id")


def _check_texts(case: Case) -> None:
    """Half a surrogate pair or NaN can be read, but neither hashed nor sent."""
    try:
        json.dumps(asdict(case), ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise UsageError(f"case {case.id}: it holds what no JSON text can say ({error}); mend the source") from error


def _header(
    recipe: Recipe, opened: Mapping[str, tuple[Source, ...]], chosen: Mapping[str, Sequence[Case]]
) -> dict[str, Any]:
    sources: list[dict[str, Any]] = [
        {"dataset": recipe.prefix + name, "sha256": source.sha256, "records": len(source.records)}
        for name, files in opened.items()
        for source in files
        if name.removesuffix("plus") in chosen
    ]
    structured_files = sorted({(case.dataset, case.source_sha256) for case in chosen.get("structured", ())})
    return {
        "format": UNPROVEN,
        "mix": {recipe.prefix + name: len(cases) for name, cases in chosen.items()},
        "order": str(recipe.selection.order),
        "rule": RULES[Selecting(recipe.selection.order)],
        "templates": dict(recipe.templates),
        "sources": sources + [{"dataset": dataset, "sha256": sha} for dataset, sha in structured_files],
    }
