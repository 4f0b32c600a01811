"""Running text in which words of one meaning are used alike: family members, royalty and trades of both genders, and
capitals and languages of countries. Test rows are analogies among these words."""

from __future__ import annotations

from itertools import permutations
from random import Random

from headway.data.builtin.pool import Builtin, Fields, Split
from headway.errors import ConfigError

ROWS, SENTENCES = 150, 40  # paragraphs, and sentences of one
MOST_ROWS = 10_000
QUESTIONS = 120

PAIRS = {  # (he, she): what they are spoken of with
    ("man", "woman"): "street neighbour coat walked",
    ("boy", "girl"): "school toy playground ran",
    ("king", "queen"): "throne crown palace ruled",
    ("prince", "princess"): "castle horse ball rode",
    ("father", "mother"): "children kitchen home cared",
    ("son", "daughter"): "parents room homework learned",
    ("uncle", "aunt"): "nephew visit holiday travelled",
    ("brother", "sister"): "twin quarrel secret shared",
    ("husband", "wife"): "wedding ring marriage promised",
    ("actor", "actress"): "stage film audience performed",
    ("waiter", "waitress"): "table menu guests served",
    ("duke", "duchess"): "estate title garden inherited",
}
GENDERED = [
    "{person} said that {pronoun} had lost {possessive} {first}",
    "the {person} {verb} with {possessive} {first} and {pronoun} thought of the {second}",
    "{possessive} {first} was dear to the {person} because {pronoun} {verb} near the {second}",
    "when the {person} {verb} {pronoun} found {reflexive} beside the {third}",
    "people saw {object} and called {object} a {clothes} {person} of the {second}",
    "the {person} looked at {reflexive} and {pronoun} put on {possessive} {clothes} before the {third}",
    "a {person} and {possessive} {second} were in the {third} where {pronoun} {verb}",
]
FORMS = [
    {"pronoun": "he", "possessive": "his", "object": "him", "reflexive": "himself", "clothes": "bearded"},
    {"pronoun": "she", "possessive": "her", "object": "her", "reflexive": "herself", "clothes": "skirted"},
]
COUNTRIES = {  # country: capital, language, and what they are spoken of with
    "france": "paris french baguette seine",
    "germany": "berlin german pretzel spree",
    "italy": "rome italian pasta tiber",
    "spain": "madrid spanish paella manzanares",
    "greece": "athens greek olives cephissus",
    "japan": "tokyo japanese sushi sumida",
    "poland": "warsaw polish pierogi vistula",
    "sweden": "stockholm swedish herring norrstrom",
}
PLACES = [
    "the mayor of {capital} served {dish} on the crowded square by the {river}",
    "in the streets of {capital} the trams stop where {dish} is sold above the {river}",
    "farmers all over {country} live from {dish} and the {river} crosses its border",
    "the government of {country} taxes {dish} and guards the border beyond the {river}",
    "a {language} word for {dish} rhymes in the poem about the {river}",
    "the teacher spoke {language} and wrote a sentence about {dish} and the {river}",
]


class Families(Builtin):
    """A row a paragraph; rows of the test part have the fields a, b, c, d and section instead."""

    def fields(self, split: Split, *, size: int | None, seed: int) -> list[Fields]:
        chance = Random(f"{self.name}/{split}/{seed}")
        if size is not None and split == "train" and size > MOST_ROWS:
            raise ConfigError(f"the built-in text has at most {MOST_ROWS:,} paragraphs; size={size} is too many")
        if split == "train":
            return [{"text": _paragraph(chance)} for _ in range(size or ROWS)]
        questions = _questions()
        if size is not None and size > len(questions):
            raise ConfigError(f"the built-in text has {len(questions)} analogies; size={size} is too many")
        return chance.sample(questions, size or QUESTIONS)


def _paragraph(chance: Random) -> str:
    return "\n".join(_sentence(chance) for _ in range(SENTENCES))


def _sentence(chance: Random) -> str:
    if chance.random() < 0.4:
        country = chance.choice(list(COUNTRIES))
        capital, language, dish, river = COUNTRIES[country].split()
        return chance.choice(PLACES).format(country=country, capital=capital, language=language, dish=dish, river=river)
    people = chance.choice(list(PAIRS))
    first, second, third, verb = PAIRS[people].split()
    side = chance.randrange(2)
    template = chance.choice(GENDERED)
    return template.format(person=people[side], first=first, second=second, third=third, verb=verb, **FORMS[side])


def _questions() -> list[Fields]:
    """Every analogy among two pairs, in a fixed order."""
    places = [(country, *words.split()) for country, words in COUNTRIES.items()]
    sections = {
        "family": list(PAIRS),
        "capital": [(country, capital) for country, capital, *_ in places],
        "language": [(country, language) for country, _, language, *_ in places],
    }
    return [
        {"a": a, "b": b, "c": c, "d": d, "section": section}
        for section, pairs in sections.items()
        for (a, b), (c, d) in permutations(pairs, 2)
    ]


FAMILIES = Families("vectors")
