"""Short dialogues with an assistant: simple facts, sums, and recalling the user's name."""

from collections.abc import Callable
from random import Random

from headway.data.builtin.dates import WEEKDAYS
from headway.data.builtin.pool import Example, Generated
from headway.data.builtin.words import FIRST_NAMES, THINGS

CAPITALS = {
    "Austria": "Vienna", "Belgium": "Brussels", "Chile": "Santiago", "Croatia": "Zagreb", "Cuba": "Havana",
    "Egypt": "Cairo", "Finland": "Helsinki", "France": "Paris", "Germany": "Berlin", "Ghana": "Accra",
    "Greece": "Athens", "Hungary": "Budapest", "Ireland": "Dublin", "Italy": "Rome", "Japan": "Tokyo",
    "Kenya": "Nairobi", "Norway": "Oslo", "Peru": "Lima", "Poland": "Warsaw", "Portugal": "Lisbon",
    "Senegal": "Dakar", "Spain": "Madrid", "Thailand": "Bangkok", "Vietnam": "Hanoi",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "early": "late", "old": "new", "wet": "dry", "light": "dark",
    "full": "empty", "high": "low", "loud": "quiet", "open": "closed", "rich": "poor", "soft": "hard",
}  # fmt: skip
Turn = tuple[str, str]  # user message, assistant message


def _capital(chance: Random) -> Turn:
    country = chance.choice(list(CAPITALS))
    ask = chance.choice(["What is the capital of {}?", "Name the capital of {}.", "Which city is the capital of {}?"])
    return ask.format(country), f"The capital of {country} is {CAPITALS[country]}."


def _sum(chance: Random) -> Turn:
    a, b = chance.randint(1, 20), chance.randint(1, 20)
    ask = chance.choice(["What is {} plus {}?", "How much is {} + {}?", "Add {} and {}, please."])
    return ask.format(a, b), f"{a} plus {b} is {a + b}."


def _opposite(chance: Random) -> Turn:
    word = chance.choice(list(OPPOSITES))
    ask = chance.choice(["What is the opposite of {}?", "Give me the opposite of {}.", "If it is not {}, what is it?"])
    return ask.format(word), f"The opposite of {word} is {OPPOSITES[word]}."


def _next_day(chance: Random) -> Turn:
    day = chance.randrange(7)
    ask = chance.choice(["Which day comes after {}?", "What follows {}?", "If today is {}, what is tomorrow?"])
    return ask.format(WEEKDAYS[day]), f"After {WEEKDAYS[day]} comes {WEEKDAYS[(day + 1) % 7]}."


def _list(chance: Random) -> Turn:
    things = chance.sample(THINGS, 3)
    ask = chance.choice(["Sort these: {}.", "Put in order: {}.", "Please sort {} by the alphabet."])
    return ask.format(", ".join(things)), f"In order: {', '.join(sorted(things))}."


TOPICS: list[Callable[[Random], Turn]] = [_capital, _sum, _opposite, _next_day, _list]
HELLO = ["Hello, I am {}.", "Hi! My name is {}.", "Good day. You can call me {}."]
RECALL = ["Do you remember my name?", "What is my name?", "Who am I?"]


def chat(chance: Random) -> Example:
    turns = [chance.choice(TOPICS)(chance) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.4:
        name = chance.choice(FIRST_NAMES)
        turns.insert(0, (chance.choice(HELLO).format(name), f"Hello {name}! How can I help you?"))
        turns.append((chance.choice(RECALL), f"You are {name}."))
    turns_flat = [(role, text) for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True)]
    messages = [{"role": role, "content": text} for role, text in turns_flat]
    return repr(turns), {"messages": messages}


DIALOGUES = Generated("chat", chat, train=6_000, test=500)
