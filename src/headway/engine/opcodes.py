"""The language of the machine: what an order can be, and the columns of its tables, all of int64."""

from __future__ import annotations

from enum import IntEnum


class Does(IntEnum):
    EMBED = 0
    NORM = 1
    LINEAR = 2
    GATE = 3  # multiplies what LINEAR wrote with what another wrote
    ATTEND = 4


class Order(IntEnum):
    """The columns of an order."""

    DOES = 0
    SOURCE = 1  # places
    TARGET = 2
    WEIGHT = 3  # addresses; 0 = there is none
    SCALE = 4
    BIAS = 5
    STORED = 6  # how the matrix is stored
    INPUTS = 7
    OUTPUTS = 8
    GROUPS = 9
    ROW = 10  # numbers between tokens in the target
    COLUMN = 11  # where in a token's row it begins
    RESIDUAL = 12  # the place of the stream so far, to which the result is added; -1 = nothing
    ACTIVATION = 13
    WAIT = 14  # afterwards, for all
    CHOSEN = 15  # only for the tokens whose logits are asked for
    NORM = 16
    NORM_WEIGHT = 17
    NORM_BIAS = 18
    KEY_WEIGHT = 19  # of the keys' norm
    KEY_BIAS = 20
    HEADS = 21
    KV_HEADS = 22
    SIZE = 23  # of a head
    TURNED = 24  # half of how many of its numbers are rotated
    WINDOW = 25  # 0 = none
    LAYER = 26
    CROSS = 27  # looks at the source


class Frame(IntEnum):
    BATCH = 0
    TOKENS = 1  # of each sequence
    PAST = 2
    IDS = 3  # addresses, 0 = there is none
    POSITIONS = 4
    MASK = 5
    MASK_ROW = 6
    COS = 7
    SIN = 8
    POSITION_TABLE = 9
    DISTANCE = 10  # (head, distance): what is added to scores
    DISTANCE_ROW = 11
    SOURCE_MASK = 12
    SOURCE_MASK_ROW = 13
    SOURCE = 14  # length of the source
    LAST = 15  # logits of each sequence's last token only
    MEETING = 16  # where threads wait
    THREADS = 17


class Place(IntEnum):
    """Buffers. The first are shared; from OWN on each thread has its own."""

    STREAM = 0
    PROJECTED = 1
    MIXED = 2
    HIDDEN = 3
    GATED = 4
    BRANCH = 5
    OUT = 6
    SHORT = 7
    FACTORS = 8
    OWN = 9
    NORMED = 9
    OWN_SHORT = 10
    OWN_FACTORS = 11
    SCORES = 12


class Slot(IntEnum):
    """The columns of the cache's table, a row a layer."""

    KEYS = 0
    VALUES = 1
    ROOM = 2
    SOURCE_KEYS = 3
    SOURCE_VALUES = 4
    SOURCE_ROOM = 5


ORDER, FRAME, PLACES, SLOTS = len(Order), len(Frame), len(Place.__members__), len(Slot)
MEETING = 24  # int64s where threads wait: two lines of the cache, wherever they begin
LINE = 16  # floats in a line of the cache: two threads do not write to one
FEW = 4  # tokens that every thread rounds for itself
JOB = 11  # int64s: how many threads have begun, then address and length of each of `run`'s five tables
