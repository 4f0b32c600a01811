"""Optimiser and schedule settings of each recipe. `modern`, `published` and `classic` train from scratch, `finetune`
starts from a trained model."""

from __future__ import annotations

from typing import Any

FINETUNED_WIDTH = 768  # of a model whose learning rate is that of the recipe `finetune`, with batches of 32

RECIPES: dict[str, dict[str, Any]] = {
    "modern": {
        "optimizer": "muon",
        "lr": 3e-3,  # AdamW on embeddings, norms and heads
        "matrix_lr": 0.02,
        "weight_decay": 0.01,
        "schedule": "wsd",
        "warmup": 0.02,
        "decay": 0.6,
        "clip": 1.0,
    },
    "classic": {  # Vaswani et al. 2017, section 5.3
        "optimizer": "adam",
        "lr": 1e-3,
        "betas": (0.9, 0.98),
        "eps": 1e-9,
        "weight_decay": 0.0,
        "schedule": "inverse_sqrt",
        "warmup": 0.1,
        "clip": 0.0,
    },
    "finetune": {
        "optimizer": "adamw",
        "lr": 5e-5,
        "betas": (0.9, 0.999),  # as in BERT's fine-tuning
        "weight_decay": 0.01,
        "schedule": "linear",
        "warmup": 0.06,
        "clip": 1.0,
    },
}
RECIPES["published"] = RECIPES["modern"]  # other blocks, trained in the same way
