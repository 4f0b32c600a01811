"""A published model's folder → one tokenizer description (the dict inside `tokenizer.json`).

Three layouts are read: `tokenizer.json` (everything), `vocab.txt` (WordPiece, as BERT ships it) and
`vocab.json` + `merges.txt` (byte-level BPE, as GPT-2 and RoBERTa ship it).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from headway.checkpoints.header import parse_json, read_bounded
from headway.errors import CheckpointError
from headway.files import is_present
from headway.preprocess.tokenizer_limits import check_limits

ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")
SENTENCEPIECE = ("spiece.model", "source.spm", "tokenizer.model", "sentencepiece.bpe.model", "spm.model")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", *SENTENCEPIECE, "target.spm")
CHARACTER_FILE = "character_tokenizer.json"  # of a model that reads words by their characters
COMPANION_FILES = (  # they add to a tokenizer and are none by themselves
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
)  # fmt: skip
MAX_LENGTH = 10_000_000  # transformers writes 1e30 for "no limit"
MAX_BYTES = 64 << 20  # twice the largest published tokenizer.json
MAX_CONTAINERS = 4_000_000  # lists and objects
MAX_TOKENS = 10_000_000

BERT_ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_ROLES = {
    "bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>",
}  # fmt: skip
GPT2_ROLES = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}


@dataclass(frozen=True)
class Description:
    """A tokenizer not yet built. `spec` is the content of a tokenizer.json; `roles` maps bos, eos, … to a token."""

    spec: dict[str, Any]
    roles: dict[str, str]
    chat_template: str | None = None
    max_length: int | None = None


def describe(folder: Path) -> Description:
    """Reads the folder's tokenizer files."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; a tokenizer is loaded from a model folder")
    if error := unreadable_layout(folder):
        raise CheckpointError(error)
    settings = read_json(folder / "tokenizer_config.json")
    if is_present(folder / "tokenizer.json"):
        spec, defaults = read_json(folder / "tokenizer.json"), {}
        if not isinstance(spec.get("model"), dict) or "vocab" not in spec["model"]:
            raise CheckpointError(f"{folder / 'tokenizer.json'}: no model with a vocabulary inside; fetch it again")
    elif is_present(folder / "vocab.txt"):
        spec, defaults = _wordpiece(folder, settings), BERT_ROLES
    else:
        spec, defaults = _byte_level(folder, settings)
    check_limits(spec, folder)
    vocabulary = vocabulary_of(spec)
    if not all(type(token_id) is int and 0 <= token_id < MAX_TOKENS for token_id in vocabulary.values()):
        raise CheckpointError(f"{folder}: a token's id is not a whole number from 0 to {MAX_TOKENS:,}; fetch it again")
    roles = defaults | _roles(folder, settings, vocabulary)
    roles = {role: token for role, token in roles.items() if token in vocabulary}
    _mark_special(spec, set(roles.values()) | set(_extra_special(folder, settings)), vocabulary=vocabulary)
    stored = settings.get("model_max_length")
    length = int(stored) if isinstance(stored, int | float) and 0 < stored < MAX_LENGTH else None
    return Description(spec, roles, _chat_template(folder, settings), length)


def unreadable_layout(folder: Path) -> str | None:
    """Why the tokenizer files of a folder are not a layout that is read, naming those found; None: they are."""
    found = {name for name in TOKENIZER_FILES if is_present(folder / name)}
    if found & {"tokenizer.json", "vocab.txt"} or found >= {"vocab.json", "merges.txt"}:
        return None
    if models := [name for name in TOKENIZER_FILES if name in found and name not in ("vocab.json", "merges.txt")]:
        return f"{folder}: only a sentencepiece model ({', '.join(models)}); {_how_to_convert(folder)}"
    listed = f" ({', '.join(sorted(found))} alone is not enough)" if found else ""
    return f"{folder}: no tokenizer here; expected tokenizer.json, vocab.txt, or vocab.json with merges.txt{listed}"


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


def _byte_level(folder: Path, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    vocabulary = read_json(folder / "vocab.json")
    if any(token.endswith("</w>") for token in vocabulary):
        raise CheckpointError(f"{folder / 'vocab.json'}: a BPE with </w> word ends; {_how_to_convert(folder)}")
    lines = _read_text(folder / "merges.txt").split("\n")
    pairs = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    bad = next((pair for pair in pairs if len(pair) != 2), None)
    if bad:
        raise CheckpointError(f"{folder / 'merges.txt'}: a merge is two pieces and a space, found {' '.join(bad)!r}")
    try:
        backend = Backend(models.BPE(vocabulary, [(left, right) for left, right in pairs]))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{folder}: vocab.json and merges.txt do not fit together ({error})") from error
    spaced = settings.get("add_prefix_space", False)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    backend.decoder = decoders.ByteLevel()
    if "<s>" in vocabulary and "</s>" in vocabulary:
        backend.post_processor = processors.RobertaProcessing(
            ("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]), add_prefix_space=spaced
        )
        if "<mask>" in vocabulary:
            backend.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
        return _with_added(backend, folder, settings), ROBERTA_ROLES
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return _with_added(backend, folder, settings), GPT2_ROLES


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


def _roles(folder: Path, settings: dict[str, Any], vocabulary: dict[str, int]) -> dict[str, str]:
    """Role (bos, eos, …) → token: from config.json's ids, then special_tokens_map.json, then tokenizer_config.json; the
    last one that has the role counts."""
    config, listed = read_json(folder / "config.json"), read_json(folder / "special_tokens_map.json")
    token_of = {i: token for token, i in vocabulary.items()}
    found: dict[str, str] = {}
    for role in ROLES:
        stored_id = config.get(f"{role}_token_id")
        first_id = stored_id[0] if isinstance(stored_id, list) and stored_id else stored_id
        if isinstance(first_id, int) and first_id in token_of:
            found[role] = token_of[first_id]
        for source in (listed, settings):
            token = _content(source.get(f"{role}_token"))
            if token in vocabulary:
                found[role] = token
    return found


def _extra_special(folder: Path, settings: dict[str, Any]) -> Iterator[str]:
    for source in (read_json(folder / "special_tokens_map.json"), settings):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            listed = source.get(key) or []
            for token in listed.values() if isinstance(listed, dict) else listed:
                content = _content(token)
                if content:
                    yield content


def _content(token: object) -> str | None:
    """A token is stored as a string or as an object with its content."""
    inner = token.get("content") if isinstance(token, dict) else token
    return inner if isinstance(inner, str) else None


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


def _how_to_convert(folder: Path) -> str:
    name = folder.name or "MODEL"
    return (
        "Headway reads tokenizer.json; where transformers is installed, make one with "
        f"`AutoTokenizer.from_pretrained({name!r}).save_pretrained({name!r})`, or fetch the model's tokenizer.json"
    )
