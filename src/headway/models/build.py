"""Config in, module out."""

from __future__ import annotations

import torch
from torch import nn

from headway.models.bilm import BiLM
from headway.models.config import (
    BiLMConfig,
    DecoderConfig,
    DetectorConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    EnsembleConfig,
    FlowConfig,
    ModelConfig,
    RecurrentConfig,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    SpanScorerConfig,
    TwoStreamConfig,
)
from headway.models.config_checks import validate
from headway.models.decoder import Decoder
from headway.models.detector import Detector
from headway.models.encoder import Encoder
from headway.models.encoder_decoder import EncoderDecoder
from headway.models.ensemble import Ensemble
from headway.models.flow import FlowModel
from headway.models.recurrent import RecurrentEncoderDecoder
from headway.models.recurrent_stack import RecurrentDecoder, RecurrentEncoder
from headway.models.span_scorer import SpanScorer
from headway.models.two_stream import TwoStream

Recurrent = RecurrentEncoder | RecurrentDecoder | RecurrentEncoderDecoder
Model = Encoder | Decoder | EncoderDecoder | Recurrent | FlowModel | Detector | TwoStream | BiLM | SpanScorer | Ensemble


def build(config: ModelConfig, *, device: str | torch.device | None = None) -> Model:
    """`device="meta"` builds the shape without its memory, for weights that are about to be loaded."""
    validate(config)
    with torch.device(device or "cpu"):
        match config:
            case EncoderConfig():
                return Encoder(config)
            case DecoderConfig():
                return Decoder(config)
            case EncoderDecoderConfig():
                return EncoderDecoder(config)
            case RecurrentConfig():
                return RecurrentEncoderDecoder(config)
            case RecurrentEncoderConfig():
                return RecurrentEncoder(config)
            case RecurrentDecoderConfig():
                return RecurrentDecoder(config)
            case FlowConfig():
                return FlowModel(config)
            case DetectorConfig():
                return Detector(config)
            case BiLMConfig():
                return BiLM(config)
            case TwoStreamConfig():
                return TwoStream(config)
            case SpanScorerConfig():
                return SpanScorer(config)
            case EnsembleConfig():
                return Ensemble(config, build(config.model))


def tensor_names(model: nn.Module) -> list[str]:
    """Every tensor of the model's state by one name each; a shared embedding counts once."""
    parameters = [name for name, _ in model.named_parameters()]
    buffers = [name for name, _ in model.named_buffers()]
    return parameters + ([name for name in buffers if name in model.state_dict()] if buffers else [])
