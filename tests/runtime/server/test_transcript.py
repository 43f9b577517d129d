"""Text of an answer, without a server: stop strings, channels, tool calls, unfinished characters."""

from itertools import pairwise
from pathlib import Path

import pytest

from runtime.text.generation import Step
from runtime.text.tokenizer import TextTokenizer
from runtime.text.tools import CallReader, joined
from runtime.text.transcript import Markers, Piece, Stops, StopSearch, Transcript

CHECKPOINT = Path(__file__).resolve().parents[3] / "runtime/checkpoints/nano"


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(CHECKPOINT)


def pieces(
    tokenizer: TextTokenizer, text: str, width: int, thinking: bool = False, stops: tuple[str, ...] = ()
) -> list[Piece]:
    """`text` as a model would have said it, `width` tokens a round."""
    ids = tokenizer.encode(text)
    transcript = Transcript(tokenizer, Stops(stops), Markers.of(tokenizer), thinking)
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
    deltas = [delta for piece in said for delta in piece.calls]
    assert calls_of(said) == [("f", '{"a": [1, "}"]}')] * 2
    streamed = {0: "", 1: ""}
    for delta in deltas:
        streamed[delta["index"]] += delta["function"]["arguments"]
    assert streamed == {0: '{"a": [1, "}"]}', 1: '{"a": [1, "}"]}'}
    assert [delta["index"] for delta in deltas if "id" in delta] == [0, 1]


def calls_of(said: list[Piece]) -> list[tuple[str, str]]:
    whole = joined(delta for piece in said for delta in piece.calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in whole]


OTHER_SPELLINGS = {
    "arguments-first": '{"arguments": {"a": 1}, "name": "f"}',
    "parameters": '{"name": "f", "parameters": {"a": 1}}',
    "parameters-first": '{"parameters": {"a": 1}, "name": "f"}',
    "id-in-front": '{"id": "7", "name": "f", "arguments": {"a": 1}}',
    "arguments-in-a-string": '{"name": "f", "arguments": "{\\"a\\": 1}"}',
    "more-behind": '{"name": "f", "arguments": {"a": 1}, "id": "7"}',
}


@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("spelling", OTHER_SPELLINGS)
def test_calls_in_other_spellings_are_calls(tokenizer: TextTokenizer, spelling: str, width: int) -> None:
    said = pieces(tokenizer, f"Well.<tool_call>\n{OTHER_SPELLINGS[spelling]}\n</tool_call> Done.", width)
    assert calls_of(said) == [("f", '{"a": 1}')]
    assert "".join(piece.content for piece in said) == "Well. Done."


UNREADABLE = [f'{{"name": "{name}", "arguments": {{}}}}' for name in (r"\q", "a\nb", r"\ud800")]
NO_CALLS = ("", "{}", '{"name": "f"}', '{"name": "", "arguments": {}}', '{"name": "f", "arguments": [1]}', "[" * 5000)


@pytest.mark.parametrize("closing", ["</tool_call>", ""])
@pytest.mark.parametrize("width", [1, 7])
@pytest.mark.parametrize("text", [*NO_CALLS, '{"arguments": {}}', '{"name": "f", "argu', "words", *UNREADABLE])
def test_what_is_no_call_is_shown(tokenizer: TextTokenizer, text: str, width: int, closing: str) -> None:
    said = pieces(tokenizer, f"<tool_call>{text}{closing}", width)
    assert calls_of(said) == []
    assert "".join(piece.content for piece in said) == f"<tool_call>{text}{closing}"


def test_calls_are_numbered_without_those_that_are_none(tokenizer: TextTokenizer) -> None:
    calls = ["no", '{"name": "f", "arguments": {}}', '{"arguments": {}, "name": "g"}']
    said = pieces(tokenizer, "".join(f"<tool_call>{call}</tool_call>" for call in calls), 3)
    assert [delta["index"] for piece in said for delta in piece.calls if "id" in delta] == [0, 1]
    assert [name for name, _ in calls_of(said)] == ["f", "g"]


def test_arguments_that_nest_beyond_what_is_read_are_handed_on_as_they_are() -> None:
    reader, deep = CallReader(), '{"a": ' + "[" * 5000
    deltas = reader.push('{"name": "f", "arguments": ' + deep)
    assert joined(deltas)[0]["function"]["arguments"] == deep and reader.end(closed=False) == ([], "")


def test_half_characters_in_arguments_that_had_to_be_written_anew() -> None:
    deltas, shown = end_of(r'{"arguments": {"a": "\ud800"}, "name": "f"}')
    assert shown == "" and joined(deltas)[0]["function"]["arguments"] == r'{"a": "\ud800"}'


def end_of(text: str) -> tuple[list[dict[str, object]], str]:
    reader = CallReader()
    assert reader.push(text) == []
    return reader.end(closed=True)


def test_a_stop_string_belongs_to_the_answer_where_it_is_asked_for() -> None:
    search = StopSearch(Stops(("two STOP", "STOP"), inclusive=True))
    assert search.push("one two ST") + search.push("OP three") == "one two STOP" and search.found


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_stop_string_is_found_across_pieces(cut: int) -> None:
    text = "one two STOP three"
    search = StopSearch(Stops(("STOP", "two STOPS")))
    given = search.push(text[:cut]) + search.push(text[cut:]) + search.flush()
    assert given == "one two " and search.found


def test_text_is_held_back_no_longer_than_needed() -> None:
    search = StopSearch(Stops(("aab",)))
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
