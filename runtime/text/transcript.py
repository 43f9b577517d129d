"""The growing answer of one request: token ids to text, channel by channel, up to the end or a stop string.

A token is read whole: markers of reasoning and of tool calls are single tokens of the vocabulary, so no text is ever
searched for them. Knows neither HTTP nor the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime.text.generation import Step
from runtime.text.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Piece:
    """What one step adds. `step` is cut behind the token that completes a stop string."""

    step: Step
    content: str = ""
    reasoning: str = ""
    tool_text: tuple[tuple[int, str], ...] = ()
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
        names = ("<think>", "</think>", "<tool_call>", "</tool_call>")
        return Markers(*(tokenizer.id_of(name) for name in names))


NO_MARKERS = Markers(None, None, None, None)


class StopSearch:
    """Finds the first stop string in text that arrives in pieces; keeps back what may still become one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        if not self._stops or self.found:
            return "" if self.found else text
        self._held += text
        starts = [start for stop in self._stops if (start := self._held.find(stop)) >= 0]
        if starts:
            self.found = True
            return self._give(min(starts))
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


class Transcript:
    """Turns steps into pieces. `thinking`: the prompt has opened a reasoning block already."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        stops: tuple[str, ...] = (),
        markers: Markers = NO_MARKERS,
        thinking: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._markers = markers
        self._detokenizer = tokenizer.stream()
        self._stop = StopSearch(stops)
        self._channel = "reasoning" if thinking else "content"
        self._num_calls = 0
        self.num_tokens = 0

    def push(self, step: Step) -> Piece:
        said: dict[str, str] = {"content": "", "reasoning": ""}
        calls: dict[int, str] = {}
        used = 0
        for token_id in step.token_ids:
            used += 1
            self._say(token_id, said, calls)
            if self._stop.found:
                break
        last = step.finish_reason is not None or self._stop.found
        if last:
            self._settle(said, calls)
            said["content"] += self._stop.flush()
        self.num_tokens += used
        return Piece(
            step=replace(step, token_ids=step.token_ids[:used]),
            content=said["content"],
            reasoning=said["reasoning"],
            tool_text=tuple(calls.items()),
            finish_reason="stop" if self._stop.found else step.finish_reason,
        )

    def _say(self, token_id: int, said: dict[str, str], calls: dict[int, str]) -> None:
        turn = self._turn(token_id)
        if turn is None:
            self._put(self._detokenizer.push([token_id]), said, calls)
            return
        self._settle(said, calls)
        self._channel = turn
        if turn == "tool":
            self._num_calls += 1
            calls[self._num_calls - 1] = ""

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

    def _settle(self, said: dict[str, str], calls: dict[int, str]) -> None:
        self._put(self._detokenizer.flush(), said, calls)
        self._detokenizer = self._tokenizer.stream()

    def _put(self, text: str, said: dict[str, str], calls: dict[int, str]) -> None:
        if self._channel == "tool":
            calls[self._num_calls - 1] = calls.get(self._num_calls - 1, "") + text
        elif self._channel == "content":
            said["content"] += self._stop.push(text)
        else:
            said["reasoning"] += text
