"""A published model's folder → one tokenizer description (the dict inside `tokenizer.json`).

Five layouts are read: `tokenizer.json` (everything), `vocab.txt` (WordPiece, as BERT ships it), `vocab.json` +
`merges.txt` (byte-level BPE, as GPT-2 and RoBERTa ship it), one SentencePiece model (T5, LLaMA, XLNet, DeBERTa-v3,
mBART) and two of them with `vocab.json` (Marian).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from headway.checkpoints.header import parse_json, read_bounded
from headway.errors import CheckpointError
from headway.files import is_present
from headway.preprocess import text_sentencepiece as sentencepiece
from headway.preprocess.text_roles import (
    BERT_ROLES,
    Convention,
    content_of,
    convention_of,
    roles_in_files,
    template,
)
from headway.preprocess.tokenizer_limits import check_limits

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", *sentencepiece.FILES, "source.spm",
                   "target.spm")  # fmt: skip
CHARACTER_FILE = "character_tokenizer.json"  # of a model that reads words by their characters
COMPANION_FILES = (  # they add to a tokenizer and are none by themselves
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
)  # fmt: skip
MAX_LENGTH = 10_000_000  # transformers writes 1e30 for "no limit"
MAX_BYTES = 64 << 20  # twice the largest published tokenizer.json
MAX_CONTAINERS = 4_000_000  # lists and objects
MAX_TOKENS = 10_000_000


@dataclass(frozen=True)
class Description:
    """A tokenizer not yet built. `spec` is the content of a tokenizer.json; `roles` maps bos, eos, … to a token."""

    spec: dict[str, Any]
    roles: dict[str, str]
    chat_template: str | None = None
    max_length: int | None = None
    hidden: frozenset[str] = frozenset()  # tokens that are decoded and that no text gives
    target: "Description | None" = None  # of target texts, where they are segmented otherwise: the same ids
    files: Mapping[str, bytes] = field(default_factory=dict)  # that are saved where a tokenizer.json cannot say it all


@dataclass(frozen=True)
class _Layout:
    """What the files of a layout say. `given`: its tokenizer.json says what is put around a text."""

    spec: dict[str, Any]
    convention: Convention
    given: bool = False
    adds_bos: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)  # further tokens of the template
    hidden: frozenset[str] = frozenset()


def describe(folder: Path) -> Description:
    """Reads the folder's tokenizer files."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; a tokenizer is loaded from a model folder")
    if error := unreadable_layout(folder):
        raise CheckpointError(error)
    settings = read_json(folder / "tokenizer_config.json")
    if _has(folder, *sentencepiece.MARIAN_FILES) and not _has(folder, "tokenizer.json"):
        return _marian(folder, settings)
    return _description(folder, settings, _layout(folder, settings))


def _layout(folder: Path, settings: dict[str, Any]) -> _Layout:
    if _has(folder, "tokenizer.json"):
        spec = read_json(folder / "tokenizer.json")
        if not isinstance(spec.get("model"), dict) or "vocab" not in spec["model"]:
            raise CheckpointError(f"{folder / 'tokenizer.json'}: no model with a vocabulary inside; fetch it again")
        special = {token["content"] for token in spec.get("added_tokens") or [] if token["special"]}
        return _Layout(spec, convention_of(special), given=True)
    if _has(folder, "vocab.txt"):
        return _Layout(_wordpiece(folder, settings), Convention(BERT_ROLES), given=True)
    if _has(folder, "vocab.json", "merges.txt"):
        return _byte_level(folder, settings)
    path = next(folder / name for name in sentencepiece.FILES if _has(folder, name))
    config, extra = read_json(folder / "config.json"), list(_extra_special(folder, settings))
    found = sentencepiece.single_model(path, settings=settings, config=config, extra=extra)
    check_limits(found.rules, path)
    spec = _with_added(_backend(found.rules, path), folder, settings)
    tokens = {} if found.language is None else {"language": found.language}
    return _Layout(spec, found.convention, adds_bos=True, extra=tokens)


def _marian(folder: Path, settings: dict[str, Any]) -> Description:
    """Two descriptions with the ids of vocab.json: of source and of target texts."""
    if settings.get("separate_vocabs") or _has(folder, "target_vocab.json"):
        raise CheckpointError(f"{folder}: a vocabulary of ids for each language (target_vocab.json) is not supported")
    vocabulary = read_json(folder / "vocab.json")
    source, target = (
        _description(folder, settings, _Layout(found.rules, found.convention, hidden=found.hidden))
        for found in (sentencepiece.marian(folder / name, vocabulary) for name in ("source.spm", "target.spm"))
    )
    names = [*sentencepiece.MARIAN_FILES, *COMPANION_FILES]
    files = {name: read_bounded(folder / name, limit=MAX_BYTES) for name in names if _has(folder, name)}
    return replace(source, target=target, files=files)


def _description(folder: Path, settings: dict[str, Any], layout: _Layout) -> Description:
    spec = layout.spec
    check_limits(spec, folder)
    vocabulary = vocabulary_of(spec)
    if not all(type(token_id) is int and 0 <= token_id < MAX_TOKENS for token_id in vocabulary.values()):
        raise CheckpointError(f"{folder}: a token's id is not a whole number from 0 to {MAX_TOKENS:,}; fetch it again")
    sources = (read_json(folder / "special_tokens_map.json"), settings)
    stated, named = roles_in_files(read_json(folder / "config.json"), sources, vocabulary)
    usual = {} if named and _has(folder, "tokenizer.json") else layout.convention.roles
    roles = {role: token for role, token in usual.items() if role not in named} | stated
    roles = {role: token for role, token in roles.items() if token in vocabulary}
    if not layout.given:
        tokens = {**roles, **layout.extra}
        around = template(layout.convention, tokens, vocabulary, settings, adds_bos=layout.adds_bos)
        steps = [each for each in (spec["post_processor"], around) if each is not None]
        if around["special_tokens"]:
            spec["post_processor"] = {"type": "Sequence", "processors": steps}
    _mark_special(spec, set(roles.values()) | set(_extra_special(folder, settings)), vocabulary=vocabulary)
    stored = settings.get("model_max_length")
    length = int(stored) if isinstance(stored, int | float) and 0 < stored < MAX_LENGTH else None
    return Description(spec, roles, _chat_template(folder, settings), length, layout.hidden)


def _has(folder: Path, *names: str) -> bool:
    return all(is_present(folder / name) for name in names)


def unreadable_layout(folder: Path) -> str | None:
    """Why the tokenizer files of a folder are not a layout that is read, naming those found; None: they are."""
    layouts = [("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"), sentencepiece.MARIAN_FILES]
    if any(_has(folder, *names) for names in (*layouts, *((name,) for name in sentencepiece.FILES))):
        return None
    found = [name for name in TOKENIZER_FILES if _has(folder, name)]
    listed = f" ({', '.join(found)} alone is not enough)" if found else ""
    return (
        f"{folder}: no tokenizer here; expected tokenizer.json, vocab.txt, vocab.json with merges.txt, vocab.json with "
        f"source.spm and target.spm, or a SentencePiece model ({', '.join(sentencepiece.FILES)}){listed}"
    )


def vocabulary_of(spec: dict[str, Any]) -> dict[str, int]:
    """Token → id, the added tokens included. Unigram models store a list of (piece, score), the others a map."""
    stored = spec["model"]["vocab"]
    known = {piece: i for i, (piece, _) in enumerate(stored)} if isinstance(stored, list) else dict(stored)
    return known | {added["content"]: added["id"] for added in spec.get("added_tokens") or []}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file does not exist."""
    if not is_present(path):
        return {}
    text = read_bounded(path, limit=MAX_BYTES)
    if text.count(b"[") + text.count(b"{") > MAX_CONTAINERS:  # small on disk, large once it is read
        raise CheckpointError(f"{path}: more than {MAX_CONTAINERS:,} lists and objects; no tokenizer has as many")
    return parse_json(text, path)


def _read_text(path: Path) -> str:
    try:
        return read_bounded(path, limit=MAX_BYTES).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8 ({error}); fetch the file again") from error


def _wordpiece(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    lines = _read_text(folder / "vocab.txt").split("\n")
    tokens = lines[:-1] if lines[-1] == "" else lines
    vocabulary = {token.rstrip("\r"): i for i, token in enumerate(tokens)}
    missing = [BERT_ROLES[role] for role in ("unk", "cls", "sep") if BERT_ROLES[role] not in vocabulary]
    if missing:
        raise CheckpointError(f"{folder / 'vocab.txt'}: not a BERT vocabulary, {', '.join(missing)} missing")
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    wrap_like_bert(backend)
    return _with_added(backend, folder, settings)


def wrap_like_bert(backend: Backend) -> None:
    """[CLS] A [SEP] B [SEP]; words are split at spaces and punctuation; ## pieces are joined when decoding."""
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    cls, sep = backend.token_to_id("[CLS]"), backend.token_to_id("[SEP]")
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )


def _byte_level(folder: Path, settings: dict[str, Any]) -> _Layout:
    vocabulary = read_json(folder / "vocab.json")
    if any(token.endswith("</w>") for token in vocabulary):
        raise CheckpointError(f"{folder / 'vocab.json'}: a BPE with </w> word ends is not supported")
    lines = _read_text(folder / "merges.txt").split("\n")
    pairs = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    bad = next((pair for pair in pairs if len(pair) != 2), None)
    if bad:
        raise CheckpointError(f"{folder / 'merges.txt'}: a merge is two pieces and a space, found {' '.join(bad)!r}")
    try:
        backend = Backend(models.BPE(vocabulary, [(left, right) for left, right in pairs]))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{folder}: vocab.json and merges.txt do not fit together ({error})") from error
    spaced, convention = settings.get("add_prefix_space", False), convention_of(vocabulary)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets="cls" in convention.roles)
    mask = convention.roles.get("mask")
    if mask in vocabulary:
        backend.add_special_tokens([AddedToken(mask, lstrip=True, normalized=False)])
    return _Layout(_with_added(backend, folder, settings), convention)


def _backend(spec: dict[str, Any], path: Path) -> Backend:
    try:
        return Backend.from_str(json.dumps(spec))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{path}: damaged ({error}); fetch it again") from error


def _with_added(backend: Backend, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Adds tokens outside the vocabulary file: of `added_tokens.json` or the settings' `added_tokens_decoder`."""
    added = {token: {"content": token} for token in read_json(folder / "added_tokens.json")}
    ids = dict(read_json(folder / "added_tokens.json"))
    for stored_id, token in settings.get("added_tokens_decoder", {}).items():
        added[token["content"]], ids[token["content"]] = token, int(stored_id)
    for content in sorted(added, key=ids.__getitem__):
        options = {k: v for k, v in added[content].items() if k in ("lstrip", "rstrip", "single_word", "normalized")}
        special = added[content].get("special", False)
        (backend.add_special_tokens if special else backend.add_tokens)([AddedToken(content, **options)])
        if backend.token_to_id(content) != ids[content]:
            got = backend.token_to_id(content)
            raise CheckpointError(
                f"{folder}: added token {content!r} is listed with id {ids[content]}, but has id {got}"
            )
    spec: dict[str, Any] = json.loads(backend.to_str())
    return spec


def _extra_special(folder: Path, settings: dict[str, Any]) -> Iterator[str]:
    for source in (read_json(folder / "special_tokens_map.json"), settings):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            listed = source.get(key) or []
            for token in listed.values() if isinstance(listed, dict) else listed:
                content = content_of(token)
                if content:
                    yield content


def _mark_special(spec: dict[str, Any], tokens: set[str], *, vocabulary: dict[str, int]) -> None:
    added = {token["content"]: token for token in spec.get("added_tokens") or []}
    for content in tokens & vocabulary.keys():
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        new = {"id": vocabulary[content], "content": content} | plain
        added[content] = new | added.get(content, {}) | {"special": True}
    spec["added_tokens"] = sorted(added.values(), key=lambda token: token["id"])


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if is_present(path):
        return _read_text(path)
    stored = settings.get("chat_template")
    if isinstance(stored, list):  # several named ones
        stored = next((entry["template"] for entry in stored if entry.get("name") == "default"), None)
    return stored if isinstance(stored, str) else None
