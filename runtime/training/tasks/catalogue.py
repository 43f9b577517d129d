"""Every template of every kind. A new kind adds its module here."""

from __future__ import annotations

from functools import cache

from runtime.training.tasks import arithmetic, code, drills, mathematics, structured
from runtime.training.tasks.exercise import Template


@cache
def all_templates(kinds: tuple[str, ...], edition: int = 1) -> list[Template]:
    templates = [
        *arithmetic.templates(),
        *mathematics.templates(),
        *code.templates(),
        *structured.templates(),
        *drills.templates(),
    ]
    unknown = set(kinds) - {template.kind for template in templates}
    if unknown:
        raise ValueError(f"no templates of kind {', '.join(sorted(unknown))}")
    return [template for template in templates if template.kind in kinds and template.edition <= edition]
