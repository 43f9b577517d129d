"""The growing answer of one request: token ids to text, channel by channel, up to the end or a stop string.

A token is read whole: markers of reasoning and of tool calls are single tokens of the vocabulary, so no text is ever
searched for them. Knows neither HTTP nor the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from runtime.text.generation import Step
from runtime.text.tokenizer import TextTokenizer
from runtime.text.tools import CLOSE, OPEN, CallReader, Delta


@dataclass(frozen=True)
class Piece:
    """What one step adds; `calls` are deltas of tool calls. `step` is cut behind the token that completes a stop."""

    step: Step
    content: str = ""
    reasoning: str = ""
    calls: tuple[Delta, ...] = ()
    finish_reason: str | None = None


@dataclass(frozen=True)
class Markers:
    """Ids of the channel markers; None where the vocabulary lacks one."""

    think_start: int | None
    think_end: int | None
    tool_start: int | None
    tool_end: int | None

    @staticmethod
    def of(tokenizer: TextTokenizer) -> Markers:
        names = ("<think>", "</think>", OPEN, CLOSE)
        return Markers(*(tokenizer.id_of(name) for name in names))


NO_MARKERS = Markers(None, None, None, None)


@dataclass(frozen=True)
class Stops:
    """Strings that end an answer; `inclusive`: the one that was found belongs to it."""

    strings: tuple[str, ...] = ()
    inclusive: bool = False


NO_STOPS = Stops()


class StopSearch:
    """Finds the first stop string in text that arrives in pieces; keeps back what may still become one."""

    def __init__(self, stops: Stops) -> None:
        self._stops, self._inclusive = stops.strings, stops.inclusive
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        if not self._stops or self.found:
            return "" if self.found else text
        self._held += text
        places = [(start, len(stop)) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            start, length = min(places)
            return self._give(start + length * self._inclusive)
        return self._give(len(self._held) - self._longest_open())

    def flush(self) -> str:
        return "" if self.found else self._give(len(self._held))

    def _longest_open(self) -> int:
        """Length of the longest tail that begins a stop string."""
        lengths = range(min(len(self._held), max(map(len, self._stops)) - 1), 0, -1)
        return next((n for n in lengths if any(stop.startswith(self._held[-n:]) for stop in self._stops)), 0)

    def _give(self, length: int) -> str:
        given, self._held = self._held[:length], self._held[length:]
        return given


@dataclass
class _Said:
    """A piece while it grows."""

    content: str = ""
    reasoning: str = ""
    calls: list[Delta] = field(default_factory=list)


class Transcript:
    """Turns steps into pieces. `thinking`: the prompt has opened a reasoning block already."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        stops: Stops = NO_STOPS,
        markers: Markers = NO_MARKERS,
        thinking: bool = False,
        skip_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._markers = markers
        self._skip = skip_special_tokens
        self._detokenizer = tokenizer.stream(self._skip)
        self._stop = StopSearch(stops)
        self._channel = "reasoning" if thinking else "content"
        self._reader = CallReader()
        self.num_tokens = 0

    def push(self, step: Step) -> Piece:
        said, used = _Said(), 0
        for token_id in step.token_ids:
            used += 1
            self._say(token_id, said)
            if self._stop.found:
                break
        last = step.finish_reason is not None or self._stop.found
        if last:
            self._settle(said, closed=False)
            said.content += self._stop.flush()
        self.num_tokens += used
        return Piece(
            step=replace(step, token_ids=step.token_ids[:used], logprobs=step.logprobs[:used]),
            content=said.content,
            reasoning=said.reasoning,
            calls=tuple(said.calls),
            finish_reason="stop" if self._stop.found else step.finish_reason,
        )

    def _say(self, token_id: int, said: _Said) -> None:
        turn = self._turn(token_id)
        if turn is None:
            self._put(self._detokenizer.push([token_id]), said)
            return
        self._settle(said, closed=token_id == self._markers.tool_end)
        self._channel = turn

    def _turn(self, token_id: int) -> str | None:
        """The channel that this token opens, if it is a marker. Reasoning that writes of a call makes none."""
        markers = self._markers
        if self._channel == "reasoning" and token_id != markers.think_end:
            return None
        return {
            markers.think_start: "reasoning",
            markers.think_end: "content",
            markers.tool_start: "tool",
            markers.tool_end: "content",
        }.get(token_id)

    def _settle(self, said: _Said, closed: bool) -> None:
        """The channel ends here: unfinished characters are shown, and so is the text of a call that is none."""
        self._put(self._detokenizer.flush(), said)
        self._detokenizer = self._tokenizer.stream(self._skip)
        if self._channel == "tool":
            deltas, shown = self._reader.end(closed)
            said.calls += deltas
            said.content += self._stop.push(shown)

    def _put(self, text: str, said: _Said) -> None:
        if self._channel == "tool":
            said.calls += self._reader.push(text)
        elif self._channel == "content":
            said.content += self._stop.push(text)
        else:
            said.reasoning += text
