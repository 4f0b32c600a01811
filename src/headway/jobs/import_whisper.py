"""OpenAI's Whisper file (`tiny.en.pt`) → a model folder in the Hugging Face layout, with its tokenizer."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.bundle import Bundle
from headway.checkpoints.assign import assign
from headway.checkpoints.rules import to_ours
from headway.checkpoints.unpickle import unpickled
from headway.errors import CheckpointError, ConfigError
from headway.families import whisper_openai
from headway.families.family import Keys
from headway.families.whisper import FAMILY
from headway.generation.defaults import GenerationDefaults
from headway.models.build import build, tensor_names
from headway.preprocess.audio_processor import AudioProcessor
from headway.preprocess.processor import Processor
from headway.preprocess.rank_files import whisper_tokenizer
from headway.preprocess.speech_tokens import SpeechTokens, non_speech_ids
from headway.preprocess.text import Tokenizer

STATE = "model_state_dict."


def import_whisper(path: Path, folder: Path, *, vocabulary: Path | None) -> Path:
    """Writes the model in `path`, whose pickle the user has allowed to open, into `folder`/model."""
    values, found = unpickled(path, folder)
    dims = {name.removeprefix("dims."): value for name, value in values.items() if name.startswith("dims.")}
    tensors = {name.removeprefix(STATE): name for name in found if name.startswith(STATE)}
    if not dims or not tensors:
        raise CheckpointError(f"{path}: no dims and model_state_dict in it, so this is not a Whisper model of OpenAI's")
    return _bundle(path, dims, Renamed(found, tensors), vocabulary=vocabulary).save(folder / "model")


def require_options(path: Path, *, to: str | None, allow_pickle: bool, vocabulary: Path | None) -> None:
    """Raise unless everything that the conversion needs is given; the message lists all that is missing."""
    missing = []
    if not allow_pickle:
        missing.append(
            "--allow-pickle, if you trust its source (it is a pickle, which can run code when it is opened; its "
            "tensors alone are read, in a process of their own)"
        )
    if to is None:
        missing.append("--to fp32 (or fp16, bf16, int8), the type of the new weights")
    if vocabulary is None and installed_vocabulary(multilingual=True) is None:
        several, english = rank_file_name(multilingual=True), rank_file_name(multilingual=False)
        missing.append(
            f"--vocabulary {several} ({english} if the name of the model ends in .en) from the folder whisper/assets "
            "of the package openai-whisper, or install that package"
        )
    if missing:
        raise ConfigError(f"{path}: a file of OpenAI's Whisper also needs " + "; ".join(missing))


class Renamed(Mapping[str, Tensor]):
    """Tensors under other names, read when they are used."""

    def __init__(self, tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> None:
        self.tensors, self.names = tensors, names

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[self.names[name]]

    def __iter__(self) -> Any:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _bundle(path: Path, dims: dict[str, Any], tensors: Mapping[str, Tensor], *, vocabulary: Path | None) -> Bundle:
    sizes = whisper_openai.sizes_of(dims, name=str(path))
    vocab = sizes["n_vocab"]
    multilingual = whisper_openai.is_multilingual(vocab)
    ranks = vocabulary or installed_vocabulary(multilingual=multilingual)
    if ranks is None:
        name = rank_file_name(multilingual=multilingual)
        raise ConfigError(
            f"{path}: the file holds no vocabulary. Give the one of openai-whisper with --vocabulary {name} (in the "
            "folder whisper/assets of that package), or install openai-whisper"
        )
    tokenizer = whisper_tokenizer(ranks, languages=whisper_openai.language_count(vocab))
    if len(tokenizer) != vocab:
        raise ConfigError(f"{ranks}: a vocabulary of {len(tokenizer):,} tokens, but the model has {vocab:,}")
    ids = generation_ids(tokenizer, multilingual=multilingual)
    foreign = whisper_openai.config_json(sizes, end=ids["eos_token_id"])
    config: Any = FAMILY.read(Keys(foreign), FAMILY.architectures[0])
    model = build(config, device="meta")
    state = to_ours(tensors, whisper_openai.rules(config), tensor_names(model))
    assign(model, state, dtype=None, device=torch.device("cpu"))
    stored = whisper_openai.generation_json(config, ids=ids, name=path.stem)
    processor = Processor(tokenizer, audio=AudioProcessor(bins=config.encoder.embedding.bins))
    return Bundle(model.eval(), FAMILY.name, processor, foreign=foreign, generation=GenerationDefaults(stored=stored))


def rank_file_name(*, multilingual: bool) -> str:
    return "multilingual.tiktoken" if multilingual else "gpt2.tiktoken"


def installed_vocabulary(*, multilingual: bool) -> Path | None:
    """The rank file of an installed openai-whisper, which is not imported."""
    spec = importlib.util.find_spec("whisper")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "assets" / rank_file_name(multilingual=multilingual)
        if path.is_file():
            return path
    return None


def generation_ids(tokenizer: Tokenizer, *, multilingual: bool) -> dict[str, Any]:
    """The keys of generation_config.json that follow from the vocabulary."""
    tokens = SpeechTokens.of(tokenizer, multilingual=multilingual)
    assert tokens is not None
    out: dict[str, Any] = {
        "decoder_start_token_id": tokens.start,
        "bos_token_id": tokens.end,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.end,
        "suppress_tokens": sorted({*non_speech_ids(tokenizer), *tokens.never_generated()}),
        "begin_suppress_tokens": [*tokenizer.encode(" ", special=False), tokens.end],
        "is_multilingual": multilingual,
        "no_timestamps_token_id": tokens.no_timestamps,
        "prev_sot_token_id": tokens.previous,
    }
    if multilingual:
        out["lang_to_id"] = {f"<|{code}|>": token for code, token in tokens.languages.items()}
        out["task_to_id"] = {"transcribe": tokens.transcribe, "translate": tokens.translate}
    return out
