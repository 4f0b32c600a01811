"""Dates in many styles → ISO 8601, the classic toy task of attention tutorials.

Every style has day, month and a four-digit year in an unambiguous order (with dots: day first).
"""
# ruff: noqa: SIM905 - a list of words reads best as words

from collections.abc import Callable
from datetime import date, timedelta
from random import Random

from headway.data.builtin.pool import Example, Generated

FIRST, DAYS = date(1950, 1, 1), 36525  # one hundred years
MONTHS = "January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
UNITS = "first second third fourth fifth sixth seventh eighth ninth".split()
TEENS = (
    "tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
ORDINALS = [*UNITS, *TEENS, *[f"twenty-{unit}" for unit in UNITS], "thirtieth", "thirty-first"]


def ordinal(number: int) -> str:
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def month(day: date) -> str:
    return MONTHS[day.month - 1]


def weekday(day: date) -> str:
    return WEEKDAYS[day.weekday()]


STYLES: list[Callable[[date], str]] = [
    lambda d: f"{ordinal(d.day)} of {month(d)} {d.year}",
    lambda d: f"the {ordinal(d.day)} of {month(d)}, {d.year}",
    lambda d: f"the {ORDINALS[d.day - 1]} of {month(d)} {d.year}",
    lambda d: f"{month(d)} the {ORDINALS[d.day - 1]}, {d.year}",
    lambda d: f"{month(d)} {d.day}, {d.year}",
    lambda d: f"{month(d)[:3]} {ordinal(d.day)}, {d.year}",
    lambda d: f"{month(d)[:3]}. {d.day} {d.year}",
    lambda d: f"{d.day} {month(d)} {d.year}",
    lambda d: f"{d.day} {month(d)[:3]} {d.year}",
    lambda d: f"{d.day}-{month(d)[:3]}-{d.year}",
    lambda d: f"{d.year}, {d.day} {month(d)}",
    lambda d: f"{d.year} {month(d)} {d.day}",
    lambda d: f"{weekday(d)}, {d.day} {month(d)} {d.year}",
    lambda d: f"{weekday(d)} the {ordinal(d.day)} of {month(d)} {d.year}",
    lambda d: f"{weekday(d)[:3]} {month(d)[:3]} {d.day} {d.year}",
    lambda d: f"{d.day:02}.{d.month:02}.{d.year}",
    lambda d: f"{d.day}. {d.month}. {d.year}",
    lambda d: f"{d.year}/{d.month:02}/{d.day:02}",
    lambda d: f"{d.year}{d.month:02}{d.day:02}",
]
CASES: list[Callable[[str], str]] = [str, str, str.lower, str.upper]


def random_day(chance: Random) -> date:
    return FIRST + timedelta(days=chance.randrange(DAYS))


def format_day(day: date, chance: Random) -> str:
    return chance.choice(CASES)(chance.choice(STYLES)(day))


def translate(chance: Random) -> Example:
    day = random_day(chance)
    return day.isoformat(), {"source": format_day(day, chance), "target": day.isoformat()}


DATES = Generated("translate", translate, train=12_000, test=1_000)
