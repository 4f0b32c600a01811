"""Sentences with words of two meanings: bank, bat, match and spring."""

from random import Random

from headway.data.builtin.pool import Example, Generated

SENSES = {  # adjectives that only this meaning has: sentences
    "muddy sandy steep": ["the {adjective} bank of the river was wet", "we rowed to the {adjective} bank with the boat",
                          "reeds grow on the {adjective} bank of the stream"],
    "rich private central": ["the {adjective} bank lent money to the family", "an account at the {adjective} bank pays",
                             "the {adjective} bank raised the interest on the loan"],
    "hungry furry sleeping": ["a {adjective} bat flew out of the cave", "the {adjective} bat hung from the roof"],
    "wooden heavy broken": ["he swung the {adjective} bat at the ball", "the player held the {adjective} bat high"],
    "burning damp lit": ["she held a {adjective} match to the candle", "the {adjective} match burned her finger"],
    "final exciting lost": ["our team played the {adjective} match", "the {adjective} match ended without a goal"],
    "warm rainy late": ["in the {adjective} spring the flowers open", "birds return in the {adjective} spring to nest"],
    "rusty metal coiled": ["the {adjective} spring inside the clock broke", "a {adjective} spring pushed the lid open"],
}  # fmt: skip
BEFORE = ["", "today", "once", "they say", "i know that", "people tell how", "last year", "it is true that"]
AFTER = ["", "again", "as always", "before noon", "they said", "in our town"]


def sentence(chance: Random) -> Example:
    adjectives = chance.choice(list(SENSES))
    template = chance.choice(SENSES[adjectives]).format(adjective=chance.choice(adjectives.split()))
    text = " ".join(filter(None, [chance.choice(BEFORE), template, chance.choice(AFTER)]))
    return text, {"text": text}


SENSE_SENTENCES = Generated("vectors", sentence, train=1500, test=150)
