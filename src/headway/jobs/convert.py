"""`convert`: writes a model folder with its weights in another format, and a report of what that changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from headway.bundle import Bundle, load
from headway.checkpoints import resolve, save_json
from headway.data.builtin.manual import DOCUMENTS
from headway.data.text_reader import read_lines
from headway.engine.conversion_report import Comparison, ConversionReport
from headway.engine.weights import Int8, float_type, requested_weights, weight_bytes
from headway.errors import ConfigError, InputError
from headway.generation import GenerationSettings, generate
from headway.models.config import DecoderConfig, EncoderDecoderConfig, LanguageHeadConfig, PoolerConfig, RecurrentConfig

REPORT = "certificate.json"
ALONG = ("generation_config.json", "chat_template.jinja")  # what a folder may hold beside what a bundle saves
WINDOW = 256  # tokens read together
TOKENS = 2048  # of the built-in text
ANSWER = 32  # tokens of an encoder-decoder's answer
IMAGES = 16


@dataclass(frozen=True)
class Probe:
    """Something to ask both models."""

    inputs: dict[str, Tensor]
    targets: Tensor | None = None  # the tokens that really follow


def convert(
    model: str | Path, out: str | Path, *, to: str, group: int | None = None, text: str | Path | None = None
) -> ConversionReport:
    """Writes the model folder `out` with weights in the format `to`, and the report as certificate.json."""
    folder, out = resolve(model), new_folder(out)
    before, after = load(folder), _loaded(folder, to, group)
    report = compare(before, after, text=text)
    save_along(after, folder, out)
    save_json(out / REPORT, report.to_dict())
    return report


def new_folder(out: str | Path) -> Path:
    if (Path(out) / "config.json").exists():
        raise ConfigError(f"{out}: there is a model already; name a folder that is new or empty")
    return Path(out)


def save_along(bundle: Bundle, folder: Path, out: Path) -> None:
    """The bundle, with what its first folder holds beside it."""
    bundle.save(out)
    for name in ALONG:
        if (folder / name).is_file() and not (out / name).exists():
            (out / name).write_bytes((folder / name).read_bytes())


def _loaded(folder: Path, to: str, group: int | None) -> Bundle:
    """Floats are made all of one type, as every library keeps them."""
    asked = requested_weights(to, group=group)
    assert asked is not None
    return load(folder, weights=to, group=group) if isinstance(asked, Int8) else load(folder, dtype=float_type(asked))


@torch.no_grad()
def compare(before: Bundle, after: Bundle, *, text: str | Path | None = None) -> ConversionReport:
    """The same text read by both: a file's, or the built-in manual's."""
    texts, source = paragraphs(text)
    if isinstance(before.config, EncoderDecoderConfig | RecurrentConfig):
        probes = _answers(before, texts, given=text is not None)
    elif hasattr(before.config.embedding, "vocab"):
        probes = _readings(before, texts, given=text is not None)
    else:
        probes, source = _pictures(before), f"{IMAGES} images of noise"
    comparison, tokens = Comparison(), 0
    for probe in probes:
        tokens += next(iter(probe.inputs.values())).numel()
        sides = [_output(bundle, probe.inputs) for bundle in (before, after)]
        if _chooses(before):
            comparison.add_logits(*sides, targets=probe.targets)
        else:
            comparison.add_vectors(*sides)
    if not comparison.compared:
        raise InputError(f"{text}: too short to measure anything on; give a longer text")
    return comparison.report(
        before=before.weights,
        after=after.weights,
        bytes_before=weight_bytes(before.model),
        bytes_after=weight_bytes(after.model),
        measured_on=source if "noise" in source else f"{source}, {tokens:,} tokens",
    )


def paragraphs(text: str | Path | None) -> tuple[list[str], str]:
    """(texts, where they are from)."""
    if text is None:
        whole = "\n\n".join(row.fields["text"] for row in DOCUMENTS.rows(split="test"))
        return [part for part in whole.split("\n\n") if part.strip()], "the built-in text"
    path = Path(text)
    if not path.is_file():
        raise InputError(f"{path}: no such text file")
    return [line for _, line in read_lines(path) if line.strip()], str(path)


# ---------------------------------------------------------------------------------------- what is asked


def _readings(bundle: Bundle, texts: Sequence[str], *, given: bool) -> Iterator[Probe]:
    """Running text in windows for a decoder that writes; else text by text."""
    config = bundle.config
    window = min(WINDOW, bundle.model.max_length or WINDOW)
    if isinstance(config, DecoderConfig) and isinstance(config.head, LanguageHeadConfig):
        first, whole = _first(bundle), _encoded(bundle, ["\n".join(texts)], special=False)
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


def _answers(bundle: Bundle, texts: Sequence[str], *, given: bool) -> Iterator[Probe]:
    """An encoder-decoder is held to the answers that it gave before."""
    start = cast(Any, bundle.config).start_id
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


def _pictures(bundle: Bundle) -> Iterator[Probe]:
    embedding = cast(Any, bundle.config).embedding
    noise = torch.Generator().manual_seed(0)
    yield Probe({"pixel_values": torch.randn(IMAGES, embedding.channels, *embedding.image, generator=noise)})


def _encoded(bundle: Bundle, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
    """A model without a tokenizer reads tokens drawn at random."""
    if bundle.processor.tokenizer is not None:
        return [ids for ids in bundle.processor.tokenizer.encode_batch(texts, special=special) if ids]
    embedding = cast(Any, getattr(bundle.config, "encoder", bundle.config)).embedding
    draw = torch.Generator().manual_seed(0)
    return [torch.randint(embedding.vocab, (TOKENS,), generator=draw).tolist()]


def _first(bundle: Bundle) -> list[int]:
    """What the tokenizer begins every text with."""
    return [] if bundle.processor.tokenizer is None else bundle.processor.tokenizer.encode("")[:1]


# ---------------------------------------------------------------------------------------- what is answered


def _chooses(bundle: Bundle) -> bool:
    """Whether the model's output is a choice among tokens or labels, and not a vector."""
    head = getattr(bundle.config, "head", None)
    if isinstance(bundle.config, EncoderDecoderConfig | RecurrentConfig):
        return True
    return head is not None and not (isinstance(head, PoolerConfig) and not (head.language or head.next_sentence))


def _output(bundle: Bundle, inputs: dict[str, Tensor]) -> Tensor:
    """(place, choice), or (text, width) for a model that gives vectors."""
    inputs = {name: tensor.to(bundle.device) for name, tensor in inputs.items()}
    if "pixel_values" in inputs:
        inputs["pixel_values"] = inputs["pixel_values"].to(next(bundle.model.parameters()).dtype)
    if isinstance(bundle.config, RecurrentConfig):
        logits = bundle.model(inputs["input_ids"], decoder_ids=inputs["decoder_input_ids"]).logits
    else:
        logits = bundle.logits(**inputs)
    if not _chooses(bundle):
        logits = logits.mean(1)  # over the tokens
    return logits.flatten(0, -2).float().cpu()
