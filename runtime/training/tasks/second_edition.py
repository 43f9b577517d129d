# ruff: noqa: E501 -- wordings stay on one line
"""Further wordings of mathematics tasks and records: those of the first edition taught a wording, not what it asks.

They come behind the first edition's, so that what it held out stays held out. Knows no checks and no numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MATHEMATICS: Mapping[str, Sequence[str]] = {
    "linear": ("If ${a}x + {b} = {c}$, then what is the value of $x$?", "The equation ${a}x + {b} = {c}$ has one solution. What is it?", "Adding {b} to {a} times a number gives {c}. What is the number?", "Determine $x$ from ${a}x + {b} = {c}$.", "For which $x$ is ${a}x + {b}$ equal to {c}?"),
    "linear-minus": ("If ${a}x - {b} = {c}$, then what is the value of $x$?", "The equation ${a}x - {b} = {c}$ has one solution. What is it?", "Taking {b} from {a} times a number leaves {c}. What is the number?", "Determine $x$ from ${a}x - {b} = {c}$.", "For which $x$ is ${a}x - {b}$ equal to {c}?"),
    "two-sided": ("What value of $x$ makes ${a}x + {b}$ and ${c}x + {d}$ equal?", "If ${a}x + {b} = {c}x + {d}$, what is $x$?", "Determine $x$ from ${a}x + {b} = {c}x + {d}$.", "For what $x$ does ${a}x + {b} = {c}x + {d}$ hold?", "The equation ${a}x + {b} = {c}x + {d}$ has one solution. What is it?"),
    "powers": ("Find ${a}^{m} {sign} {b}^{n}$.", "Calculate ${a}^{m} {sign} {b}^{n}$.", "What does ${a}^{m} {sign} {b}^{n}$ equal?", "Work out the value of ${a}^{m} {sign} {b}^{n}$.", "Give ${a}^{m} {sign} {b}^{n}$ as an integer."),
    "sum-to": ("What is the sum of the first {n} positive integers?", "Add up all integers from 1 to {n}.", "What do the numbers $1, 2, \\ldots, {n}$ add up to?", "Evaluate $1 + 2 + \\cdots + {n}$.", "Find $\\sum_{{k=1}}^{{{n}}} k$."),
    "sequence": ("What is the {n}th term of the arithmetic sequence {a}, {b}, {c}, \\ldots?", "In the arithmetic sequence {a}, {b}, {c}, what is term {n}?", "An arithmetic sequence has the first terms {a}, {b}, {c}. Find term number {n}.", "The numbers {a}, {b}, {c} begin an arithmetic sequence. Which number stands at place {n}?", "Continue {a}, {b}, {c} with equal steps. What is the {n}th number?"),
    "simplify": ("Express $\\frac{{{p}}}{{{q}}}$ in simplest form.", "What is $\\frac{{{p}}}{{{q}}}$ in lowest terms?", "Write $\\frac{{{p}}}{{{q}}}$ as a reduced fraction.", "Cancel $\\frac{{{p}}}{{{q}}}$ as far as possible.", "Bring $\\frac{{{p}}}{{{q}}}$ to lowest terms."),
    "add-fractions": ("Find $\\frac{{{a}}}{{{b}}} + \\frac{{{c}}}{{{d}}}$.", "Evaluate $\\frac{{{a}}}{{{b}}} + \\frac{{{c}}}{{{d}}}$.", "Add $\\frac{{{a}}}{{{b}}}$ and $\\frac{{{c}}}{{{d}}}$. Give a fraction in lowest terms.", "What is the sum of $\\frac{{{a}}}{{{b}}}$ and $\\frac{{{c}}}{{{d}}}$?", "Write $\\frac{{{a}}}{{{b}}} + \\frac{{{c}}}{{{d}}}$ as one fraction."),
    "quadratic": ("The equation $x^2 - {p}x + {q} = 0$ has two solutions. What is the {which} one?", "Solve $x^2 - {p}x + {q} = 0$ and give the {which} root.", "What is the {which} value of $x$ with $x^2 - {p}x + {q} = 0$?", "Which is the {which} zero of $x^2 - {p}x + {q}$?", "If $x^2 - {p}x + {q} = 0$, find the {which} possible value of $x$."),
    "gcd": ("Find the largest integer that divides both {a} and {b}.", "What is the largest common factor of {a} and {b}?", "Calculate the greatest common divisor of {a} and {b}.", "What is $\\gcd({a}, {b})$?", "Which is the greatest number that divides {a} as well as {b}?"),
    "lcm": ("Compute the least common multiple of {a} and {b}.", "What is the smallest positive integer divisible by both {a} and {b}?", "Find the smallest common multiple of {a} and {b}.", "What is $\\text{{lcm}}({a}, {b})$?", "Which is the least positive number that both {a} and {b} divide?"),
    "remainder": ("Divide {a} by {b}. What is the remainder?", "What remains when {a} is divided by {b}?", "Compute {a} modulo {b}.", "What is ${a} \\bmod {b}$?", "When {a} is divided by {b}, what is left over?"),
    "power-remainder": ("Divide ${a}^{n}$ by {m}. What is the remainder?", "What is ${a}^{n} \\bmod {m}$?", "Compute ${a}^{n}$ modulo {m}.", "When ${a}^{n}$ is divided by {m}, what is left over?", "Find the remainder when ${a}^{n}$ is divided by {m}."),
    "divisors": ("How many positive integers divide {n}?", "Determine the number of positive divisors of {n}.", "Count the positive divisors of {n}.", "How many positive factors does {n} have?", "By how many positive integers can {n} be divided without remainder?"),
    "orders": ("How many ways are there to arrange {n} different books on a shelf?", "In how many orders can {n} children line up?", "Find the number of ways to order {n} different cards.", "{n} people stand in a row. How many arrangements are there?", "How many permutations do {n} different objects have?"),
    "choose": ("In how many ways can 2 of {n} people be chosen?", "How many pairs can be made from {n} people?", "How many different pairs are there among {n} players?", "From {n} books you take 2. How many choices are there?", "Find the number of ways to select 2 out of {n} cards.", "How many handshakes are there if each of {n} people shakes hands with every other once?"),
    "die": ("What is the probability that a fair die shows a number {side} {k}?", "One fair die is thrown. How likely is a number {side} {k}? Give a fraction.", "If a fair die is rolled, what is the chance of a number {side} {k}?", "Find the probability of rolling a number {side} {k} with one fair die.", "A fair six-sided die is rolled. What is the probability that the number is {side} {k}?"),
    "urn": ("A box has {a} white and {b} black balls. What is the probability that a ball drawn at random is white?", "One ball is drawn from a bag of {a} red and {b} blue balls. What is the probability of red?", "There are {a} white and {b} black balls in a bag. How likely is it to draw a white one?", "From {a} green and {b} yellow balls one is taken at random. Find the probability that it is green.", "An urn holds {a} red balls and {b} white balls. What is the chance that a random ball is red?"),
    "rectangle": ("What is the area of a rectangle with sides {a} and {b}?", "A rectangle is {a} long and {b} wide. Find its area.", "The sides of a rectangle are {a} and {b}. Compute the area.", "How large is the area of a rectangle that measures {a} by {b}?", "Find the area of a {a} by {b} rectangle."),
    "perimeter": ("What is the perimeter of a rectangle with sides {a} and {b}?", "A rectangle is {a} long and {b} wide. Find its perimeter.", "The sides of a rectangle are {a} and {b}. Compute the perimeter.", "How long is the way round a rectangle that measures {a} by {b}?", "Find the perimeter of a {a} by {b} rectangle."),
    "triangle": ("What is the area of a triangle with base {a} and height {b}?", "The base of a triangle is {a} and its height is {b}. Find the area.", "Compute the area of a triangle whose base is {a} and whose height is {b}.", "How large is a triangle of base {a} and height {b}?"),
    "hypotenuse": ("The legs of a right triangle are {a} and {b}. Find the hypotenuse.", "What is the length of the hypotenuse of a right triangle with legs {a} and {b}?", "A right triangle has legs of length {a} and {b}. What is its longest side?", "How long is the longest side of a right triangle whose other sides are {a} and {b}?"),
    "angle": ("A triangle has two angles of {a} and {b} degrees. How many degrees is the third?", "Two angles of a triangle are {a} and {b} degrees. Find the third one in degrees.", "What is the third angle of a triangle whose other angles are {a} and {b} degrees?", "In a triangle, one angle is {a} degrees and another is {b} degrees. What is the last one?"),
    "percent": ("How much is {p} percent of {n}?", "What number is {p}% of {n}?", "Calculate {p} percent of {n}.", "What is ${p}\\%$ of {n}?", "Determine {p}% of {n}."),
    "mean": ("Find the mean of {numbers}.", "What is the average of {numbers}?", "Compute the arithmetic mean of {numbers}.", "The numbers are {numbers}. What is their mean?", "Calculate the average of {numbers}."),
    "function": ("Given $f(x) = {lead}x^2 + {b}$, compute $f({x})$.", "What is $f({x})$ if $f(x) = {lead}x^2 + {b}$?", "For the function $f(x) = {lead}x^2 + {b}$, find $f({x})$.", "Evaluate $f(x) = {lead}x^2 + {b}$ at $x = {x}$.", "The function is $f(x) = {lead}x^2 + {b}$. Which value does it take at {x}?"),
    "slope": ("Find the slope of the line through the points $({x}, {y})$ and $({u}, {v})$.", "What is the slope of the line that passes through $({x}, {y})$ and $({u}, {v})$?", "Compute the slope between $({x}, {y})$ and $({u}, {v})$.", "The points $({x}, {y})$ and $({u}, {v})$ lie on a line. What is its slope?"),
    "system": ("Solve $x + y = {s}$ and $x - y = {d}$ for $x$.", "The sum of $x$ and $y$ is {s} and $x - y = {d}$. Find $x$.", "Two numbers have the sum {s} and the difference {d}. What is the larger one?", "What is $x$, if $x + y = {s}$ and $x - y = {d}$?", "Determine $x$ from $x + y = {s}$ and $x - y = {d}$."),
    "binary": ("What number is ${digits}_2$ in base 10?", "Convert ${digits}_2$ to base 10.", "Express the binary number ${digits}_2$ in decimal.", "Which decimal number is written ${digits}_2$ in base 2?", "Find the value of ${digits}_2$ in base 10."),
    "root": ("Find $\\sqrt{{{a}}} + \\sqrt{{{b}}}$.", "Evaluate $\\sqrt{{{a}}} + \\sqrt{{{b}}}$.", "Calculate $\\sqrt{{{a}}} + \\sqrt{{{b}}}$.", "What does $\\sqrt{{{a}}} + \\sqrt{{{b}}}$ equal?", "Add the square roots of {a} and {b}."),
}  # fmt: skip
# A record's fields to further sentences that state them.
SENTENCES: Mapping[tuple[str, ...], Sequence[str]] = {
    ("name", "age"): ("{name} is {age}.", "The age of {name} is {age} years.", "At {age}, {name} is here.", "Here is {name}, who is {age} years old."),
    ("name", "job", "city"): ("{name} is a {job} from {city}.", "The {job} {name} lives in {city}.", "{city} is where {name} works as a {job}.", "{name}, a {job}, lives in {city}."),
    ("name", "age", "city"): ("{name} lives in {city} and is {age} years old.", "From {city} comes {name}, aged {age}.", "{name} ({age}) lives in {city}.", "{name} is {age} years old and lives in {city}."),
    ("customer", "item", "count"): ("{count} of the item {item} for {customer}.", "{customer} would like {count} of the item {item}.", "Please send {customer} {count} of the item {item}.", "The item {item}, {count} times, goes to {customer}."),
    ("customer", "item", "colour", "count", "delivery"): ("On {delivery} {customer} gets {count} {colour} {item}s.", "{customer} wants {count} {colour} {item}s by {delivery}.", "Deliver {count} {colour} {item}s to {customer} on {delivery}."),
    ("name", "day", "time"): ("On {day} at {time} {name} has a meeting.", "A meeting with {name}: {day}, {time}.", "{name} comes on {day} at {time}.", "Meet {name} on {day} at {time}."),
    ("title", "author", "year"): ("{author} wrote {title} in {year}.", "{title} by {author} came out in {year}.", "The author of {title}, from {year}, is {author}."),
    ("title", "pages"): ("There are {pages} pages in {title}.", "{title} runs to {pages} pages.", "A book of {pages} pages is called {title}."),
    ("name", "to", "date"): ("{name} flies to {to} on {date}.", "The trip of {name} to {to} begins on {date}.", "{date} is the day when {name} leaves for {to}."),
    ("item", "colour", "price"): ("For {price} dollars there is a {colour} {item}.", "The price of a {colour} {item} is {price} dollars.", "One {colour} {item}: {price} dollars."),
}  # fmt: skip
OBJECT_WORDINGS = (
    "Give {keys} as one JSON object. {sentence}",
    "{sentence} Answer in JSON with the keys {keys}.",
    "Read {keys} from the text and answer with a JSON object. {sentence}",
    "Which {keys} does this text state? Answer with JSON alone: {sentence}",
)
SCHEMA_WORDINGS = (
    "{sentence} Write this {word} as JSON.",
    "Put this {word} into JSON: {sentence}",
    "Make a JSON document of this {word}. {sentence}",
)
REQUESTS: Mapping[str, Sequence[str]] = {
    "set_heating": ("I want {degrees} degrees in the {room}.", "Make it {degrees} degrees in the {room}, please.", "The {room} should have {degrees} degrees."),
    "get_forecast": ("What is the weather in {city}?", "How will the weather be in {city}?", "Give me the forecast for {city}."),
    "book_train": ("On {date} I go to {to} by train. Book it.", "Please book the train to {to} for {date}.", "Get me a train ticket to {to} on {date}."),
    "start_timer": ("Set a timer for {minutes} minutes.", "Tell me when {minutes} minutes are over.", "I need a timer of {minutes} minutes."),
    "send_money": ("{name} gets {amount} dollars from me.", "Please pay {name} {amount} dollars.", "Pay {amount} dollars to {name}."),
    "dim_lights": ("Set the lights in the {room} to {percent} percent.", "I want {percent} percent of light in the {room}.", "Make the {room} {percent} percent bright."),
    "order_item": ("Please order the item {item}, {count} pieces.", "I need {count} of the item {item}.", "Buy {count} of the item {item} for me."),
    "find_book": ("I look for the book {title}.", "Search for {title}.", "Is there a book called {title}?"),
    "add_event": ("I am busy on {day} at {time}; note it.", "Note an event for {day}, {time}.", "On {day} at {time} there is an event. Add it."),
    "local_time": ("How late is it in {city}?", "Which time is it now in {city}?", "I need the local time of {city}."),
}  # fmt: skip
