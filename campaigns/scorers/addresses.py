"""URIs and IRIs (RFC 3986, RFC 3987), as JSON Schema's formats of these names mean them.

The package that jsonschema would ask about IRIs builds fifty grammars when it is imported, and Ray imports jsonschema:
every process of Ray took a second longer. It also refused `http://[::1]/` and all characters beyond U+FFFF.
"""

from __future__ import annotations

import re

from jsonschema import FormatChecker
from rfc3986_validator import validate_rfc3986

_PLANES = "".join(f"{chr(plane << 16)}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 14))
_UCSCHAR = re.compile(f"[\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef{_PLANES}\U000e1000-\U000efffd]")
_IPRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]")
_BYTE = "%00"  # what RFC 3987, 3.1, writes for a character that a URI has not
_RULES = {"uri": "URI", "iri": "URI", "uri-reference": "URI_reference", "iri-reference": "URI_reference"}


def is_address(value: object, kind: str) -> bool:
    """`kind` is the format's name; what is no string is not its business."""
    if not isinstance(value, str):
        return True
    uri = _as_uri(value) if kind.startswith("iri") else value
    return "\n" not in uri and bool(validate_rfc3986(uri, _RULES[kind]))  # its pattern allows one at the end


def with_addresses(checker: FormatChecker) -> FormatChecker:
    for kind in _RULES:
        checker.checks(kind)(lambda value, kind=kind: is_address(value, kind))
    return checker


def _as_uri(iri: str) -> str:
    """A URI exactly where `iri` is an IRI: such characters stand where a percent-encoded byte may, private ones in the
    query alone.
    """
    rest, hash_mark, fragment = iri.partition("#")
    head, question_mark, query = rest.partition("?")
    return _UCSCHAR.sub(_BYTE, head + question_mark + _IPRIVATE.sub(_BYTE, query) + hash_mark + fragment)
