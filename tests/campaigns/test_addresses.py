"""URIs and IRIs, by the letter of RFC 3986 and RFC 3987; values like those of JSON Schema's own suite."""

from __future__ import annotations

import pytest

from campaigns.scorers.addresses import is_address
from campaigns.scorers.schema import schema_complaint

KINDS = ("uri", "iri", "uri-reference", "iri-reference")


@pytest.mark.parametrize(
    ("text", "right_for"),
    [
        ("http://example.org/a?b=c#d", KINDS),
        ("http://[::1]:80/", KINDS),
        ("urn:isbn:0451450523", KINDS),
        ("http://ƒøø.ßår/?∂éœ=πîx#πîüx", ("iri", "iri-reference")),
        ("http://example.org/\U0001f600", ("iri", "iri-reference")),
        ("/a/b", ("uri-reference", "iri-reference")),
        ("//ƒøø.ßår/?∂éœ=πîx#πîüx", ("iri-reference",)),
        ("âππ", ("iri-reference",)),
        ("http://example.org/?\ue000", ("iri", "iri-reference")),  # private characters: in the query alone
        ("http://example.org/\ue000", ()),
        ("http://example.org/#\ue000", ()),
        ("http://example.org/\ufdd0", ()),  # no character
        ("ƒøø://example.org", ()),  # a scheme is ASCII
        ("http://[é::1]/", ()),
        ("http://example.org:8é/", ()),
        ("http://2001:0db8:85a3:0000:0000:8a2e:0370:7334", ()),
        ("\\\\WINDOWS\\filëßåré", ()),
        ("#ƒräg\\mênt", ()),
        ("http://example.org/a b", ()),
        ("http://example.org/\n", ()),
        ("http://example.org/%zz", ()),
        ("::", ()),
    ],
)
def test_what_is_an_address(text: str, right_for: tuple[str, ...]) -> None:
    assert tuple(kind for kind in KINDS if is_address(text, kind)) == right_for


def test_a_schema_asks_for_them() -> None:
    for kind in KINDS:
        assert schema_complaint({"format": kind}, "http://[::1]/") == "" == schema_complaint({"format": kind}, 7)
        assert "is not a" in schema_complaint({"format": kind}, "http://example.org/a b")
