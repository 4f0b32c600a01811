"""The same model, faster. Where to look:

what is asked        prepare (a model made fast in place), weights (the types that weights can have),
                     certificate (what a conversion changed), measure (`headway bench`)
stored smaller       int8, bf16, swap (whose place they take), pages (where they lie in memory)
a decoder's step     step (takes the method's place) → decoding (what a step needs) → plan (the model as orders)
                     → machine (runs them, as one compiled call, on the threads of crew)
  its tables         orders (what an order can say), workspace (where results are handed on)
  its arithmetic     kernels, attending → tiles (the inner loops) → scalars, llvm; compiler (whether there is one)
many tokens          product (a matrix times them), ragged (texts without padding), prefix (beginnings read once)
"""

from headway.engine.prepare import prepare, release, why_not
from headway.engine.ragged import encode_ragged

__all__ = ["encode_ragged", "prepare", "release", "why_not"]
