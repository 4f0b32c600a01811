"""The instruction set of the interpreter: operations, and the columns of its int64 tables."""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    EMBED = 0
    NORM = 1
    LINEAR = 2
    GATE = 3  # elementwise product with the output of another LINEAR
    ATTEND = 4


class Field(IntEnum):
    """The columns of an instruction. Addresses are 0 where a tensor is absent."""

    OP = 0
    SOURCE = 1  # Buffer
    TARGET = 2  # Buffer
    WEIGHT = 3  # address
    SCALE = 4  # address of the int8 scales
    BIAS = 5  # address
    FORMAT = 6  # of the weight: kernels.FLOAT32, BFLOAT16, INT8, FLOAT16
    IN_FEATURES = 7
    OUT_FEATURES = 8
    GROUPS = 9  # int8 scales per row
    ROW_STRIDE = 10  # floats between tokens in the target
    COLUMN_OFFSET = 11  # first column of the target that is written
    RESIDUAL = 12  # Buffer that is added to the result; -1 = none
    ACTIVATION = 13
    BARRIER = 14  # wait for all threads afterwards
    LOGIT_TOKENS = 15  # only the tokens whose logits are returned
    NORM_KIND = 16
    NORM_WEIGHT = 17
    NORM_BIAS = 18
    KEY_NORM_WEIGHT = 19
    KEY_NORM_BIAS = 20
    HEADS = 21
    KV_HEADS = 22
    HEAD_SIZE = 23
    ROTARY_PAIRS = 24  # half the number of rotated features of a head
    WINDOW = 25  # sliding window; 0 = none
    LAYER = 26
    CROSS = 27  # cross-attention


class Frame(IntEnum):
    """The arguments of one step. Addresses are 0 where a tensor is absent, strides are in bytes."""

    BATCH = 0
    NEW_TOKENS = 1  # per row
    PAST_LENGTHS = 2  # address, one per row
    TOKEN_IDS = 3  # address
    POSITIONS = 4  # address
    COS = 5  # address
    SIN = 6  # address
    POSITION_TABLE = 7  # address
    SCORE_BIAS = 8  # address, (head, distance)
    SCORE_BIAS_STRIDE = 9  # in floats
    MEMORY_MASK = 10  # address
    MEMORY_MASK_STRIDE = 11
    MEMORY_LENGTH = 12
    LAST_ONLY = 13  # logits of each row's last token only
    BARRIER = 14  # address
    THREADS = 15


class Buffer(IntEnum):
    """Buffers for intermediate results. Those from PER_THREAD on exist once per thread; the others are shared."""

    RESIDUAL = 0
    QKV = 1
    ATTENTION_OUT = 2
    FFN_HIDDEN = 3
    FFN_UP = 4
    BRANCH_OUT = 5
    OUTPUT = 6
    INT16_TOKENS = 7
    TOKEN_SCALES = 8
    PER_THREAD = 9
    NORMED = 9
    THREAD_INT16_TOKENS = 10
    THREAD_TOKEN_SCALES = 11
    SCORES = 12


class CacheField(IntEnum):
    """The columns of the cache table, which has one row per layer."""

    KEYS = 0
    VALUES = 1
    CAPACITY = 2
    MEMORY_KEYS = 3
    MEMORY_VALUES = 4
    MEMORY_CAPACITY = 5


FIELDS, FRAME_SIZE, BUFFERS, CACHE_FIELDS = (
    len(Field),
    len(Frame),
    len(Buffer.__members__),
    len(CacheField),
)
BARRIER_SIZE = 24  # int64s of a barrier: two cache lines at any alignment
LINE_FLOATS = 16  # floats in a cache line: threads split outputs at this multiple, to avoid false sharing
PRIVATE_TOKENS = 4  # below this many tokens, every thread quantises all of them instead of waiting at a barrier
JOB_SIZE = 11  # int64s: a counter that gives threads their index, then address and length of five tables
