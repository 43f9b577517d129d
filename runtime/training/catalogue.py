"""Every template of every kind. A new kind adds its module here."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.training import arithmetic
from runtime.training.exercise import Template


def all_templates(kinds: Sequence[str]) -> list[Template]:
    templates = [*arithmetic.templates()]
    unknown = set(kinds) - {template.kind for template in templates}
    if unknown:
        raise ValueError(f"no templates of kind {', '.join(sorted(unknown))}")
    return [template for template in templates if template.kind in kinds]
