"""`convert`: writes a model folder with its weights in another format, and a report of what that changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor

from headway.bundle import Bundle
from headway.checkpoints import resolve, save_bytes, save_json
from headway.checkpoints.files import pickled_weights
from headway.checkpoints.header import PICKLE_SUFFIXES, PICKLED, read_bounded
from headway.checkpoints.saved import save_folder
from headway.checkpoints.unpickle import unpickled_folder
from headway.checkpoints.word2vec import is_word2vec
from headway.data.builtin.manual import DOCUMENTS
from headway.data.text_reader import read_lines
from headway.engine.conversion_report import ConversionReport, OutputComparison
from headway.engine.weights import Int8, float_type, requested_weights, weight_bytes
from headway.errors import ConfigError, InputError
from headway.families import GLINER_FILE
from headway.files import is_present
from headway.generation import GenerationSettings, generate
from headway.jobs.import_whisper import import_whisper, require_options
from headway.jobs.run_folder import require_writable
from headway.lineage.import_elmo import import_elmo, weights_file
from headway.loading import load
from headway.preprocess.processor import MAX_BYTES

REPORT = "certificate.json"
COPIED = ("generation_config.json", "chat_template.jinja")  # files that a bundle does not write itself
WINDOW = 256  # tokens of one forward pass
TOKENS = 2048  # of the built-in text
ANSWER = 32  # tokens of a generated target
IMAGES = 16
ANY_SIZE = 96, 128  # height and width of a picture, for a model that takes any
SOUNDS = 2
FRAMES = 200  # of a sound, for a model that reads any length


@dataclass(frozen=True)
class Probe:
    """One input for both models."""

    inputs: dict[str, Tensor]
    targets: Tensor | None = None  # (length,) the tokens that follow in the text


def convert(
    model: str | Path,
    out: str | Path,
    *,
    to: str | None = None,
    group: int | None = None,
    text: str | Path | None = None,
    allow_pickle: bool = False,
    vocabulary: str | Path | None = None,
) -> ConversionReport:
    """Writes the model folder `out` with weights in the format `to`, and the report as certificate.json. `model` may
    also be a folder of ELMo's published files, whose weights are in HDF5; a file of word vectors; or a `.pt` file of
    OpenAI's Whisper, whose rank file is `vocabulary`. Pickles (this file, or a folder's pytorch_model.bin) are opened
    only if `allow_pickle` is set."""
    if weights_file(Path(model)) is not None:
        with TemporaryDirectory(prefix="headway-") as work:
            folder = import_elmo(Path(model)).save(work)
            return _convert(folder, new_folder(out), to=to or "fp32", group=group, text=text)
    if is_pickle_file(Path(model)):
        given = None if vocabulary is None else Path(vocabulary)
        require_options(Path(model), to=to, allow_pickle=allow_pickle, vocabulary=given)
        assert to is not None
        out = new_folder(out)
        with TemporaryDirectory(prefix="headway-") as work:
            folder = import_whisper(Path(model), Path(work), vocabulary=given)
            return _convert(folder, out, to=to, group=group, text=text)
    if to is None:
        raise ConfigError("convert needs the new type of the weights: --to int8, bf16, fp16 or fp32")
    if is_word2vec(Path(model)):
        return _convert(Path(model), new_folder(out), to=to, group=group, text=text)
    if vocabulary is not None:
        raise ConfigError(f"{model}: --vocabulary is for .pt files of OpenAI's Whisper")
    folder = resolve(model, pickles=allow_pickle)
    if allow_pickle and pickled_weights(folder) is not None:
        with TemporaryDirectory(prefix="headway-") as work:
            return _convert(unpickled_folder(folder, Path(work)), new_folder(out), to=to, group=group, text=text)
    return _convert(folder, new_folder(out), to=to, group=group, text=text)


def is_pickle_file(path: Path) -> bool:
    """Whether it is a pickle by itself, not the weights of a model folder."""
    return path.suffix in PICKLE_SUFFIXES and path.name != PICKLED and path.is_file() and not is_word2vec(path)


def _convert(folder: Path, out: Path, *, to: str, group: int | None, text: str | Path | None) -> ConversionReport:
    before, after = load(folder), _loaded(folder, to, group)
    report = compare(before, after, text=text)
    with save_folder(out) as work:
        write_along(after, folder, work)
        save_json(work / REPORT, report.to_dict())
    return report


def new_folder(out: str | Path) -> Path:
    if any(is_present(Path(out) / name) for name in ("config.json", GLINER_FILE)):
        raise ConfigError(f"{out}: already holds a model; name a folder that is new or empty")
    require_writable(Path(out))
    return Path(out)


def write_along(bundle: Bundle, folder: Path, out: Path) -> None:
    """Writes the files of the bundle to `out`, with those of its old folder that a bundle does not write."""
    bundle.write_files(out)
    for name in COPIED:
        if is_present(folder / name) and not is_present(out / name):
            save_bytes(out / name, read_bounded(folder / name, limit=MAX_BYTES))


def _loaded(folder: Path, to: str, group: int | None) -> Bundle:
    """The model with weights of the type `to`; a float type applies to every tensor."""
    wanted = requested_weights(to, group=group)
    assert wanted is not None
    return load(folder, weights=to, group=group) if isinstance(wanted, Int8) else load(folder, dtype=float_type(wanted))


@torch.no_grad()
def compare(before: Bundle, after: Bundle, *, text: str | Path | None = None) -> ConversionReport:
    """Compares the outputs of both models on the same text: a file, or the built-in manual."""
    texts, source = paragraphs(text)
    if before.model.inputs == "audio":
        probes, source = _sounds(before), f"{SOUNDS} sounds of noise"
    elif before.model.reads_source:
        probes = _generated_targets(before, texts, given=text is not None)
    elif before.model.inputs == "text":
        probes = _texts(before, texts, given=text is not None)
    else:
        probes, source = _images(before), f"{IMAGES} images of noise"
    comparison, tokens = OutputComparison(), 0
    for probe in probes:
        tokens += next(iter(probe.inputs.values())).numel()
        sides = [_output(bundle, probe.inputs) for bundle in (before, after)]
        if before.model.gives_logits:
            comparison.add_logits(*sides, targets=probe.targets)
        else:
            comparison.add_vectors(*sides)
        if before.model.head_kind == "detect":
            comparison.add_boxes(*(_boxes(bundle, probe.inputs) for bundle in (before, after)))
    if not comparison.compared:
        raise InputError(f"{text}: too short to measure on; give a longer text")
    return comparison.report(
        before=before.weights,
        after=after.weights,
        bytes_before=weight_bytes(before.model),
        bytes_after=weight_bytes(after.model),
        measured_on=source if "noise" in source else f"{source}, {tokens:,} tokens",
    )


def paragraphs(text: str | Path | None) -> tuple[list[str], str]:
    """(paragraphs, name of their source)."""
    if text is None:
        whole = "\n\n".join(row.fields["text"] for row in DOCUMENTS.rows(split="test"))
        return [part for part in whole.split("\n\n") if part.strip()], "the built-in text"
    path = Path(text)
    if not path.is_file():
        raise InputError(f"{path}: no such text file")
    return [line for _, line in read_lines(path) if line.strip()], str(path)


def _texts(bundle: Bundle, texts: Sequence[str], *, given: bool) -> Iterator[Probe]:
    """Windows of running text for a language model; else text by text."""
    window = min(WINDOW, bundle.model.max_length or WINDOW)
    if bundle.model.generates:
        first, whole = _first_ids(bundle), _encoded(bundle, ["\n".join(texts)], special=False)
        ids = whole[0][: None if given else TOKENS] if whole else []
        for start in range(0, len(ids) - 1, window - len(first)):
            part = [*first, *ids[start : start + window - len(first) + 1]]
            yield Probe({"input_ids": torch.tensor([part[:-1]])}, torch.tensor(part[1:]))
        return
    read = 0
    for ids in _encoded(bundle, texts):
        if not given and read >= TOKENS:
            return
        read += len(ids[:window])
        yield Probe({"input_ids": torch.tensor([ids[:window]])})


def _generated_targets(bundle: Bundle, texts: Sequence[str], *, given: bool) -> Iterator[Probe]:
    """Sources, with the targets that the model generates before the conversion."""
    start = bundle.model.start_id
    assert start is not None
    eos = bundle.foreign.get("eos_token_id")
    settings = GenerationSettings(max_new_tokens=ANSWER, eos_ids=(eos,) if isinstance(eos, int) else ())
    read = 0
    for ids in _encoded(bundle, texts):
        if not given and read >= TOKENS // 4:
            return
        source = ids[: WINDOW // 4]
        read += len(source)
        answer = generate(cast(Any, bundle.model), [[start]], settings, sources=[source])[0][0].ids
        inputs = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([[start, *answer[:-1]]])}
        yield Probe(inputs, torch.tensor(answer))


def _images(bundle: Bundle) -> Iterator[Probe]:
    front = cast(Any, bundle.model.parts[0].model.config).embedding
    noise, size = torch.Generator().manual_seed(0), getattr(front, "image", ANY_SIZE)
    yield Probe({"pixel_values": torch.randn(IMAGES, front.channels, *size, generator=noise)})


def _sounds(bundle: Bundle) -> Iterator[Probe]:
    """Noise as features, with the targets that the model generates before the conversion."""
    embedding, start = cast(Any, bundle.config).encoder.embedding, bundle.model.start_id
    assert start is not None
    noise, settings = torch.Generator().manual_seed(0), GenerationSettings(max_new_tokens=ANSWER)
    frames = embedding.max_length or FRAMES
    for _ in range(SOUNDS):
        features = torch.randn(frames, embedding.bins, generator=noise).cumsum(0).div(frames**0.5).clamp(-1, 1)
        features = features.to(next(bundle.model.parameters()).dtype)
        answer = generate(cast(Any, bundle.model), [[start]], settings, sources=[features])[0][0].ids
        inputs = {"input_features": features.T[None], "decoder_input_ids": torch.tensor([[start, *answer[:-1]]])}
        yield Probe(inputs, torch.tensor(answer))


def _encoded(bundle: Bundle, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
    """Token ids of each text; random ids for a model without a tokenizer."""
    if bundle.processor.tokenizer is not None:
        return [ids for ids in bundle.processor.tokenizer.encode_batch(texts, special=special) if ids]
    vocab = bundle.model.source_vocab_size
    assert vocab is not None
    return [torch.randint(vocab, (TOKENS,), generator=torch.Generator().manual_seed(0)).tolist()]


def _first_ids(bundle: Bundle) -> list[int]:
    """The special token at the beginning of every text, if any."""
    return [] if bundle.processor.tokenizer is None else bundle.processor.tokenizer.encode("")[:1]


def _output(bundle: Bundle, inputs: dict[str, Tensor]) -> Tensor:
    """(position, choice) logits, or (text, width) for a model that gives vectors."""
    logits = bundle.logits(**_for_model(bundle, inputs))
    if not bundle.model.gives_logits:
        logits = logits.mean(1)  # over the tokens
    return logits.flatten(0, -2).float().cpu()


def _boxes(bundle: Bundle, inputs: dict[str, Tensor]) -> Tensor:  # (query, 4)
    return bundle.boxes(**_for_model(bundle, inputs)).flatten(0, -2).float().cpu()


def _for_model(bundle: Bundle, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """On the model's device, numbers in its data type."""
    inputs = {name: tensor.to(bundle.device) for name, tensor in inputs.items()}
    for name in ("pixel_values", "input_features"):
        if name in inputs:
            inputs[name] = inputs[name].to(next(bundle.model.parameters()).dtype)
    return inputs
