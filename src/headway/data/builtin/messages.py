"""Messages to a shop, of five classes.

The classes share nouns, greetings and most verbs; polite words occur in complaints and blunt ones in praise. The
sentence in the middle decides the class.
"""

from random import Random

from headway.data.builtin.pool import Example, Generated
from headway.data.builtin.words import COLOURS, COMPANIES, FIRST_NAMES, THINGS

CORES = {
    "question": [
        "do the {things} come in {colour}",
        "how long does delivery of {n} {things} take",
        "is it true that the {colour} {things} last {n} years",
        "which of the {things} would you recommend for a small room",
        "what is the price of {n} {colour} {things}",
        "are the {things} from {company} better than yours",
        "when will the {colour} {things} be back",
        "can the {things} be returned after {n} days",
    ],
    "order": [
        "please send me {n} {colour} {things}",
        "i would like to buy {n} of the {things} from {company}",
        "put {n} more {things} on my account",
        "we need {n} {colour} {things} by the end of the week",
        "add {n} {things} to the delivery for {name}",
        "i will take the {colour} {things}, {n} of them",
        "reserve {n} {things} for {name}",
        "the same again: {n} {colour} {things}",
    ],
    "complaint": [
        "the {colour} {things} broke after {n} days",
        "only half of the {n} {things} came",
        "i asked for {colour} {things} and got something else",
        "nobody answered when {name} called about the {things}",
        "your {things} are not nearly as good as those from {company}",
        "the {things} arrived {n} days late",
        "the {colour} paint on the {things} is coming off",
        "this is the second time that the {things} were damaged",
    ],
    "praise": [
        "the {colour} {things} are even nicer than in the picture",
        "after {n} years the {things} still look like new",
        "nothing broke, although the {things} travelled for {n} days",
        "{name} could not have been more helpful with the {things}",
        "i have never had better {things}, not even from {company}",
        "the {things} arrived {n} days early",
        "everybody here loves the {colour} {things}",
        "no complaints at all about the {n} {things}",
    ],
    "cancel": [
        "please do not send the {n} {things}",
        "i no longer need the {colour} {things}",
        "take the {things} off my account",
        "we have changed our minds about the {n} {things}",
        "stop the delivery of {things} for {name}",
        "forget the {colour} {things}, we bought them from {company}",
        "i would like to withdraw from buying {n} {things}",
        "the reservation of {things} for {name} is not needed any more",
    ],
}
OPENINGS = ["", "", "", "hello,", "hi {name},", "good morning.", "sorry to bother you,", "quick note:", "me again."]
CLOSINGS = ["", "", "", "thanks.", "thank you in advance.", "best, {name}", "please answer soon.", "i mean it.", "ok?"]


def classify(chance: Random) -> Example:
    label = chance.choice(list(CORES))
    core = chance.choice(CORES[label])
    mark = "?" if label == "question" and chance.random() < 0.5 else "."
    template = f"{chance.choice(OPENINGS)} {core}{mark} {chance.choice(CLOSINGS)}".strip()
    text = template.format(
        things=chance.choice(THINGS),
        colour=chance.choice(COLOURS),
        n=chance.randint(2, 40),
        name=chance.choice(FIRST_NAMES),
        company=chance.choice(COMPANIES),
    )
    if chance.random() < 0.5:
        text = text[0].upper() + text[1:]
    return text, {"text": text, "label": label}


MESSAGES = Generated("classify", classify, train=4_000, test=500)
