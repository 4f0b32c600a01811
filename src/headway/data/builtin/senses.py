"""Sentences with words of two meanings: bank, bat, match and spring. What begins a sentence is the same for both
meanings; the adjective before the word and what follows it are those of one."""

from random import Random

from headway.data.builtin.pool import Example, Generated

SENSES: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {  # of each meaning: adjectives, and what follows
    "bank": (
        ("muddy sandy steep", ("of the river was wet", "of the stream has reeds", "is where the boats lie")),
        ("rich private central", ("lent money to the family", "pays us interest", "raised the rate of the loan")),
    ),
    "bat": (
        ("hungry furry sleeping", ("flew out of the cave", "hung from the roof", "caught a moth at night")),
        ("wooden heavy broken", ("hit the ball", "belongs to the player", "lay in the field after the game")),
    ),
    "match": (
        ("burning damp lit", ("set fire to the paper", "burned her finger", "went out in the wind")),
        ("final exciting lost", ("ended without a goal", "was played by our team", "drew a large crowd")),
    ),
    "spring": (
        ("warm rainy late", ("opens the flowers", "brings back the birds", "comes after the winter")),
        ("rusty metal coiled", ("broke inside the clock", "pushed the lid open", "was made of steel")),
    ),
}
BEFORE = ("the", "today the", "once the", "they say the", "i know that the", "people tell how the", "it seems that the")
AFTER = ("", "again", "as always", "they said")


def sentence(chance: Random) -> Example:
    word = chance.choice(list(SENSES))
    adjectives, endings = chance.choice(SENSES[word])
    parts = [chance.choice(BEFORE), chance.choice(adjectives.split()), word, chance.choice(endings)]
    text = " ".join(filter(None, [*parts, chance.choice(AFTER)]))
    return text, {"text": text}


SENSE_SENTENCES = Generated("vectors", sentence, train=1500, test=150)
