"""Sentences with persons, places, companies, dates and amounts in BIO tags."""

from random import Random

from headway.data.builtin.dates import month, random_day, weekday
from headway.data.builtin.pool import Example, Generated
from headway.data.builtin.words import COMPANIES, FIRST_NAMES, LAST_NAMES, PLACES, THINGS, TWO_WORD_PLACES

SENTENCES = [
    "{PER} moved from {LOC} to {LOC} in {DATE} .",
    "On {DATE} , {ORG} paid {PER} {AMOUNT} for the {things} .",
    "{PER} and {PER} will meet in {LOC} on {DATE} .",
    "The {things} were sold to {ORG} for {AMOUNT} .",
    "{ORG} opened an office in {LOC} , said {PER} .",
    "In {LOC} the price of {things} rose by {AMOUNT} .",
    "{PER} , who was born in {LOC} , joined {ORG} on {DATE} .",
    "Since {DATE} nobody has seen the {things} of {PER} .",
    "Did {PER} really spend {AMOUNT} on {things} ?",
    "{LOC} is far from {LOC} , but {PER} likes both .",
    "{PER} may visit {LOC} if {ORG} agrees .",
    "The train to {LOC} was late and the {things} were lost .",
    "{ORG} owes {ORG} {AMOUNT} , due on {DATE} .",
    "My friend {PER} bought {things} in {LOC} .",
    "{PER} asked {PER} for {AMOUNT} in {DATE} .",
    "All {things} must reach {LOC} before {DATE} .",
]


def tag(chance: Random) -> Example:
    words: list[str] = []
    tags: list[str] = []
    for slot in chance.choice(SENTENCES).split():
        kind = slot.strip("{}")
        filled = _fill(kind, chance) if slot.startswith("{") else [slot]
        named = slot.startswith("{") and kind.isupper()
        words += filled
        tags += [f"B-{kind}", *[f"I-{kind}"] * (len(filled) - 1)] if named else ["O"]
    return " ".join(words), {"words": words, "tags": tags}


def _fill(kind: str, chance: Random) -> list[str]:
    """The words for a slot such as {PER}."""
    if kind == "PER":
        first, last = chance.choice(FIRST_NAMES), chance.choice(LAST_NAMES)
        initial = f"{chance.choice('ABCDEFG')}."
        return chance.choice([[first, last], [first], [last], ["Dr.", last], [first, initial, last]])
    if kind == "LOC":
        return chance.choice([*PLACES, *TWO_WORD_PLACES]).split()
    if kind == "ORG":
        return chance.choice(COMPANIES).split() + chance.choice([["Ltd"], ["&", "Sons"], ["Group"], ["Bank"], []])
    if kind == "AMOUNT":
        whole = chance.randint(2, 99)
        number = chance.choice([f"{whole}", f"{whole},000", f"{whole}.5"])
        currency = chance.choice(["euros", "dollars", "pounds", "yen", "percent"])
        return [number, *chance.choice([[], ["million"]]), currency]
    if kind == "DATE":
        day = random_day(chance)
        full = f"{day.day} {month(day)} {day.year}"
        return chance.choice([full, f"{month(day)} {day.year}", str(day.year), weekday(day), month(day)]).split()
    return [chance.choice(THINGS)]


ENTITIES = Generated("tag", tag, train=4_000, test=500)
