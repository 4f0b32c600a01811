"""The generation defaults of a published model: `generation_config.json`, or the generation keys of `config.json`.

As in the reference library the first file, where there is one, is the only source. Every key is read into an option of
`GenerationSettings`, ignored knowingly (it does not change what is generated), or refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.checkpoints import read_json
from headway.errors import ConfigError
from headway.files import is_present
from headway.generation.settings import GenerationSettings

FILE = "generation_config.json"
TOP_K = 50  # what an absent top_k means where do_sample is true

PLAIN = {  # key → option, with the same value
    "max_new_tokens": "max_new_tokens",
    "min_new_tokens": "min_new_tokens",
    "max_length": "max_length",
    "min_length": "min_length",
    "num_beams": "beams",
    "num_beam_groups": "groups",
    "diversity_penalty": "diversity_penalty",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "num_return_sequences": "n",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "bad_words_ids": "bad_words",
    "suppress_tokens": "suppress_ids",
    "begin_suppress_tokens": "begin_suppress_ids",
    "forced_bos_token_id": "forced_bos_id",
    "renormalize_logits": "renormalize",
    "stop_strings": "stop",
}
FORCED = "forced_decoder_ids"  # [[position, id], …], the start token at position 0
SPEECH = (  # of a model of speech, read by the task transcribe
    "alignment_heads", "is_multilingual", "lang_to_id", "task_to_id", "max_initial_timestamp_index",
    "no_timestamps_token_id", "prev_sot_token_id", "return_timestamps", "language", "task",
)  # fmt: skip
ONE_OR_SEVERAL = {"eos_token_id": "eos_ids", "forced_eos_token_id": "forced_eos_ids"}
SAMPLING = ("do_sample", "temperature")
START = "decoder_start_token_id"
READ = (*PLAIN, *ONE_OR_SEVERAL, *SAMPLING, START, FORCED)

# Keys that follow from the model and its vocabulary; the others say how to search, which a task trained here decides.
TOKENS = (*ONE_OR_SEVERAL, START, FORCED, "bad_words_ids", "suppress_tokens", "begin_suppress_tokens",
          "forced_bos_token_id", "renormalize_logits")  # fmt: skip
SEARCH = tuple(key for key in READ if key not in TOKENS)

REFUSED: dict[str, tuple[Any, ...]] = {  # they change what is generated; the values listed mean "off"
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "exponential_decay_length_penalty": (),
    "sequence_bias": (),
    "guidance_scale": (1.0,),
    "watermarking_config": (),
    "penalty_alpha": (0.0,),
    "dola_layers": (),
    "constraints": (),
    "force_words_ids": (),
    "top_h": (),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "max_time": (),
    "token_healing": (False,),
}
KEYS = (*READ, *REFUSED)  # that config.json may have too
IGNORED = (  # speed, memory, form of the output, bookkeeping; an invalid score is an error here in any case
    "_from_model_config", "transformers_version", "bos_token_id", "pad_token_id", "use_cache", "cache_implementation",
    "cache_config", "max_cache_len", "return_legacy_cache", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits", "return_dict_in_generate", "remove_invalid_values", "low_memory",
    "prefill_chunk_size", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit",
    "assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight", "speculation_type", "use_mtp",
    "compile_config", "disable_compile", "continuous_batching_config", "generation_kwargs",
)  # fmt: skip


@dataclass(frozen=True)
class GenerationDefaults:
    """`options` are fields of GenerationSettings, `start_id` is what an answer to a source begins with."""

    options: Mapping[str, Any] = field(default_factory=dict)
    start_id: int | None = None
    stored: Mapping[str, Any] = field(default_factory=dict)  # the keys as the file has them
    file: str = ""  # its name; empty: the model's files say nothing

    def tokens_only(self) -> GenerationDefaults:
        """Without what says how to search: for a model that is trained further for a task."""
        stored = {key: value for key, value in self.stored.items() if key not in SEARCH}
        return replace(self, options=_options(stored), stored=stored)

    def with_greedy(self) -> GenerationDefaults:
        """With the reference library's meaning of absent keys: one beam, no sampling."""
        if not self.file:
            return self
        return replace(self, options={"beams": 1, "temperature": 0.0, "length_penalty": 1.0, **self.options})

    def resolve(self, own: Mapping[str, Any], given: Mapping[str, Any], *, max_context: int | None) -> dict[str, Any]:
        """Options for GenerationSettings: `own` (a task's), over them the file's, over them those `given` explicitly. A
        default never contradicts a given option; lengths of the file are limited to the model's context."""
        out = {**own, **self.options, **given}

        def default(name: str, value: Any) -> None:
            if name not in given:
                out[name] = value

        length = out.get("max_length")
        if "max_new_tokens" in given or given.get("overflow") == "window":
            default("max_length", None)
        elif length is not None or "max_new_tokens" in self.options:
            limit = None if max_context is None else max_context + 1  # the last token is not read again
            default("max_length", min((n for n in (length, limit) if n is not None), default=None))
        stated = "max_new_tokens" in given or ("max_new_tokens" in self.options and "max_length" not in given)
        if length is not None and not stated:
            out["max_new_tokens"] = length
        if "max_new_tokens" in out:
            default("min_new_tokens", min(out.get("min_new_tokens", 0), out["max_new_tokens"]))
        if given.get("temperature"):  # sampling was chosen
            default("beams", 1)
        elif out.get("beams", 1) > 1:
            default("temperature", 0.0)
        if out.get("beams", 1) % out.get("groups", 1):
            default("groups", 1)
        if out.get("groups", 1) == 1:
            default("diversity_penalty", 0.0)
        if "beams" in out and not out.get("temperature"):
            default("beams", max(out["beams"], out.get("n", 1)))
        return out

    def describe(self) -> str:
        """One line for a person."""
        shown = [f"{name} {value}" for name, value in self.options.items()]
        shown += [] if self.start_id is None else [f"start id {self.start_id}"]
        return f"{', '.join(shown)} ({self.file})" if shown else ""


def read_defaults(
    folder: Path, config: Mapping[str, Any], *, reads_source: bool, vocab: int, speech: bool = False
) -> GenerationDefaults:
    """`config` is the content of config.json, `vocab` the number of tokens that the model can generate; `speech`:
    whether it reads sound."""
    if is_present(folder / FILE):
        file, found = FILE, read_json(folder / FILE)
    else:
        file, found = "config.json", {key: config[key] for key in KEYS if key in config}
    stored = {key: value for key, value in found.items() if value is not None}
    unknown = [key for key in stored if key not in (*READ, *REFUSED, *IGNORED, *(SPEECH if speech else ()))]
    active = [key for key, off in REFUSED.items() if stored.get(key) not in (None, *off, [], {})]
    if unknown or active:
        key = (unknown or active)[0]
        raise ConfigError(
            f"{folder / file}: {key} is {stored[key]!r}, which Headway does not do when it generates; "
            "remove the key to load the model without it"
        )
    try:
        if type(stored.get("do_sample", False)) is not bool:
            raise ConfigError(f"do_sample is {stored['do_sample']!r}: it must be true or false")
        options = _options(stored)
        if not reads_source:
            options.pop("forced_bos_id", None)  # it is for the token after a decoder's start id
        GenerationSettings(**{"max_new_tokens": 10**7, **options})
        for name in ("forced_bos_token_id", "forced_eos_token_id"):
            wrong = next((i for i in _several(stored.get(name)) if i >= vocab), None)
            if wrong is not None:
                raise ConfigError(f"{name} is {wrong!r}, which is not in the model's vocabulary of {vocab}")
        if type(stored.get(START, 0)) is not int:
            raise ConfigError(f"{START} is {stored[START]!r}: it must be a token id")
        if not reads_source and _forced(stored):
            raise ConfigError(f"{FORCED} is for models that read a source; remove the key")
        wrong = next((i for _, i in _forced(stored) if i >= vocab), None)
        if wrong is not None:
            raise ConfigError(f"{FORCED} has {wrong!r}, which is not in the model's vocabulary of {vocab}")
    except ConfigError as error:
        raise ConfigError(f"{folder / file}: {error}") from error
    if not any(key in stored for key in READ):
        return GenerationDefaults()
    return GenerationDefaults(options, stored.get(START) if reads_source else None, stored, file)


def _options(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The file's keys as fields of GenerationSettings."""
    out = {option: stored[key] for key, option in PLAIN.items() if key in stored}
    out |= {option: _several(stored[key]) for key, option in ONE_OR_SEVERAL.items() if key in stored}
    if forced := _forced(stored):
        out["forced_ids"] = tuple((position - 1, i) for position, i in forced)
    if stored.get("do_sample"):
        unset = {"top_k": TOP_K, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}
        out = {**unset, **out, "temperature": stored.get("temperature", 1.0)}
    elif "do_sample" in stored:
        out["temperature"] = 0.0
    return out


def _forced(stored: Mapping[str, Any]) -> list[tuple[int, int]]:
    """(position, id) pairs; those without an id, where the model chooses, are left out."""
    pairs = stored.get(FORCED) or []
    listed = isinstance(pairs, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
    kept = [(position, i) for position, i in pairs if i is not None] if listed else []
    if not listed or not all(type(position) is int and position > 0 and type(i) is int for position, i in kept):
        raise ConfigError(f"{FORCED} is {pairs!r:.80}: expected pairs of a position from 1 and a token id")
    return kept


def _several(value: Any) -> tuple[Any, ...]:
    """One id or a list of them. A negative id, which some files have for "none", is left out."""
    ids = value if isinstance(value, list) else () if value is None else (value,)
    return tuple(i for i in ids if not (type(i) is int and i < 0))
