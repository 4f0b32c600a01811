"""DeBERTa (He et al. 2021), and v2 and v3 of it: the encoder of BERT with position in the scores alone, as content to
position and position to content. v2 and v3 share the vectors of large distances, and the projections of q and k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.checkpoints.rules import Alias, AnyRule, Dropped, convolution, interleaved, modules, same
from headway.errors import ConfigError
from headway.families import bert
from headway.families.family import Family, Keys, activation_name, encoder_keys
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.convolution import ConvolutionConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig
from headway.layers.relative import DisentangledConfig, RelativeVectorsConfig
from headway.models.config import (
    ClassifyHeadConfig,
    EncoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    MaskDecoderConfig,
    StackConfig,
    TokenHeadConfig,
    TransformConfig,
)


@dataclass(frozen=True)
class DebertaVariant:
    title: str
    width: int
    layers: int
    heads: int
    inner: int
    vocab: int
    second: bool  # v2 and v3


VARIANTS = {
    "deberta": DebertaVariant("Deberta", 768, 12, 12, 3072, 50265, second=False),
    "deberta-v2": DebertaVariant("DebertaV2", 1536, 24, 24, 6144, 128100, second=True),
}


def read(keys: Keys, architecture: str, variant: DebertaVariant) -> EncoderConfig:
    width = keys.size("hidden_size", variant.width)
    heads = keys.heads("num_attention_heads", variant.heads, width=width)
    for key in ("embedding_size", "pooler_hidden_size", "attention_head_size"):
        keys.only(key, width if key != "attention_head_size" else width // heads)
    keys.only("talking_head", False)
    keys.ignore("padding_idx")
    keys.ignore("legacy")  # under which names a masked language model's head is kept: both are read
    dropout = keys.get("hidden_dropout_prob", float, 0.1)
    norm = NormConfig(eps=keys.get("layer_norm_eps", float, 1e-7))
    count = keys.size("max_position_embeddings", 512)
    relative, bias = read_relative(keys, variant, norm, dropout, count)
    parts = 1 if bias is None else 1 + bias.to_position + bias.from_position
    block = BlockConfig(
        width=width,
        attention=AttentionConfig(
            heads,
            width // heads,
            bias="qkvo" if variant.second else "qvo",
            scale=(width // heads * parts) ** -0.5,
            dropout=keys.get("attention_probs_dropout_prob", float, 0.1),
            score_bias=bias,
        ),
        feedforward=FeedForwardConfig(
            keys.size("intermediate_size", variant.inner), activation=keys.activation("hidden_act", "gelu")
        ),
        norm=norm,
        norm_place="post",
        dropout=dropout,
    )
    return EncoderConfig(
        embedding=EmbeddingConfig(
            keys.size("vocab_size", variant.vocab),
            width,
            positions=LearnedConfig(count) if keys.get("position_biased_input", bool, True) else None,
            segments=keys.get("type_vocab_size", int, 0),
            norm=norm,
            dropout=dropout,
        ),
        stack=StackConfig(
            block,
            keys.layers("num_hidden_layers", variant.layers),
            relative=relative,
            convolution=read_convolution(keys, block) if variant.second else None,
        ),
        head=read_head(keys, architecture.removeprefix(variant.title), block, count=count),
    )


def read_convolution(keys: Keys, block: BlockConfig) -> ConvolutionConfig | None:
    kernel, activation = keys.get("conv_kernel_size", int, 0), keys.activation("conv_act", "tanh")
    keys.only("conv_groups", 1)
    return ConvolutionConfig(kernel, block.norm, activation, block.dropout) if kernel > 0 else None


def read_relative(
    keys: Keys, variant: DebertaVariant, norm: NormConfig, dropout: float, count: int
) -> tuple[RelativeVectorsConfig | None, DisentangledConfig | None]:
    kinds = keys.data.get("pos_att_type") or []
    keys.ignore("pos_att_type")
    kinds = [kind.strip().lower() for kind in kinds.split("|")] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not all(kind in ("c2p", "p2c") for kind in kinds):
        raise ConfigError(f"config.json: pos_att_type is {kinds!r:.60}; supported: c2p and p2c")
    longest, buckets = keys.get("max_relative_positions", int, -1), keys.get("position_buckets", int, -1)
    shared, kept = keys.get("share_att_key", bool, False), keys.get("norm_rel_ebd", str, "none")
    keys.only("norm_rel_ebd", "none", "layer_norm")
    if not keys.get("relative_attention", bool, False) or not kinds:
        if kinds:
            raise ConfigError("config.json: pos_att_type is given, but relative_attention is off")
        return None, None
    longest = longest if longest >= 1 else count
    bucketed = variant.second and buckets > 0
    vectors = RelativeVectorsConfig(
        buckets if bucketed else longest,
        max_distance=longest if bucketed else None,
        norm=norm if variant.second and kept == "layer_norm" else None,
    )
    bias = DisentangledConfig(
        to_position="c2p" in kinds,
        from_position="p2c" in kinds,
        shared=variant.second and shared,
        key_bias=variant.second,
        dropout=dropout,
    )
    return vectors, bias


def read_head(keys: Keys, kind: str, block: BlockConfig, *, count: int) -> HeadConfig | None:
    keys.only("pooler_dropout", 0, 0.0)
    activation = block.feedforward.activation
    absolute = keys.get("position_biased_input", bool, True)  # then the encoder knows the positions already
    heads: dict[str, HeadConfig | None] = {
        "Model": None,
        "ForMaskedLM": LanguageHeadConfig(
            bias=True,
            transform=TransformConfig(activation, block.norm),
            mask_decoder=None if absolute else MaskDecoderConfig(LearnedConfig(count)),
        ),
        "ForSequenceClassification": ClassifyHeadConfig(
            keys.labels(),
            dense=keys.activation("pooler_hidden_act", "gelu"),
            dropout=keys.get("cls_dropout", float, block.dropout),
            dense_dropout=False,
        ),
        "ForTokenClassification": TokenHeadConfig(
            keys.labels(), dropout=keys.get("classifier_dropout", float, block.dropout)
        ),
        "ForQuestionAnswering": TokenHeadConfig(2, answer=True),
    }
    keys.only("tie_word_embeddings", True)
    return heads[kind]


def without_absent_positions(config: EncoderConfig, names: Sequence[str]) -> EncoderConfig:
    """The published files have the positions of the enhanced mask decoder. Those of the reference library have not: it
    predicts from the last hidden state, and a model that it trained is read so."""
    if any(name.endswith("embeddings.position_embeddings.weight") for name in names):
        return config
    head = config.head
    return replace(config, head=replace(head, mask_decoder=None)) if isinstance(head, LanguageHeadConfig) else config


def write(config: EncoderConfig, variant: DebertaVariant) -> dict[str, Any]:
    block, relative, embedding = config.stack.block, config.stack.relative, config.embedding
    assert isinstance(embedding, EmbeddingConfig)
    out: dict[str, Any] = {
        **encoder_keys(config.stack),
        "vocab_size": embedding.vocab,
        "type_vocab_size": embedding.segments,
        "position_biased_input": embedding.positions is not None,
        "relative_attention": relative is not None,
        "legacy": False,
    }
    decoder, conv = getattr(config.head, "mask_decoder", None), config.stack.convolution
    positions = embedding.positions if decoder is None else decoder.positions
    if isinstance(positions, LearnedConfig):
        out["max_position_embeddings"] = positions.count
    if conv is not None:
        out |= {"conv_kernel_size": conv.kernel, "conv_act": activation_name(conv.activation)}
    bias = block.attention.score_bias
    if isinstance(relative, RelativeVectorsConfig) and isinstance(bias, DisentangledConfig):
        out["pos_att_type"] = [name for name, on in (("p2c", bias.from_position), ("c2p", bias.to_position)) if on]
        out["max_relative_positions"] = relative.max_distance or relative.span
        if variant.second:
            out["position_buckets"] = relative.span if relative.max_distance else -1
            out["share_att_key"] = bias.shared
            out["norm_rel_ebd"] = "none" if relative.norm is None else "layer_norm"
    if isinstance(config.head, TokenHeadConfig) and config.head.dropout != block.dropout:
        out["classifier_dropout"] = config.head.dropout  # our own key: the reference library has that of the blocks
    if isinstance(config.head, ClassifyHeadConfig) and config.head.dense:
        out["pooler_hidden_act"] = activation_name(config.head.dense)
        out["cls_dropout"] = config.head.dropout
    return out


def rules(config: EncoderConfig, variant: DebertaVariant) -> list[AnyRule]:
    ours, theirs = "stack.blocks.{i}.", "{base}encoder.layer.{i}."
    own, layer = ours + "attention.", theirs + "attention.self."
    names = {
        "stack.relative.table": "{base}encoder.rel_embeddings",
        "stack.relative.norm": "{base}encoder.LayerNorm",
        "stack.convolution.norm": "{base}encoder.conv.LayerNorm",
        own + "score_bias.key": layer + ("pos_key_proj" if variant.second else "pos_proj"),
        own + "score_bias.query": layer + ("pos_query_proj" if variant.second else "pos_q_proj"),
    }
    projections: list[AnyRule]
    if variant.second:
        projections = [*modules({own + part: layer + f"{part}_proj" for part in ("query", "key", "value")})]
    else:
        weights = [own + f"{part}.weight" for part in ("query", "key", "value")]
        projections = [
            interleaved(weights, layer + "in_proj.weight", heads=config.stack.block.attention.heads),
            same(own + "query.bias", layer + "q_bias"),
            same(own + "value.bias", layer + "v_bias"),
        ]
    shared = [
        rule for rule in bert.encoder_rules() if not any(part in _first(rule) for part in (".query", ".key", ".value"))
    ]
    if config.stack.convolution is not None:
        kernel = config.stack.convolution.kernel
        projections.append(
            convolution("stack.convolution.conv.weight", "{base}encoder.conv.conv.weight", kernel=kernel)
        )
        projections.append(same("stack.convolution.conv.bias", "{base}encoder.conv.conv.bias"))
    return [*shared, *modules(names), *projections, *head_rules(config.head), *DROPPED]


def _first(rule: AnyRule) -> str:
    return getattr(rule, "ours", ("",))[0]


DROPPED = (
    Dropped("{base}embeddings.position_embeddings.*", "of the mask decoder, in the files of models with another head"),
    Dropped("mask_predictions.*", "pre-training's other half"),
    Dropped("lm_predictions.*", "pre-training's head, in the files of models with another"),
)


def head_rules(head: HeadConfig | None) -> list[AnyRule]:
    match head:
        case LanguageHeadConfig():
            new, old = "lm_predictions.lm_head.", "cls.predictions."
            older = {"dense.weight": "transform.dense.weight", "dense.bias": "transform.dense.bias", "bias": "bias"}
            older |= {f"LayerNorm.{leaf}": f"transform.LayerNorm.{leaf}" for leaf in ("weight", "bias")}
            return [
                same("head.mask_decoder.positions.table", "{base}embeddings.position_embeddings"),
                *modules({"head.dense": new + "dense", "head.norm": new + "LayerNorm", "head.bias": new + "bias"}),
                *(Alias(old + name, of=new + kept) for kept, name in older.items()),
                Alias(old + "decoder.bias", of=new + "bias"),
                Alias(old + "decoder.weight", of=bert.WORDS + ".weight"),
            ]
        case ClassifyHeadConfig():
            return [*modules({"head.dense": "pooler.dense", "head.project": "classifier"})]
        case TokenHeadConfig():
            return [same("head.project", "qa_outputs" if head.answer else "classifier")]
    return []


KINDS = ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def _family(name: str, variant: DebertaVariant) -> Family:
    return Family(
        name=name,
        architectures=tuple(variant.title + kind for kind in KINDS),
        read=lambda keys, architecture: read(keys, architecture, variant),
        write=lambda config: write(config, variant),
        rules=lambda config: rules(config, variant),
        architecture=lambda config: variant.title + bert.kind(config.head),
        base="deberta.",
        bare=(variant.title + "Model",),
        infer_from_tensors=without_absent_positions,
    )


FAMILIES = tuple(_family(name, variant) for name, variant in VARIANTS.items())
