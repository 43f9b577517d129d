"""A document against a JSON schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from campaigns.scorers.addresses import with_addresses
from campaigns.scorers.verdict import Unjudgeable


def schema_complaint(schema: Mapping[str, Any], document: Any, *, whole_integers: bool = False) -> str:
    """jsonschema's first complaint, formats checked; references beyond the schema are never fetched.

    `whole_integers`: 10.0 is no integer, as for the tools' programs; JSON Schema takes it for one.
    """
    kind = validator_for(schema)
    if whole_integers:
        # The stubs of jsonschema leave its type checkers untyped.
        kind = extend(kind, type_checker=kind.TYPE_CHECKER.redefine("integer", _is_whole))  # type: ignore[no-untyped-call]
    nothing_to_fetch: Registry[Any] = Registry()
    formats = with_addresses(FormatChecker())
    try:
        kind.check_schema(dict(schema))
        kind(schema, registry=nothing_to_fetch, format_checker=formats).validate(document)
    except ValidationError as error:
        return f"{error.json_path}: {error.message[:200]}"
    except (SchemaError, re.error) as error:
        raise Unjudgeable(f"the schema itself is wrong: {str(error)[:200]}") from error
    except Unresolvable as error:
        raise Unjudgeable(f"the schema refers to {error.ref!r}, which is not in it") from error
    except (RecursionError, ArithmeticError) as error:  # nested too deeply, or a number beyond every float
        raise Unjudgeable(f"the document cannot be checked: {error}") from error
    return ""


def _is_whole(checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
