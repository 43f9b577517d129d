"""The words that exercises are filled with: people, places, things, and invented ones that can only be copied.

Lists are long and some draws are invented, so that a model cannot guess a name and has to look it up in its prompt.
"""

from __future__ import annotations

import random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words("""
    Ada Alma Amir Anna Anton Arne Bea Ben Berta Bo Bruno Carl Cleo Clara Dana David Dora Edda Elsa Emil Emma Enno Erik
    Eva Fay Felix Finn Fred Gina Greta Gus Hana Hans Hedda Hugo Ida Igor Ilse Ines Ivan Jan Jim Jonas Josef Juna Kai
    Karla Kim Klara Kurt Lars Lea Lena Leo Lily Lotte Luis Lynn Mara Maria Marta Max Mia Milo Mina Nadia Nell Nils Nina
    Noah Nora Olaf Olga Omar Oskar Otto Paul Pia Peter Petra Quinn Rafi Rita Robin Rosa Rudi Ruth Sam Sara Sefa Simon
    Sofia Sven Tara Theo Tilda Tim Tom Toni Uma Ute Vera Viktor Viola Walt Wanda Yara Yusuf Zoe
""")
CITIES = _words("""
    Athens Bergen Berlin Bern Bogota Boston Bremen Cairo Cork Dakar Delhi Dublin Geneva Ghent Hanoi Kyoto Lagos Lima
    Lisbon London Lyon Madrid Malmo Milan Nairobi Oslo Paris Porto Prague Quito Riga Rome Seoul Sofia Tallinn Tampere
    Tokyo Turin Vienna Warsaw Zagreb
""")
THINGS = _words("""
    apples balls beads bells berries books bottles boxes bricks buttons cakes candies candles cards chairs coins
    cookies cups eggs feathers flags flowers forks glasses keys kites lamps leaves lemons letters marbles melons mugs
    nails nuts oranges papers pears pencils pens pins plates plums postcards ribbons rings rolls ropes seeds shells
    spoons stamps stars stickers stones tickets toys trees tulips
""")
HOLDERS = _words("bags baskets boxes buckets cases crates cups drawers jars packs piles rows shelves stacks trays")

_FIRST = _words("b d f g h j k l m n p r s t v z br dr kr pl st tr")
_VOWELS = _words("a e i o u")
_LAST = _words("l m n r s t x nd rk")
_INVENTED_PERCENT = 15


def invented(rng: random.Random) -> str:
    """A word of two syllables that no list holds."""
    return "".join(map(rng.choice, (_FIRST, _VOWELS, _FIRST, _VOWELS, _LAST)))


def name(rng: random.Random) -> str:
    return _or_invented(rng, NAMES)


def city(rng: random.Random) -> str:
    return _or_invented(rng, CITIES)


def _or_invented(rng: random.Random, words: tuple[str, ...]) -> str:
    return invented(rng).capitalize() if rng.randrange(100) < _INVENTED_PERCENT else rng.choice(words)
