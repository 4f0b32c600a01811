"""Passages about two people or two rooms, and questions whose answer is a span of the passage.

One question in five has no answer in the passage, as in SQuAD 2. Every passage describes two people or rooms, so a
model must find the right one's year or number, not just any.
"""

from collections.abc import Callable
from random import Random

from headway.data.builtin.pool import Example, Fields, Generated
from headway.data.builtin.words import ANIMALS, COMPANIES, FIRST_NAMES, HOBBIES, JOBS, LAST_NAMES, PLACES, THINGS

UNANSWERABLE = 0.2
Value = Callable[[Random], str]

# Facts about a person: statement templates, question templates, and a random value.
FACTS: dict[str, tuple[list[str], list[str], Value]] = {
    "birthplace": (
        ["{name} was born in {value}.", "{name} comes from {value}."],
        ["Where was {name} born?", "Where does {name} come from?"],
        lambda chance: chance.choice(PLACES),
    ),
    "year": (
        ["{name}'s year of birth is {value}.", "{value} is the year in which {name} was born."],
        ["When was {name} born?", "In which year was {name} born?"],
        lambda chance: str(chance.randint(1930, 2005)),
    ),
    "job": (
        ["{name} works as a {value}.", "By trade {name} is a {value}."],
        ["What is {name}'s job?", "What does {name} do for a living?"],
        lambda chance: chance.choice(JOBS),
    ),
    "firm": (
        ["{value} is the firm that employs {name}.", "{name} is employed by {value}."],
        ["Who employs {name}?", "Which firm does {name} work for?"],
        lambda chance: chance.choice(COMPANIES),
    ),
    "hobby": (
        ["On Sundays {name} goes in for {value}.", "{name} has a passion for {value}."],
        ["What is {name}'s hobby?", "What does {name} like to do?"],
        lambda chance: chance.choice(HOBBIES),
    ),
    "pet": (
        ["At home {name} keeps a {value}.", "{name} owns a {value}."],
        ["Which animal does {name} keep?", "What pet does {name} have?"],
        lambda chance: chance.choice(ANIMALS),
    ),
}


def answer(chance: Random) -> Example:
    sentences, spans, missing = chance.choice([_people, _rooms])(chance)
    context, starts = _joined(sentences, chance)
    fields: Fields
    if chance.random() < UNANSWERABLE:
        fields = {"question": chance.choice(missing), "context": context, "answers": []}
    else:
        which = chance.randrange(len(sentences))
        question, text, offset = spans[which]
        fields = {"question": question, "context": context, "answers": [(text, starts[which] + offset)]}
    return context, fields


Passage = tuple[
    list[str], list[tuple[str, str, int]], list[str]
]  # sentences; (question, answer, position); unanswerable questions


def _people(chance: Random) -> Passage:
    firsts, lasts = chance.sample(FIRST_NAMES, 2), chance.sample(LAST_NAMES, 2)
    names = [f"{first} {last}" for first, last in zip(firsts, lasts, strict=True)]
    sentences: list[str] = []
    spans: list[tuple[str, str, int]] = []
    missing: list[str] = []
    for name in names:
        known = chance.sample(list(FACTS), 4)
        for fact, (ways, questions, value_of) in FACTS.items():
            question = chance.choice(questions).format(name=name)
            if fact in known:
                value, way = value_of(chance), chance.choice(ways)
                sentences.append(way.format(name=name, value=value))
                spans.append((question, value, way.index("{value}") + _growth(way, name)))
            else:
                missing.append(question)
    return sentences, spans, missing


def _growth(way: str, name: str) -> int:
    """By how much filling in the name shifts the value's position."""
    return len(name) - len("{name}") if way.index("{name}") < way.index("{value}") else 0


def _rooms(chance: Random) -> Passage:
    places = chance.sample(["cellar", "attic", "shed", "garage", "yard", "van", "kitchen", "hall"], 2)
    sentences: list[str] = []
    spans: list[tuple[str, str, int]] = []
    missing: list[str] = []
    for place in places:
        things = chance.sample(THINGS, 5)
        for thing in things[:3]:
            start, number = f"In the {place} there are ", str(chance.randint(2, 99))
            sentences.append(f"{start}{number} {thing}.")
            spans.append((f"How many {thing} are in the {place}?", number, len(start)))
        missing += [f"How many {thing} are in the {place}?" for thing in things[3:]]
    return sentences, spans, missing


def _joined(sentences: list[str], chance: Random) -> tuple[str, list[int]]:
    """The sentences joined in a random order, and the start of each."""
    order = chance.sample(range(len(sentences)), len(sentences))
    starts = [0] * len(sentences)
    context = ""
    for which in order:
        context += " " if context else ""
        starts[which] = len(context)
        context += sentences[which]
    return context, starts


PASSAGES = Generated("answer", answer, train=8_000, test=500)
