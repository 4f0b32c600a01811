"""Torch's optimisers without the import of torch's compiler.

torch.optim wraps `step`, `zero_grad` and others so that torch.compile traces around them, and the wrappers import
`torch._dynamo` at the first call: more than a second for every process that trains. Nothing here compiles an optimiser,
so these classes call the functions inside the wrappers.
"""

from __future__ import annotations

from inspect import unwrap

import torch
from torch import optim


class Optimizer(optim.Optimizer):
    add_param_group = unwrap(optim.Optimizer.add_param_group)
    zero_grad = unwrap(optim.Optimizer.zero_grad)
    state_dict = unwrap(optim.Optimizer.state_dict)
    load_state_dict = unwrap(optim.Optimizer.load_state_dict)


class Adam(Optimizer, optim.Adam):
    step = torch.no_grad()(unwrap(optim.Adam.step))


class AdamW(Optimizer, optim.AdamW):
    step = torch.no_grad()(unwrap(optim.AdamW.step))
