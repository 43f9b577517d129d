"""What people write round a value without changing it: type faces, labels, units, currencies, mixed numbers.

Knows no mathematics: LaTeX or plain text in, the value's LaTeX out. What is no unit stays, so that `18x`, `18 squared`
and `18 or more` are not 18.
"""

from __future__ import annotations

import re
from string import ascii_lowercase

SPACE = r"(?:\\[,;:! ]|~|\s)"
_NO_SPACE = re.compile(r"(,?)\\!\s*")
_WORD_SPACE = re.compile(r"\\[ ,;:]|~")
# type faces and colours round a part, and those that hold for the rest
_DRESSED = re.compile(
    r"\\(?:(?:textcolor|colorbox|color)\s*\{[^{}]*\}\s*|underline|uline|emph|textbf|textit|textrm|texttt|mathbf|mathit"
    r"|mathsf|mathtt|boldsymbol|bm|ensuremath)\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_DRESS = re.compile(
    r"\\color\s*\{[^{}]*\}|\\(?:[Ll]arge|LARGE|[Hh]uge|displaystyle|textstyle|bfseries|q?quad|bf)(?![a-zA-Z])"
    r"|\\pmod\s*(?:\d+|\{[^{}]*\})"
)
_TEXT = re.compile(r"\\(?:text|mbox|mathrm|textnormal)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_LABEL = re.compile(r"^\s*(?:[A-Za-z]+\s+){0,4}[A-Za-z]+\s*:(?!=)\s*(?=\S)")
_APPROXIMATELY = re.compile(
    r"^\s*(?:(?:[a-zA-Z](?:_\{?\w+\}?)?\s*)?\\(?:approx|simeq)(?![a-zA-Z])|(?:about|approximately|around|roughly)\b)"
)
_CURRENCY = r"(?:\\?\$|€|£|¥|₹|\\(?:pounds|euro|yen)(?![a-zA-Z])|(?:USD|US\\?\$|EUR|GBP|Rs\.?)(?![a-zA-Z]))"
_CURRENCY_AHEAD = re.compile(rf"(?:^|(?<=[=(,\-+\s])){SPACE}*{_CURRENCY}{SPACE}*(?=[-+\d.\\])")
# words that change the value, say less than it, or are mathematics
_NO_UNITS = (
    "hundreds? thousands? millions? billions? trillions? dozens? halves half thirds? quarters? fifths? pairs? squared "
    "cubed or and not nor than more less fewer most least over under above below plus minus times divided by to mod "
    "modulo base factorial pi tau inf infinity max gcd lcm if is are was equals undefined none impossible "
    "(?:arc)?(?:sin|cos|tan|cot|csc|log|ln|lg|exp|sqrt)[a-rt-z]?"
).replace(" ", "|")
# a product of variables: `xy` and `abc` are no words
_RUNS = "|".join(ascii_lowercase[n : n + size] for size in (3, 4, 5) for n in range(27 - size))
_SHORT = (
    "cm mm km nm kg mg ml mL cl dl dL lb lbs oz ft in yd mi hr hrs min mins sec secs ms mph kph kmh Hz kHz MHz GHz "
    "kW MW kJ Pa kPa cc gal qt cu sq am pm AM PM of th kB MB GB TB USD EUR GBP"
).replace(" ", "|")
_LETTERS = "mgshLlKNJWVACF"  # units of one letter, where a space sets them apart from a variable
_MARK = "\ue000"  # (private use) in front of a word that a text face told from variables
_POWER = rf"(?:{SPACE}*(?:\^{SPACE}*\{{?[23]\}}?|[²³]))?"
_LONG = rf"(?!(?:{_RUNS})(?![a-zA-Z]))(?=[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]*[aeiouyAEIOUY])[a-zA-Z]"
_WORD = (
    rf"(?!{_MARK}?(?:{_NO_UNITS})(?![a-zA-Z]))(?:o'clock|{_MARK}[a-zA-Z]+|(?:{_SHORT})(?![a-zA-Z])|(?<=1)st|(?<=2)nd|(?<=3)rd"
    rf"|{_LONG}{{4,}}|(?<![\d}}]){_LONG}{{3}}(?![a-zA-Z])|(?<![\d}}])[{_LETTERS}](?![a-zA-Z]))[.]?{_POWER}"
)
_LATER_WORD = rf"(?:{_WORD}|(?!(?:{_NO_UNITS})(?![a-zA-Z]))[a-zA-Z]{{2,}}|(?:squared|cubed)(?![a-zA-Z]))"
_JOINT = rf"(?:{SPACE}*(?:[/*·-]|\\cdot(?![a-zA-Z])){SPACE}*|{SPACE}+)"
_SIGN = rf"(?:\\?%|°{SPACE}*[CF]?|\^?\{{?\\(?:circ|degree)\}}?{SPACE}*[CF]?(?![a-zA-Z])|{_CURRENCY})"
_PHRASE = rf"(?:{_SIGN}|{_WORD}|\((?:{_WORD})\))(?:{_JOINT}(?:{_LATER_WORD}|{_SIGN}|\((?:{_WORD})\)))*"
_END = r"\.?\s*(?=$|[,;]|(?:and|or)(?![a-zA-Z]))"  # of the whole, or of one of several values
_UNIT = re.compile(rf"(?:(?<=[\d}})!.]){SPACE}*|(?:(?<=\\pi)|(?<=\di)){SPACE}+)(?:{_PHRASE}){_END}")
_MEANS_SOMETHING = re.compile(rf"[\d:{{\\]|(?<![a-zA-Z])(?:{_NO_UNITS}|about|approximately|around|roughly)(?![a-zA-Z])")
_THOUSANDS = re.compile(rf"(?<![\d.,])\d{{1,3}}(?:{SPACE}+\d{{3}})+(?!\d|\s*/)")
_MIXED = re.compile(rf"(?<![\d./^_{{])(\d+){SPACE}+(\d+)\s*/\s*(\d+)(?![\d.])")
_EXPONENT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d+)(?!\w)")
_REPEATING = re.compile(r"(?<![\d.])(\d*)\.(\d*)\\overline\s*\{(\d+)\}")
_POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
SCALES = "|".join(_POWERS)
_SCALED = re.compile(rf"(?<![\w.])(\d+(?:\.\d+)?){SPACE}*({SCALES})(?![a-zA-Z])")


def value_of(text: str) -> str:
    """The value alone: undressed, numbers as LaTeX writes them, without label, currency and units."""
    text = _APPROXIMATELY.sub("", _LABEL.sub("", flat(text)))
    return without_units(numbers(text)).strip()


def flat(text: str) -> str:
    """Without type faces, colours and sizes; texts round a number, or behind one, are plain words."""
    text, before = _DRESS.sub("", _NO_SPACE.sub(lambda match: match[1], text.replace("{,}", ","))), ""
    while text != before:
        before, text = text, _DRESSED.sub(r"\1", text)
    text = _DRESS.sub("", text)
    return _TEXT.sub(_as_words, text) if re.search(r"\d", text) else text


def _as_words(match: re.Match[str]) -> str:
    """Marked where it can only be a unit; what holds the number, a label or a word with a meaning is plain words."""
    words = _WORD_SPACE.sub(" ", match[1])
    if not _MEANS_SOMETHING.search(words):
        words = re.sub(r"[a-zA-Z]+", rf"{_MARK}\g<0>", words)
    return f" {words} "


def numbers(text: str) -> str:
    """Groups of digits joined, `1e-7` with a power of ten, `2 1/2` as `2\\frac{1}{2}`, `2.5 million` as digits."""
    text = joined(text)
    text = _EXPONENT.sub(r"\1\\cdot 10^{\2}", text)
    text = _REPEATING.sub(_as_fraction, _MIXED.sub(r"\1\\frac{\2}{\3}", text))
    return _SCALED.sub(lambda match: _scaled(match[1], _POWERS[match[2]]), text)


def _as_fraction(match: re.Match[str]) -> str:
    """`0.1\\overline{6}` is (16 - 1) / 90."""
    whole, fixed, repeated = match[1] or "0", match[2], match[3]
    above = int(whole + fixed + repeated) - int(whole + fixed)
    return rf"\frac{{{above}}}{{{'9' * len(repeated)}{'0' * len(fixed)}}}"


def joined(text: str) -> str:
    return _THOUSANDS.sub(lambda match: re.sub(SPACE, "", match[0]), text)


def _scaled(digits: str, power: int) -> str:
    whole, _, fraction = digits.partition(".")
    moved = whole + fraction[:power].ljust(power, "0")
    return moved + (f".{fraction[power:]}" if fraction[power:] else "")


def without_units(text: str) -> str:
    """Without the currency in front of a number and the units behind one; the last side of an equation has them."""
    return _UNIT.sub("", _CURRENCY_AHEAD.sub("", text)).replace(_MARK, "")
