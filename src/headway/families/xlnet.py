"""XLNet (Yang et al. 2019): the two-stream model where it predicts tokens, and an encoder where it has another head.
Relative positions and segments enter at the scores, as in Transformer-XL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from headway.checkpoints.rules import Alias, AnyRule, Rule, modules, same, shaped
from headway.errors import ConfigError
from headway.families.family import Family, Keys, activation_name
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.transformer_xl import DistanceVectorsConfig, TransformerXLConfig
from headway.models.config import (
    ClassifyHeadConfig,
    EncoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    StackConfig,
    TokenHeadConfig,
    TwoStreamConfig,
)

XLNetConfig = TwoStreamConfig | EncoderConfig
KINDS = ("LMHeadModel", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnsweringSimple")


def read(keys: Keys, architecture: str) -> XLNetConfig:
    keys.alias(n_token="vocab_size", hidden_size="d_model", num_attention_heads="n_head", num_hidden_layers="n_layer")
    width = keys.size("d_model", 1024)
    heads = keys.heads("n_head", 16, width=width)
    keys.only("d_head", width // heads)
    keys.only("attn_type", "bi", "uni")
    for key in ("bi_data", "same_length"):
        keys.only(key, False)
    keys.only("untie_r", True)
    keys.only("reuse_len", 0)
    keys.ignore("use_mems_eval", "use_mems_train", "mems")  # whether memories are used is the caller's choice
    keys.ignore("start_n_top", "end_n_top")  # of a head that is not built here
    dropout, clamp = keys.get("dropout", float, 0.1), keys.get("clamp_len", int, -1)
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(
            heads, width // heads, bias="", dropout=dropout, score_bias=TransformerXLConfig(dropout)
        ),
        feedforward=FeedForwardConfig(
            keys.size("d_inner", 4096), activation=keys.activation("ff_activation", "gelu"), dropout=dropout
        ),
        norm=NormConfig(eps=keys.get("layer_norm_eps", float, 1e-12)),
        norm_place="post",
        dropout=dropout,
    )
    stack = StackConfig(
        block,
        keys.layers("n_layer", 24),
        causal=keys.get("attn_type", str, "bi") == "uni",
        final_dropout=dropout,
        relative=DistanceVectorsConfig(clamp if clamp > 0 else None),
    )
    embedding = EmbeddingConfig(keys.size("vocab_size", 32000), width, dropout=dropout, query_vector=True)
    memory = keys.get("mem_len", int, 0 if "mem_len" in keys.data else 512)
    head = read_head(keys, architecture.removeprefix("XLNet"))
    if isinstance(head, LanguageHeadConfig):
        return TwoStreamConfig(embedding, stack, head, memory=max(memory, 0))
    return EncoderConfig(embedding, stack, head)


def read_head(keys: Keys, kind: str) -> HeadConfig | None:
    keys.only("tie_word_embeddings", True)
    keys.only("summary_use_proj", True)
    pool, activation = keys.get("summary_type", str, "last"), keys.get("summary_activation", str, "tanh")
    if pool not in ("last", "first", "mean") or activation != "tanh":
        raise ConfigError(
            f"{keys.file}: summary_type {pool!r} with summary_activation {activation!r} is not supported; supported: "
            "last, first or mean with tanh"
        )
    dropout = keys.get("summary_last_dropout", float, 0.1)
    heads: dict[str, HeadConfig | None] = {
        "LMHeadModel": LanguageHeadConfig(bias=True),
        "Model": None,
        "ForSequenceClassification": ClassifyHeadConfig(
            keys.labels(), pool=pool, dense="tanh", dropout=dropout, dense_dropout=False
        ),
        "ForTokenClassification": TokenHeadConfig(keys.labels(), dropout=keys.get("classifier_dropout", float, 0.0)),
        "ForQuestionAnsweringSimple": TokenHeadConfig(2, answer=True),
    }
    return heads[kind]


def write(config: XLNetConfig) -> dict[str, Any]:
    block, relative, embedding = config.stack.block, config.stack.relative, config.embedding
    assert isinstance(relative, DistanceVectorsConfig) and isinstance(embedding, EmbeddingConfig)
    out: dict[str, Any] = {
        "vocab_size": embedding.vocab,
        "d_model": block.width,
        "n_layer": config.stack.layers,
        "n_head": block.attention.heads,
        "d_head": block.attention.head_size,
        "d_inner": block.feedforward.width,
        "ff_activation": activation_name(block.feedforward.activation),
        "attn_type": "uni" if config.stack.causal else "bi",
        "layer_norm_eps": block.norm.eps,
        "dropout": block.dropout,
        "clamp_len": -1 if relative.clamp is None else relative.clamp,
    }
    if isinstance(config, TwoStreamConfig):
        out["mem_len"] = config.memory or None
    if isinstance(config.head, TokenHeadConfig) and config.head.dropout:
        out["classifier_dropout"] = config.head.dropout  # our own key: the reference library has no dropout here
    if isinstance(config.head, ClassifyHeadConfig):
        out |= {"summary_type": config.head.pool, "summary_last_dropout": config.head.dropout}
    return out


def architecture(config: XLNetConfig) -> str:
    match config.head:
        case LanguageHeadConfig():
            return "XLNetLMHeadModel"
        case ClassifyHeadConfig():
            return "XLNetForSequenceClassification"
        case TokenHeadConfig(answer=answer):
            return "XLNetForQuestionAnsweringSimple" if answer else "XLNetForTokenClassification"
    return "XLNetModel"


def rules(config: XLNetConfig) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}layer.{i}."
    own, layer = ours + "attention.", theirs + "rel_attn."
    heads, width = config.stack.block.attention.heads, config.stack.block.width
    return [
        *modules(
            {
                "embedding.tokens": "{base}word_embedding",
                ours + "attention_residual.norm": layer + "layer_norm",
                ours + "feedforward.up": theirs + "ff.layer_1",
                ours + "feedforward.down": theirs + "ff.layer_2",
                ours + "feedforward_residual.norm": theirs + "ff.layer_norm",
                own + "score_bias.content": layer + "r_w_bias",
                own + "score_bias.position": layer + "r_r_bias",
                own + "score_bias.segment": layer + "r_s_bias",
                own + "score_bias.segments": layer + "seg_embed",
                "head.dense": "sequence_summary.summary",
                "head.bias": "lm_loss.bias",
            }
        ),
        shaped("embedding.query.weight", "{base}mask_emb", ours_shape=(1, width), theirs_shape=(1, 1, width)),
        *(
            by_head(own + part + ".weight", layer + name, heads=heads)
            for part, name in {"query": "q", "key": "k", "value": "v", "score_bias.key": "r"}.items()
        ),
        shaped(own + "output.weight", layer + "o", ours_shape=(width, width), theirs_shape=(width, heads, -1)),
        same("head.project", project_name(config.head)),
        Alias("lm_loss.weight", of="{base}word_embedding.weight"),
    ]


def by_head(ours: str, theirs: str, *, heads: int) -> Rule:
    """A projection (heads · size, width) that is stored as (width, heads, size)."""

    def to_theirs(ts: Sequence[Tensor]) -> Tensor:
        return ts[0].t().unflatten(1, (heads, -1))

    return Rule((ours,), theirs, lambda t: (t.flatten(1).t(),), to_theirs)


def project_name(head: HeadConfig | None) -> str:
    if isinstance(head, TokenHeadConfig):
        return "qa_outputs" if head.answer else "classifier"
    return "logits_proj"


FAMILY = Family(
    name="xlnet",
    architectures=tuple("XLNet" + kind for kind in KINDS),
    read=read,
    write=write,
    rules=rules,
    architecture=architecture,
    base="transformer.",
    bare=("XLNetModel",),
)
