"""`transcribe`: the text of a recording, with an encoder-decoder over log-mel frames (Whisper, Radford et al. 2022).

A published Whisper transcribes recordings of any length by the rules of openai/whisper (long_form.py). A model trained
from scratch reads clips of any length up to its limit, without padding; longer recordings are cut where they are
quietest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.builtin.pool import Builtin
from headway.data.builtin.tones import SPOKEN_DIGITS
from headway.data.facts import Facts
from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.generation import GenerationSettings, Session
from headway.generation.prefill import padded_vectors
from headway.kinds.inputs import InputKind, SoundInput
from headway.kinds.predictions import PredictionKind, TranscriptPrediction
from headway.models import recipes
from headway.models.config import ModelConfig
from headway.models.protocol import Model
from headway.models.recipes import Recipe, Size
from headway.preprocess.audio import Sound
from headway.preprocess.audio_processor import AudioProcessor
from headway.preprocess.feature_stream import FeatureStream
from headway.preprocess.log_mel import log_mels
from headway.preprocess.processor import Processor
from headway.preprocess.sound_augment import changed_features, changed_sound
from headway.preprocess.speech_tokens import SpeechTokens, language_code, text_of
from headway.preprocess.text import Tokenizer
from headway.tasks import scores, sound_settings
from headway.tasks.clips import clip_queries
from headway.tasks.ctc import ctc_loss
from headway.tasks.distributed import chunks, distributed_map
from headway.tasks.evaluated import Evaluated
from headway.tasks.long_form import TEMPERATURES, Decoding, Recording, run_together
from headway.tasks.task import IGNORE, Choice, Example, Task, device_of, ids_array, pad, without_none
from headway.tasks.text_predictions import Transcripts
from headway.tasks.transcripts import OnProgress, OnSegment, Transcript
from headway.tasks.word_timing import default_heads

TOGETHER = 16  # recordings that are decoded at a time
ENGLISH_END = 50256  # id of the end in the vocabulary for English alone
PAIRS_FROM = 200_000  # characters of all texts from which on a vocabulary of byte pairs pays
CALL_OPTIONS = ("on_segment", "on_progress")


@dataclass
class Transcribe(Task):
    name: ClassVar[str] = "transcribe"
    builtin: ClassVar[Builtin] = SPOKEN_DIGITS
    fields: ClassVar[tuple[str, ...]] = ("audio", "text")
    input_kind: ClassVar[InputKind] = SoundInput()
    prediction_kind: ClassVar[PredictionKind] = TranscriptPrediction()
    metric: ClassVar[str] = "wer"
    stacks: ClassVar[int] = 2

    vocab: int = 0  # 0: characters, or byte pairs where there is much text
    limit: float = 30.0  # seconds of the longest recording in training; longer ones are left out and counted
    target_limit: int = 200  # tokens
    label_smoothing: float = 0.1
    ctc: float = 0.3  # weight of the encoder's auxiliary loss; 0: none
    stride: int = sound_settings.STRIDE  # frames that become one vector of a model from scratch
    augment: bool = True
    language: str = ""  # spoken in the training data of a multilingual model; empty: English, or detected
    timestamps: bool = True  # False: trained on texts without them
    start_id: int = 0
    loaded_processor: AudioProcessor | None = field(default=None, repr=False)  # of the folder

    # --- before training

    @classmethod
    def train_defaults(cls, recipe: str) -> dict[str, Any]:
        if recipe == "finetune":
            return {"epochs": 3, "batch": 8, "lr": 1e-5}
        return {"epochs": 40, "batch": 32}

    @classmethod
    def choose_settings(cls, facts: Facts, *, recipe: str, given: Mapping[str, Any]) -> Choice:
        return sound_settings.choose(facts, recipe=recipe, given=given)

    @classmethod
    def from_data(cls, facts: Facts, *, tokenizer: Tokenizer | None, options: dict[str, Any]) -> Self:
        task = cls(tokenizer=tokenizer, **options)  # type: ignore[arg-type]
        task.timestamps = False
        if tokenizer is None:
            characters = facts.total(lambda row: len(row.fields["text"]))
            pairs = characters > PAIRS_FROM
            size = task.vocab or (max(300, min(8000, characters // 600)) if pairs else 1000)
            texts = (row.fields["text"] for row in facts.rows)
            task.tokenizer = Tokenizer.train(texts, kind="bpe" if pairs else "char", size=size)
            assert task.tokenizer.bos_id is not None
            task.start_id = task.tokenizer.bos_id
        return task

    @property
    def audio(self) -> AudioProcessor:
        return self.loaded_processor or AudioProcessor(chunk_length=max(1, -int(-self.limit // 1)))

    def processor(self, base: Processor) -> Processor:
        return base.with_tokenizer(self.tokenizer).with_audio(self.audio)

    def use_processor(self, processor: Processor) -> None:
        super().use_processor(processor)
        self.loaded_processor = processor.require_audio(self.name)

    def config(self, size: Size, recipe: Recipe) -> ModelConfig:
        return recipes.speech(
            size, recipe, bins=self.audio.bins, strides=recipes.speech_strides(self.stride),
            frames=self.audio.chunk_frames, vocab=len(self.tokenizer), context=1 + self.target_limit,
            start_id=self.start_id, ctc=self.ctc > 0,
        )  # fmt: skip

    def adapt(self, model: Model) -> Model:
        if model.inputs != "audio" or not model.reads_source or model.start_id is None:
            raise ConfigError(
                f"task {self.name} starts from an encoder-decoder over sound (Whisper), not from this {model.shape} of "
                f"{model.inputs}"
            )
        self.start_id = model.start_id
        if model.max_context is not None:
            self.target_limit = min(self.target_limit, model.max_context - 1 - len(self.first_ids()))
        return model

    @property
    def tokens(self) -> SpeechTokens | None:
        """The control tokens of a Whisper's vocabulary; None for a model that was trained here from scratch."""
        english = SpeechTokens.of(self.tokenizer, multilingual=False)
        several = self.generation_defaults.stored.get("is_multilingual")
        if several is None and english is not None:
            several = english.end > ENGLISH_END
        return SpeechTokens.of(self.tokenizer, multilingual=True) if several else english

    def first_ids(self) -> list[int]:
        """What every target begins with behind the start token: language and task of a Whisper, without timestamps."""
        tokens = self.tokens
        if tokens is None:
            return []
        language = language_code(self.language or "en", tokens.languages) if tokens.languages else "en"
        return tokens.forced(language=language, task="transcribe", timestamps=False)

    # --- training

    def sound(self, value: Any, *, where: str, error: Any = DataError) -> Sound:
        return Sound(value, self.audio.sampling_rate, where, error)

    def target_ids(self, text: str, *, where: str) -> list[int]:
        end = self.tokenizer.eos_id
        spaced = f" {text.strip()}" if self.tokens is not None else text.strip()
        ids = self.tokenizer.encode(self.require_text(spaced, where=where), special=False)
        ids = ids if end is None else [*ids, end]
        return self.truncation.apply(ids, self.target_limit, part="target", where=where, last=end)

    def examples(self, row: Row) -> list[Example]:
        """None for a recording over the limit, which is counted: a text that goes with half a sound teaches nothing."""
        sound = self.sound(row.fields["audio"], where=row.where)
        target = self.target_ids(row.fields["text"], where=row.where)
        frames = round(sound.header.seconds * self.audio.frames_per_second)
        if self.truncation.exceeds(frames, self.frame_limit, part="recording", where=row.where):
            return []
        samples = (sound.read().clip(-1, 1) * 32767).round().astype(np.int16)
        return [{"sound": samples, "target": ids_array(target)}]

    @property
    def frame_limit(self) -> int:
        return min(round(self.limit * self.audio.frames_per_second), self.audio.chunk_frames)

    def length(self, example: Example) -> int:
        return max(1, len(example["sound"]) // self.audio.hop_length)

    def collate(self, examples: Sequence[Example], *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
        """Augmented where the examples have seeds."""
        randoms = [np.random.default_rng(seed) for seed in seeds if seed and self.augment]
        sounds = [example["sound"].astype(np.float32) / 32768 for example in examples]
        if randoms:
            rate = self.audio.sampling_rate
            sounds = [changed_sound(sound, rate, random) for sound, random in zip(sounds, randoms, strict=True)]
        features = self.features(sounds)
        inputs, mask = padded_vectors(features, device=torch.device("cpu"))
        if randoms:
            inputs = changed_features(inputs, [len(each) for each in features], randoms)
        arguments = without_none(inputs=inputs, padding_mask=mask)
        if "target" not in examples[0]:
            return Batch(arguments, {}, count=len(examples), where=where)
        targets = [example["target"] for example in examples]
        first = self.first_ids()
        shifted = pad([[self.start_id, *first, *target[:-1]] for target in targets], self.tokenizer.pad_id or 0)
        skipped = [IGNORE] * len(first)  # given, not predicted
        wanted = pad([[*skipped, *target] for target in targets], IGNORE)
        return Batch({**arguments, "decoder_ids": shifted}, {"ids": wanted}, count=sum(map(len, targets)), where=where)

    def features(self, sounds: Sequence[np.ndarray]) -> list[Tensor]:
        """(frame, bin) of each sound: of any length, or of a whole chunk for a Whisper, which was trained on those."""
        if self.tokens is not None:
            size = self.audio.chunk_samples
            sounds = [np.pad(sound[:size], (0, max(0, size - len(sound)))) for sound in sounds]
        return log_mels(list(sounds), self.audio.mel)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Cross-entropy; in training also CTC, where the encoder has a head for it."""
        output = model(**batch.inputs)
        smoothing = self.label_smoothing if model.training else 0.0
        wanted = batch.targets["ids"]
        total = F.cross_entropy(
            output.logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORE, label_smoothing=smoothing,
            reduction="sum",
        )  # fmt: skip
        if output.memory_logits is None or not model.training:
            return Loss(total)
        inputs, mask, end = batch.inputs["inputs"], batch.inputs.get("padding_mask"), self.tokenizer.eos_id
        frames = inputs.new_full((len(inputs),), inputs.shape[1]).long() if mask is None else mask.sum(1)
        spoken = wanted if end is None else wanted.masked_fill(wanted == end, IGNORE)
        ctc = ctc_loss(output.memory_logits, frames, spoken, stride=self.stride, ignored=IGNORE)
        return Loss(total + self.ctc * ctc, {"ctc": ctc})

    # --- inference

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The transcript of each recording: a dict with its text, its segments and the language, as openai/whisper's.
        `language`, `task` (transcribe or translate) and `words` (with timings) are a Whisper's options."""
        call = {name: options.pop(name) for name in CALL_OPTIONS if name in options}
        self.refuse_options(options, *self.prediction_kind.options)
        return [transcript.to_dict() for transcript in self.transcripts(model, inputs, options, **call)]

    def transcripts(
        self,
        model: Model,
        inputs: Sequence[Any],
        options: Mapping[str, Any],
        *,
        on_segment: OnSegment | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[Transcript]:
        """`on_segment` and `on_progress` are called for the first input."""
        sounds = [self.sound(value, where=f"input {n}", error=InputError) for n, value in enumerate(inputs, 1)]
        queries = self._whisper(model, options) or self._clips(model, options)

        listeners = [(on_segment, on_progress), *[(None, None)] * (len(sounds) - 1)]
        recordings = [queries(sound, *each) for sound, each in zip(sounds, listeners, strict=False)]
        return run_together(Session(model, prefill_tokens=None), recordings, most=TOGETHER)

    def _whisper(self, model: Model, options: Mapping[str, Any]) -> Any:
        """How a Whisper's recordings are decoded; None if the model is none."""
        tokens = self.tokens
        if tokens is None:
            return None
        defaults, decoder = self.generation_defaults, model.parts[-1].model
        language = options.get("language") or self.language or None
        if not tokens.languages and language is not None and language_code(language, ["en"]) != "en":
            raise InputError(f"language {language!r}: the model knows English alone")
        if options.get("task") == "translate" and not tokens.languages:
            raise InputError("task 'translate': the model knows English alone and does not translate")
        if options.get("task", "transcribe") not in ("transcribe", "translate"):
            raise InputError(f"task {options['task']!r}: choose transcribe or translate")
        heads = defaults.stored.get("alignment_heads") or default_heads(decoder)
        given = options.get("temperature")
        embedding = model.parts[0].model.config.embedding
        how = Decoding(
            model=model,
            tokens=tokens,
            text_of=lambda ids: text_of(ids, self.tokenizer, end=tokens.end),
            bytes_of=self.tokenizer.bytes_of,
            stride=embedding.stride,
            window=embedding.max_length,
            frames_per_second=self.audio.frames_per_second,
            language=language_code(language, tokens.languages) if language and tokens.languages else None,
            task=options.get("task", "transcribe"),
            timestamps=self.timestamps,
            words=bool(options.get("words")),
            beams=options.get("beams", 1),
            temperatures=TEMPERATURES if given is None else (float(given),),
            seed=options.get("seed") or 0,
            suppress=tuple(defaults.options.get("suppress_ids", ())),
            begin_suppress=tuple(defaults.options.get("begin_suppress_ids", ())),
            latest_start=defaults.stored.get("max_initial_timestamp_index", 50),
            heads=tuple((int(layer), int(head)) for layer, head in heads),
        )
        return lambda sound, on_segment, on_progress: Recording(
            how, FeatureStream(sound, self.audio), on_segment, on_progress
        ).queries()

    def _clips(self, model: Model, options: Mapping[str, Any]) -> Any:
        """How recordings are decoded by a model that was trained from scratch."""
        for name in ("language", "task", "words"):
            if options.get(name):
                raise InputError(f"--{name} is for Whisper models; this one was trained from scratch")
        settings = GenerationSettings(
            max_new_tokens=self.target_limit,
            beams=options.get("beams", 1),
            temperature=options.get("temperature") or 0.0,
            seed=options.get("seed"),
            eos_ids=() if self.tokenizer.eos_id is None else (self.tokenizer.eos_id,),
        )
        return lambda sound, on_segment, on_progress: clip_queries(
            FeatureStream(sound, self.audio), self.frame_limit, [self.start_id], settings, self.tokenizer,
            device=device_of(model), on_segment=on_segment, on_progress=on_progress,
        )  # fmt: skip

    # --- scores

    def evaluate(self, model: Model, rows: Iterable[Row], **options: Any) -> dict[str, float]:
        return self.predictions(model, rows, **options).scores()

    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """Word and character error rates, of the texts as they are and without case and punctuation; exact matches;
        loss per token. Options: `beams`; `quick`, one greedy pass."""
        self.refuse_options(options, "beams", "quick")
        rows = list(rows)
        search: dict[str, Any] = {} if options.get("beams") is None else {"beams": options["beams"]}
        if options.get("quick"):
            search["temperature"] = 0.0

        def work(part: Sequence[Row]) -> list[str]:
            audio = [row.fields["audio"] for row in part]
            return [transcript.text.strip() for transcript in self.transcripts(model, audio, search)]

        found = [text for _, texts in distributed_map(chunks(rows, TOGETHER), work) for text in texts]
        wanted = [row.fields["text"].strip() for row in rows]
        examples = [example for row in rows for example in self.examples(row)]
        with torch.no_grad():
            loss = self.mean_loss(model, examples)
        values = {"loss": loss, **scores.recognition(found, wanted)}
        return Transcripts(values, rows, found, [[text] for text in wanted], ())

    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        return self.evaluate(model, rows, quick=True)

    def search(self, model: Model, **options: Any) -> str:
        self.refuse_options(options, "beams")
        beams = options.get("beams", 1)
        return f"beam search, {beams} beams" if beams > 1 else "greedy search"

    def signature(self) -> str:
        return scores.recognition_signature()

    def token_lengths(self, row: Row) -> dict[str, int]:
        sound = self.sound(row.fields["audio"], where=row.where)
        frames = round(sound.header.seconds * self.audio.frames_per_second)
        return {"recording": frames, "target": 1 + len(self.tokenizer.encode(row.fields["text"], special=False))}

    def length_limits(self) -> dict[str, int]:
        return {"recording": self.frame_limit, "target": self.target_limit}
