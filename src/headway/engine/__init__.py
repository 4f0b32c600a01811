"""Fast inference for the models in `headway.models`. Where to look:

entry points         prepare (converts and compiles a model in place), weights (weight formats), conversion_report (what
                     a conversion changed), measure (`headway bench`)
weight formats       int8, bf16, swap (module replacement), huge_pages
a decoding step      step (replaces the method) → decoding (its arguments) → lowering (model to program)
                     → interpreter (runs the program in one compiled call, on the threads of thread_pool)
  what it covers     supported (config fields and modules it implements; anything else is refused)
  its tables         opcodes (instruction set), workspace (buffers)
  its kernels        kernels, attention_kernel → tiles (register tiles) → scalars, llvm; compiler (Numba, if installed)
many tokens          matmul (products of many tokens), prefill (the last block for the last tokens only),
                     inplace (blocks that reuse memory), ragged (batches without padding), prefix (prefix caching)
training             the package training: gradients written out, cheaper dropout masks, 16-bit products
"""

from headway.engine.prepare import prepare, release, unsupported_reason
from headway.engine.ragged import encode_ragged

__all__ = ["encode_ragged", "prepare", "release", "unsupported_reason"]
