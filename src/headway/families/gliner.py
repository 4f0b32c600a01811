"""GLiNER (Zaratiana et al. 2024) with one DeBERTa encoder for labels and text, and spans by their first and last word:
`gliner_config.json`, whose `encoder_config` is a DeBERTa config, and the tensors of the `gliner` package.

The variants by tokens, with an encoder of their own for labels, with relations or with a decoder are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Copied, Rule, modules, same
from headway.errors import ConfigError
from headway.families import GLINER_FILE
from headway.families.deberta import FAMILIES as DEBERTA
from headway.families.dialect import rules_of
from headway.families.family import Family, Keys
from headway.models.config import EncoderConfig, SpanScorerConfig

NAMES = ("gliner", "gliner_uni_encoder_span")  # its model_type, by version of the package
ENCODERS = {kind.name: kind for kind in DEBERTA}
OTHER_MODELS = {  # key that is null in this one → what a model with it is
    "labels_encoder": "a bi-encoder, with an encoder of its own for the labels,",
    "labels_decoder": "a model that generates labels by a decoder",
    "relations_layer": "a model that finds relations",
    "span_encoder_config": "a model with a second encoder, over the words,",
}
TRAINING = (  # keys that say nothing about the model: of training, of where it was trained, and unused ones
    "name", "model_name", "fine_tune", "max_types", "max_neg_type_ratio", "shuffle_types", "random_drop", "size_sup",
    "lr_encoder", "lr_others", "num_steps", "warmup_ratio", "train_batch_size", "eval_every", "root_dir", "train_data",
    "val_data_dir", "prev_path", "log_dir", "gpu", "run_time", "gradient_accumulation_steps", "scheduler_type",
    "weight_decay_encoder", "weight_decay_other", "freeze_token_rep", "max_grad_norm", "loss_alpha", "loss_gamma",
    "loss_prob_margin", "loss_reduction", "label_smoothing", "negatives", "masking", "save_total_limit",
    "token_loss_coef", "span_loss_coef", "neg_spans_ratio", "represent_spans", "num_post_fusion_layers",
    "labels_encoder_config", "labels_decoder_config", "id_to_classes", "is_composition",
)  # fmt: skip
RESAVE = (
    "write the folder again where the gliner package is installed: "
    "GLiNER.from_pretrained(MODEL).save_pretrained(FOLDER, safe_serialization=True)"
)


def read(keys: Keys, architecture: str) -> SpanScorerConfig:
    keys.strict = True
    for key, kind in OTHER_MODELS.items():
        keys.ignore(key)
        if keys.data.get(key) is not None:
            raise ConfigError(f"{GLINER_FILE}: {key}: {kind} is not supported; spans and one encoder are")
    keys.only("span_mode", "markerV0")  # "token_level" is another model, the other modes other spans
    keys.only("subtoken_pooling", "first")
    keys.only("words_splitter_type", "whitespace")
    keys.only("post_fusion_schema", "")
    for key, only in {"fuse_layers": False, "precomputed_prompts_mode": False, "has_rnn": True}.items():
        keys.only(key, only)
    keys.ignore(*TRAINING)
    keys.ignore("vocab_size", "class_token_index")  # the encoder's and the tokenizer's own count
    return SpanScorerConfig(
        encoder=read_encoder(keys),
        width=keys.size("hidden_size", 512),
        longest=keys.size("max_width", 12, most=10_000),
        max_words=keys.size("max_len", 384),
        recurrent_layers=max(keys.get("num_rnn_layers", int, 1), 0),
        dropout=float(keys.get("dropout", int | float, 0.4)),
        label_token=keys.get("ent_token", str, "<<ENT>>"),
        separator=keys.get("sep_token", str, "<<SEP>>"),
        reads_marker=keys.get("embed_ent_token", bool, True),
    )


def read_encoder(keys: Keys) -> EncoderConfig:
    given = keys.get("encoder_config", dict, None)
    if given is None:
        raise ConfigError(f"{GLINER_FILE}: encoder_config is missing, so the encoder's sizes are unknown; {RESAVE}")
    inner = Keys(given, file=f"{GLINER_FILE}: encoder_config", outer=keys)
    name = inner.get("model_type", str, "deberta-v2")
    if name not in ENCODERS:
        raise ConfigError(f"{inner.file}: model_type {name!r:.60} is not supported; supported: {', '.join(ENCODERS)}")
    kind = ENCODERS[name]
    config = kind.read(inner, kind.bare[0])
    inner.done()
    assert isinstance(config, EncoderConfig)
    return config


def encoder_family(config: EncoderConfig) -> Family:
    """v1 has no bias in its projection of keys."""
    return ENCODERS["deberta-v2" if "k" in config.stack.block.attention.bias else "deberta"]


def write(config: SpanScorerConfig) -> dict[str, Any]:
    kind = encoder_family(config.encoder)
    return {
        "hidden_size": config.width,
        "max_width": config.longest,
        "max_len": config.max_words,
        "num_rnn_layers": config.recurrent_layers,
        "dropout": config.dropout,
        "ent_token": config.label_token,
        "sep_token": config.separator,
        "embed_ent_token": config.reads_marker,
        "span_mode": "markerV0",
        "encoder_config": {**kind.write(config.encoder), "model_type": kind.name},
    }


def rules(config: SpanScorerConfig) -> list[AnyRule]:
    inner = rules_of(encoder_family(config.encoder), config.encoder)
    span = "span_rep_layer.span_rep_layer."
    projections = {
        "start": span + "project_start", "end": span + "project_end", "span": span + "out_project",
        "label": "prompt_rep_layer",
    }  # fmt: skip
    gates = [f"{tensor}_l{{i}}{side}" for tensor in LSTM for side in ("", "_reverse")]
    return [
        *nested(inner, ours="encoder.", theirs="token_rep_layer.bert_layer.model."),
        same("project", "token_rep_layer.projection"),
        *modules({f"recurrent.{gate}": f"rnn.lstm.{gate}" for gate in gates}),
        *modules({f"{ours}.up": f"{theirs}.0" for ours, theirs in projections.items()}),
        *modules({f"{ours}.down": f"{theirs}.3" for ours, theirs in projections.items()}),
    ]


LSTM = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def nested(rules: Iterable[AnyRule], *, ours: str, theirs: str) -> list[AnyRule]:
    """The rules of a model that is a part of another one."""
    out: list[AnyRule] = []
    for rule in rules:
        if isinstance(rule, Rule):
            rule = replace(rule, ours=tuple(ours + name for name in rule.ours))
        elif isinstance(rule, Alias | Copied):
            rule = replace(rule, of=theirs + rule.of)
        out.append(replace(rule, theirs=theirs + rule.theirs))
    return out


FAMILIES = tuple(
    Family(
        name=name,
        architectures=("GLiNER",),
        read=read,
        write=write,
        rules=rules,
        architecture=lambda config: "GLiNER",
        config_file=GLINER_FILE,
    )
    for name in NAMES
)
