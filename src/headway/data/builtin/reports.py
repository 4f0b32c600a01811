"""Short reports (a match, a day's weather, a job's log) and one-line summaries.

The summary follows from the report: it combines facts of several sentences and omits the rest.
"""

from random import Random

from headway.data.builtin.pool import Example, Generated
from headway.data.builtin.words import CLUBS, LAST_NAMES, PLACES

CROWD = [
    "About {n} thousand people came to see it.",
    "The pitch was heavy after a night of rain.",
    "Kick-off was delayed by {m} minutes.",
    "It was the first meeting of the two this season.",
]
GOALS = [
    "{player} scored for {club} after {minute} minutes, {score}.",
    "In minute {minute} {player} made it {score} for {club}.",
    "{club} struck through {player} in minute {minute}: {score}.",
]
SKIES = ["rain", "snow", "fog", "sunshine", "thunder", "hail", "drizzle", "clouds"]
HOURS = ["morning", "afternoon", "evening"]
WIND = [
    "A light wind came from the {side}.",
    "The wind turned {side} and dropped.",
    "Forecasters had expected less wind from the {side}.",
]
JOBS = ["backup", "import", "index", "nightly build", "mail run", "report", "cleanup", "sync"]
CAUSES = ["disk full", "no network", "wrong password", "out of memory", "file missing", "time limit reached"]
STEPS = [
    "read {n} files",
    "opened connection {n}",
    "wrote part {n}",
    "checked {n} records",
    "waiting for lock {n}",
    "retry {m}",
]


def summarize(chance: Random) -> Example:
    source, target = chance.choice([match, weather, log])(chance)
    return source, {"source": source, "target": target}


def match(chance: Random) -> tuple[str, str]:
    home, away = chance.sample(CLUBS, 2)
    place = chance.choice(PLACES)
    goals = {home: 0, away: 0}
    sentences = [f"{home} met {away} in {place}.", _filled(chance.choice(CROWD), chance)]
    for minute in sorted(chance.sample(range(2, 90), chance.randint(0, 4))):
        club = chance.choice([home, away])
        goals[club] += 1
        score = f"{goals[home]}-{goals[away]}"
        player = chance.choice(LAST_NAMES)
        sentences.append(chance.choice(GOALS).format(player=player, club=club, minute=minute, score=score))
    sentences.append(chance.choice(["There were no more goals.", "Nothing else happened until the whistle."]))
    return " ".join(sentences), _result(home, away, goals)


def _result(home: str, away: str, goals: dict[str, int]) -> str:
    if goals[home] == goals[away]:
        return f"{home} and {away} drew {goals[home]}-{goals[away]}."
    winner, loser = (home, away) if goals[home] > goals[away] else (away, home)
    return f"{winner} beat {loser} {goals[winner]}-{goals[loser]}."


def weather(chance: Random) -> tuple[str, str]:
    place = chance.choice(PLACES)
    skies = [chance.choice(SKIES) for _ in HOURS]
    degrees = chance.sample(range(-9, 36), len(HOURS))
    parts = zip(HOURS, skies, degrees, strict=True)
    sentences = [f"The {hour} in {place} brought {sky} at {d} degrees." for hour, sky, d in parts]
    side = chance.choice(["north", "south", "east", "west"])
    sentences.insert(chance.randrange(4), chance.choice(WIND).format(side=side))
    warmest = max(range(len(HOURS)), key=degrees.__getitem__)
    summary = f"{place}: warmest in the {HOURS[warmest]}, {degrees[warmest]} degrees with {skies[warmest]}."
    return " ".join(sentences), summary


def log(chance: Random) -> tuple[str, str]:
    job, cause = chance.choice(JOBS), chance.choice(CAUSES)
    minutes = sorted(chance.sample(range(24 * 60), chance.randint(4, 6)))
    times = [f"{minute // 60:02}:{minute % 60:02}" for minute in minutes]
    middle = [f"{time} {_filled(chance.choice(STEPS), chance)}" for time in times[1:-1]]
    failed = chance.random() < 0.5
    end = f"{times[-1]} stopped: {cause}" if failed else f"{times[-1]} done"
    summary = f"The {job} failed at {times[-1]}: {cause}." if failed else f"The {job} finished at {times[-1]}."
    return "\n".join([f"{times[0]} {job} started", *middle, end]), summary


def _filled(template: str, chance: Random) -> str:
    return template.format(n=chance.randint(3, 60), m=chance.randint(2, 20))


REPORTS = Generated("summarize", summarize, train=8_000, test=500)
