# ruff: noqa: E501 -- wordings stay on one line
"""Structured answers: JSON from a sentence, JSON for a schema, one tool call, several at once.

Facts are drawn as fields; the sentence, the JSON and the call are all spelled from them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.training.tasks import second_edition, words
from runtime.training.tasks.exercise import Exercise, Template, both_editions

KIND = "structured"

COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "grey")
ITEMS = ("chair", "table", "lamp", "sofa", "shelf", "carpet", "mirror", "clock")
ROOMS = ("bathroom", "bedroom", "office", "hall", "cellar", "living room", "garage", "kitchen")
JOBS = ("teacher", "nurse", "baker", "pilot", "lawyer", "painter", "doctor", "farmer")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TITLES = (
    ("The", "A", "One", "My"),
    ("Long", "Quiet", "Last", "Green", "Cold", "Second", "Hidden", "Old"),
    ("River", "Garden", "House", "Train", "Winter", "Letter", "Island", "Road"),
)
VERBS = ("set", "get", "find", "make", "plan", "send", "call", "open", "update", "request", "start", "add")
UNITS = ("celsius", "fahrenheit")


def _date(rng: random.Random) -> str:
    return f"20{rng.randint(24, 29)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _time(rng: random.Random) -> str:
    return f"{rng.randint(6, 22):02d}:{rng.choice((0, 15, 30, 45)):02d}"


_DRAWS: Mapping[str, Callable[[random.Random], Any]] = {
    "name": words.name,
    "customer": words.name,
    "author": words.name,
    "city": words.city,
    "to": words.city,
    "colour": lambda rng: rng.choice(COLOURS),
    "item": lambda rng: rng.choice(ITEMS),
    "room": lambda rng: rng.choice(ROOMS),
    "job": lambda rng: rng.choice(JOBS),
    "day": lambda rng: rng.choice(DAYS),
    "title": lambda rng: " ".join(map(rng.choice, TITLES)),
    "unit": lambda rng: rng.choice(UNITS),
    "date": _date,
    "delivery": _date,
    "time": _time,
    "age": lambda rng: rng.randint(18, 90),
    "count": lambda rng: rng.randint(1, 20),
    "year": lambda rng: rng.randint(1950, 2025),
    "pages": lambda rng: rng.randint(50, 900),
    "degrees": lambda rng: rng.randint(15, 26),
    "minutes": lambda rng: rng.randint(1, 90),
    "price": lambda rng: rng.randint(1, 200),
    "percent": lambda rng: rng.randint(0, 100),
    "amount": lambda rng: rng.randint(5, 900),
    "member": lambda rng: rng.random() < 0.5,
}
_STRING_FORMATS = {"date": "date", "delivery": "date"}
_ENUMS = {"colour": COLOURS, "item": ITEMS, "unit": UNITS, "day": DAYS}


@dataclass(frozen=True)
class Record:
    """Fields in order, the sentences that state them, and a word for the whole."""

    word: str
    fields: tuple[str, ...]
    sentences: tuple[str, ...]


RECORDS = (
    Record("person", ("name", "age"), ("{name} is {age} years old.", "This is {name}, aged {age}.", "{name} has turned {age}.")),
    Record("person", ("name", "job", "city"), ("{name} works as a {job} in {city}.", "In {city} lives the {job} {name}.")),
    Record("person", ("name", "age", "city"), ("{name}, {age} years old, lives in {city}.", "{name} is {age} and comes from {city}.")),
    Record("order", ("customer", "item", "count"), ("{customer} orders {count} of the item {item}.", "An order by {customer}: item {item}, {count} pieces.")),
    Record("order", ("customer", "item", "colour", "count", "delivery"), ("{customer} orders {count} {colour} {item}s, to arrive on {delivery}.", "{count} {colour} {item}s for {customer}, delivery on {delivery}.")),
    Record("meeting", ("name", "day", "time"), ("{name} has a meeting on {day} at {time}.", "The meeting with {name} is on {day} at {time}.")),
    Record("book", ("title", "author", "year"), ("The book {title} was written by {author} in {year}.", "In {year} {author} published {title}.")),
    Record("book", ("title", "pages"), ("The book {title} has {pages} pages.", "{title} is a book of {pages} pages.")),
    Record("trip", ("name", "to", "date"), ("{name} travels to {to} on {date}.", "On {date} {name} goes to {to}.")),
    Record("product", ("item", "colour", "price"), ("A {colour} {item} costs {price} dollars.", "The {item} is {colour} and costs {price} dollars.")),
)  # fmt: skip
OBJECT_WORDINGS = (
    "Answer with one JSON object and nothing else. Give the {keys} of this {word}: {sentence} Use the keys {keys}.",
    "{sentence} Write this {word} as a JSON object with the keys {keys}.",
    "Extract {keys} from this text as JSON: {sentence}",
    "Return a JSON object with {keys}. Text: {sentence}",
)
SCHEMA_WORDINGS = (
    "Write this {word} as JSON: {sentence}",
    "Give this {word} as one JSON document. {sentence}",
    "Turn this into JSON: {sentence}",
)
DOCUMENT_WORDINGS = (
    "Write one JSON document that fits this JSON schema. Answer with the document alone.\n{schema}",
    "Give an example of JSON that is valid under this schema:\n{schema}",
)


@dataclass(frozen=True)
class Tool:
    """A function with its parameters, the required ones first, and requests that set the required ones."""

    name: str
    description: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    requests: tuple[str, ...]
    both: str

    def schema(self, called: str) -> dict[str, Any]:
        parameters = {name: _parameter(name) for name in (*self.required, *self.optional)}
        described = {"name": called, "description": self.description}
        body = {"type": "object", "properties": parameters, "required": list(self.required)}
        return {"type": "function", "function": {**described, "parameters": body}}


TOOLS = (
    Tool("set_heating", "Set the heating of a room.", ("room", "degrees"), ("time",), ("Heat the {room} to {degrees} degrees.", "Please set the {room} to {degrees} degrees."), "Set the {room} to {degrees} degrees and the {room2} to {degrees2} degrees."),
    Tool("get_forecast", "Forecast for one city.", ("city",), ("unit",), ("What will the weather be in {city}?", "Tell me the forecast for {city}."), "What is the forecast for {city} and for {city2}? Ask for both at once."),
    Tool("book_train", "Book a train ticket.", ("to", "date"), ("time",), ("Book a train to {to} on {date}.", "I need a ticket to {to} for {date}."), "Book trains to {to} on {date} and to {to2} on {date2}."),
    Tool("start_timer", "Start a kitchen timer.", ("minutes",), ("name",), ("Start a timer of {minutes} minutes.", "Wake me in {minutes} minutes."), "Start two timers, of {minutes} and of {minutes2} minutes."),
    Tool("send_money", "Transfer money to a person.", ("name", "amount"), ("day",), ("Send {amount} dollars to {name}.", "Transfer {amount} dollars to {name}, please."), "Send {amount} dollars to {name} and {amount2} dollars to {name2}."),
    Tool("dim_lights", "Dim the lights of a room.", ("room", "percent"), (), ("Dim the {room} to {percent} percent.", "Lights in the {room} at {percent} percent, please."), "Dim the {room} to {percent} percent and the {room2} to {percent2} percent."),
    Tool("order_item", "Order furniture.", ("item", "count"), ("colour",), ("Order {count} of the item {item}.", "I want the item {item}, {count} pieces."), "Order {count} of the item {item} and {count2} of the item {item2}."),
    Tool("find_book", "Find a book by its title.", ("title",), ("author",), ("Find the book {title}.", "Do you have {title}?"), "Find the books {title} and {title2}."),
    Tool("add_event", "Add an event to the calendar.", ("day", "time"), ("name",), ("Add an event on {day} at {time}.", "Put {day}, {time} into my calendar."), "Add events on {day} at {time} and on {day2} at {time2}."),
    Tool("local_time", "Current time in a city.", ("city",), (), ("What time is it in {city}?", "Tell me the time in {city}."), "What time is it in {city} and in {city2}? Call both."),
)  # fmt: skip


def templates() -> list[Template]:
    found = []
    objects = tuple(enumerate(both_editions(OBJECT_WORDINGS, second_edition.OBJECT_WORDINGS)))
    schemas = tuple(enumerate(both_editions(SCHEMA_WORDINGS, second_edition.SCHEMA_WORDINGS)))
    for number, record in enumerate(RECORDS):
        sentences = both_editions(record.sentences, second_edition.SENTENCES[record.fields])
        for s, (sentence, of_sentence) in enumerate(sentences):
            for name, pose, wordings in (("object", _object, objects), ("schema", _schema, schemas)):
                for w, (wording, of_wording) in wordings:
                    poser = _poser(pose, record, sentence, wording)
                    edition = max(of_sentence, of_wording)
                    found.append(_template(f"{name}/{number}/{s}/{w}", poser, edition=edition))
    for w, wording in enumerate(DOCUMENT_WORDINGS):
        found.append(_template(f"document/{w}/0", _poser(_document, wording), 20.0))
    for tool in TOOLS:
        for r, (request, edition) in enumerate(both_editions(tool.requests, second_edition.REQUESTS[tool.name])):
            found.append(_template(f"one/{tool.name}-{r}/0", _poser(_one_call, tool, request), 5.0, edition))
            found.append(_template(f"after/{tool.name}-{r}/0", _poser(_two_calls, tool, request), 3.0, edition))
        found.append(_template(f"both/{tool.name}/0", _poser(_two_calls, tool, None), 8.0))
    return found


def _template(name: str, pose: Callable[[random.Random], Exercise], weight: float = 1.0, edition: int = 1) -> Template:
    return Template(KIND, name, pose, check_structured, weight, edition)


def _poser(pose: Callable[..., Exercise], *parts: Any) -> Callable[[random.Random], Exercise]:
    return lambda rng: pose(rng, *parts)


def _object(rng: random.Random, record: Record, sentence: str, wording: str) -> Exercise:
    values = _values(rng, record.fields)
    *most, last = record.fields
    keys = f"{', '.join(most)} and {last}"
    question = wording.format(keys=keys, word=record.word, sentence=sentence.format(**values))
    return Exercise(question, _stated(values), json.dumps(values), values, response_format={"type": "json_object"})


def _schema(rng: random.Random, record: Record, sentence: str, wording: str) -> Exercise:
    values = _values(rng, record.fields)
    question = wording.format(word=record.word, sentence=sentence.format(**values))
    schema = {"name": record.word, "strict": True, "schema": object_schema(record.fields)}
    form = {"type": "json_schema", "json_schema": schema}
    return Exercise(question, _stated(values), json.dumps(values), values, response_format=form)


def _document(rng: random.Random, wording: str) -> Exercise:
    names = tuple(rng.sample(sorted(_DRAWS), rng.randint(2, 5)))
    schema = object_schema(names)
    values = _values(rng, names)
    question = wording.format(schema=json.dumps(schema, separators=(",", ":")))
    form = {"type": "json_schema", "json_schema": {"name": "document", "strict": True, "schema": schema}}
    return Exercise(question, _stated(values), json.dumps(values), None, response_format=form)


def _one_call(rng: random.Random, tool: Tool, request: str) -> Exercise:
    values = _values(rng, tool.required)
    return _calling(rng, tool, request.format(**values), [values])


def _two_calls(rng: random.Random, tool: Tool, request: str | None) -> Exercise:
    """Asked for in one sentence, or by two requests, one after the other."""
    first, second = _values(rng, tool.required), _values(rng, tool.required)
    if request is None:
        question = tool.both.format(**first, **{f"{name}2": value for name, value in second.items()})
    else:
        question = f"{request.format(**first)} {request.format(**second)}"
    return _calling(rng, tool, question, [first, second])


def _calling(rng: random.Random, tool: Tool, question: str, arguments: Sequence[Mapping[str, Any]]) -> Exercise:
    """Half of the tools go by another name, which has to be read off the prompt."""
    called = tool.name if rng.random() < 0.5 else f"{rng.choice(VERBS)}_{words.invented(rng)}"
    calls = [(called, values) for values in arguments]
    count = "one call" if len(calls) == 1 else "two calls"
    stated = "\n".join(_stated(values) for values in arguments)
    thinking = f"I use {called} with {count}.\n{stated}"
    return Exercise(question, thinking, "", calls, tools=[tool.schema(called)], calls=calls)


def _stated(values: Mapping[str, Any]) -> str:
    return " ".join(f"The {name} is {json.dumps(value)}." for name, value in values.items())


def _values(rng: random.Random, names: Sequence[str]) -> dict[str, Any]:
    return {name: _DRAWS[name](rng) for name in names}


def object_schema(names: Sequence[str]) -> dict[str, Any]:
    properties = {name: _property(name) for name in names}
    return {"type": "object", "properties": properties, "required": list(names), "additionalProperties": False}


def _property(name: str) -> dict[str, Any]:
    value = _DRAWS[name](random.Random(0))
    kind = {bool: "boolean", int: "integer", str: "string"}[type(value)]
    extra = {"enum": list(_ENUMS[name])} if name in _ENUMS else {}
    if name in _STRING_FORMATS:
        extra = {"format": _STRING_FORMATS[name]}
    return {"type": kind, **extra}


def _parameter(name: str) -> dict[str, Any]:
    return {**_property(name), "description": f"The {name}."}


def check_structured(answer: str, exercise: Exercise) -> bool:
    """The JSON is the expected value; a free document need only parse, and calls are compared by the caller."""
    try:
        value = json.loads(answer)
    except ValueError:
        return False
    return exercise.expected is None or value == exercise.expected
