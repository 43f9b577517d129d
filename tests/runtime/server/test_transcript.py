"""Text of an answer, without a server: stop strings, channels, tool calls, unfinished characters."""

from itertools import pairwise
from pathlib import Path

import pytest

from runtime.text.generation import Step
from runtime.text.tokenizer import TextTokenizer
from runtime.text.tools import CallParser
from runtime.text.transcript import Markers, Piece, StopSearch, Transcript

CHECKPOINT = Path(__file__).resolve().parents[3] / "runtime/checkpoints/nano"


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(CHECKPOINT)


def pieces(
    tokenizer: TextTokenizer, text: str, width: int, thinking: bool = False, stops: tuple[str, ...] = ()
) -> list[Piece]:
    """`text` as a model would have said it, `width` tokens a round."""
    ids = tokenizer.encode(text)
    transcript = Transcript(tokenizer, stops, Markers.of(tokenizer), thinking)
    found = []
    for first in range(0, len(ids), width):
        reason = "stop" if first + width >= len(ids) else None
        found.append(transcript.push(Step("spec", tuple(ids[first : first + width]), finish_reason=reason)))
        if found[-1].finish_reason:
            break
    return found


@pytest.mark.parametrize("width", [1, 2, 3, 8])
@pytest.mark.parametrize("text", ["plain words", "Grüße, 東京 and 🦦🦦!", "a\n\n  b\t", "x" * 40])
def test_text_comes_back_whole_and_never_in_half_characters(tokenizer: TextTokenizer, text: str, width: int) -> None:
    said = pieces(tokenizer, text, width)
    assert "".join(piece.content for piece in said) == text
    assert "\ufffd" not in "".join(piece.content for piece in said)


def test_an_unfinished_character_is_shown_at_the_end(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("🦦")[:-1]
    piece = Transcript(tokenizer).push(Step("spec", tuple(ids), finish_reason="length"))
    assert piece.content == "\ufffd"


@pytest.mark.parametrize("width", [1, 2, 8])
def test_channels(tokenizer: TextTokenizer, width: int) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": [1, "}"]}}\n</tool_call>'
    said = pieces(tokenizer, f"I may write <tool_call> here.</think>Well.{call}{call}", width, thinking=True)
    assert "".join(piece.reasoning for piece in said) == "I may write <tool_call> here."
    assert "".join(piece.content for piece in said) == "Well."
    parser = CallParser()
    deltas = [delta for piece in said for delta in parser.push(piece.tool_text)]
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in parser.whole()] == [
        ("f", '{"a": [1, "}"]}')
    ] * 2
    streamed = {0: "", 1: ""}
    for delta in deltas:
        streamed[delta["index"]] += delta["function"]["arguments"]
    assert streamed == {0: '{"a": [1, "}"]}', 1: '{"a": [1, "}"]}'}
    assert [delta["index"] for delta in deltas if "id" in delta] == [0, 1]


UNREADABLE = [f'{{"name": "{name}", "arguments": {{}}}}' for name in (r"\q", "a\nb", r"\ud800")]


@pytest.mark.parametrize("text", ["", "{}", '{"name": "f"}', '{"arguments": {}}', "words", *UNREADABLE])
def test_what_is_no_call_makes_none(text: str) -> None:
    parser = CallParser()
    assert parser.push([(0, text)]) == [] and parser.whole() == [] and parser.num_calls == 0


def test_arguments_that_nest_beyond_what_is_read_are_handed_on_as_they_are() -> None:
    parser, deep = CallParser(), "[" * 5000
    parser.push([(0, '{"name": "f", "arguments": ' + deep)])
    assert parser.whole()[0]["function"]["arguments"] == deep


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_stop_string_is_found_across_pieces(cut: int) -> None:
    text = "one two STOP three"
    search = StopSearch(("STOP", "two STOPS"))
    given = search.push(text[:cut]) + search.push(text[cut:]) + search.flush()
    assert given == "one two " and search.found


def test_text_is_held_back_no_longer_than_needed() -> None:
    search = StopSearch(("aab",))
    assert [search.push(letter) for letter in "aaac"] == ["", "", "a", "aac"]
    assert not search.found


def test_a_round_is_cut_behind_the_token_that_completes_the_stop(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("The answer is 42 and more.")
    stopped = pieces(tokenizer, "The answer is 42 and more.", len(ids), stops=("42",))
    (piece,) = stopped
    assert piece.content == "The answer is " and piece.finish_reason == "stop"
    assert tokenizer.decode(piece.step.token_ids).endswith("42")


def test_rounds_keep_their_order(tokenizer: TextTokenizer) -> None:
    said = pieces(tokenizer, "1 2 3 4 5 6", 2)
    assert all(piece.finish_reason is None for piece, _ in pairwise(said)) and said[-1].finish_reason == "stop"
