"""Other people's names: the config keys and tensor names of published architectures, both ways."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headway.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from headway.families.family import Family

MODULES = {  # model_type → the file that knows it
    "gpt2": "gpt2",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "llama",
    "qwen3": "llama",
    "smollm3": "smollm3",
    "olmo2": "olmo2",
    "phi3": "phi3",
    "gemma3_text": "gemma3",
    "gpt_neox": "gpt_neox",
    "t5": "t5",
    "mt5": "t5",
    "bart": "bart",
    "mbart": "bart",
    "marian": "marian",
    "gpt-nano": "mingpt",
    "bert": "bert",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "distilbert": "distilbert",
    "deberta": "deberta",
    "deberta-v2": "deberta",
    "gliner": "gliner",
    "gliner_uni_encoder_span": "gliner",
    "xlnet": "xlnet",
    "modernbert": "modernbert",
    "eurobert": "eurobert",
    "vit": "vit",
    "whisper": "whisper",
    "deit": "vit",
    "detr": "detr",
    "yolos": "yolos",
    "headway": "headway",
}
GLINER_FILE = "gliner_config.json"  # that such a model has in place of config.json
# shape → the family that a text model from scratch is saved in, if it can express the model
FROM_SCRATCH = {"decoder": "qwen3", "any order": "xlnet", "encoder": "modernbert", "encoder-decoder": "t5"}


def find(name: str) -> Family:
    if name not in MODULES:
        hint = did_you_mean(name, MODULES, otherwise=f"known: {', '.join(sorted(MODULES))}")
        raise ConfigError(f"model_type {name!r} is not a supported model family; {hint}")
    module = import_module(f"headway.families.{MODULES[name]}")
    members = getattr(module, "FAMILIES", None) or (module.FAMILY,)
    return next(member for member in members if member.name == name)
