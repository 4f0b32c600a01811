"""Text ⇄ ids. One `Tokenizer` for every kind, on top of the `tokenizers` library.

Two backends hold the same ids. `_full` has every token and decodes; `_plain` does not recognise control tokens in a
text, so that `<s>` typed by a user is three characters and never the id that begins a sentence. Nothing is truncated or
padded.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Encoding as BackendEncoding
from tokenizers import Tokenizer as Backend

from headway.checkpoints import save_bytes, save_json, save_text
from headway.errors import CheckpointError, HeadwayError, InputError
from headway.preprocess.text_files import Description, describe, vocabulary_of
from headway.preprocess.text_train import Kind, train

LONG = 4096  # characters of a text whose encoding would keep the other threads waiting
CONTROL = "\0 "  # prefix of a control token's name in `_plain`, which no text contains
Key = tuple[str | tuple[str, ...], str | None, bool]  # a text or words, a second text, special tokens
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Encoding:
    """One text, or two, as ids. The lists are parallel; `offsets` are character positions in the token's own text."""

    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    parts: list[int | None]  # 0: first text, 1: second text, None: a special token


class Tokenizer:
    """Text ⇄ ids. Special ids (`bos_id`, `eos_id`, …) are None where the vocabulary has no such token."""

    def __init__(self, description: Description) -> None:
        spec = description.spec | {"truncation": None, "padding": None}
        self.roles = dict(description.roles)
        self.chat_template = description.chat_template
        self.max_length = description.max_length
        self.target = self if description.target is None else Tokenizer(description.target)  # encodes target texts
        self._files = description.files
        self.controls = frozenset(_controls(spec, self.chat_template))  # names of control tokens
        self._full = Backend.from_str(json.dumps(spec))
        self._plain = Backend.from_str(json.dumps(_without_controls(spec, self.controls | description.hidden)))
        self._plain.encode_special_tokens = True
        added = self._full.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self._added = {i: token.content for i, token in added.items()}
        self._decoders = {part["type"] for part in _parts(spec.get("decoder"))}
        self.bos_id, self.eos_id = self._role_id("bos"), self._role_id("eos")
        self.pad_id, self.unk_id = self._role_id("pad"), self._role_id("unk")
        self.cls_id, self.sep_id = self._role_id("cls"), self._role_id("sep")
        self.mask_id = self._role_id("mask")
        joined = self._full.encode(["a", "b"], is_pretokenized=True, add_special_tokens=False).ids
        self._ahead: dict[Key, BackendEncoding] = {}  # of `encode_ahead`
        self._word_gap = "" if " " in self.decode(joined, skip_special=False) else " "

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """From a model folder, in any of the layouts of `text_files`."""
        try:
            return cls(describe(Path(folder)))
        except (HeadwayError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the library raises plain Exception, and panics derive from BaseException
            raise CheckpointError(
                f"{folder}: the tokenizer files are damaged ({type(error).__name__}: {error}); fetch them again"
            ) from error

    @classmethod
    def train(
        cls, texts: Iterable[str], *, kind: Kind, size: int, lowercase: bool = False, special: Sequence[str] = ()
    ) -> "Tokenizer":
        """A new vocabulary of at most `size` tokens; `special` lists further control tokens. Deterministic."""
        return cls(train(texts, kind=kind, size=size, lowercase=lowercase, special=special))

    def encode(self, text: str, *, special: bool = True, special_in_text: bool = False) -> list[int]:
        """`special` adds the special tokens its model expects; `special_in_text` recognises control tokens in it."""
        if not special_in_text and (found := self._ahead.get((text, None, special))) is not None:
            return found.ids
        if isinstance(text, str) and len(text) > LONG and not special_in_text:
            return self.encode_batch([text], special=special)[0]  # the library encodes a batch without Python's lock
        return self._encode(text, special=special, backend=self._full if special_in_text else self._plain).ids

    def encode_ahead(
        self, texts: Sequence[str] | Sequence[tuple[str, str]] | Sequence[list[str]], *, special: bool = True
    ) -> None:
        """Encodes texts, pairs of texts or lists of words on all cores, and keeps the result until the next call:
        `encode`, `encode_pair` and `encode_words` of the same ones then need not encode them again."""
        self._ahead = {}
        try:
            self._ahead = self._encodings(texts, special)
        except KeyboardInterrupt:
            raise
        except BaseException:  # as in `load`. Encoding the text alone raises an error that names it.
            return

    def _encodings(self, texts: Sequence[Any], special: bool) -> dict[Key, BackendEncoding]:
        if not texts or isinstance(texts[0], str):
            keys = [(text, None, special) for text in dict.fromkeys(texts)]
            found = self._plain.encode_batch_fast([text for text, *_ in keys], add_special_tokens=special)
        elif isinstance(texts[0], tuple):
            keys = [(*pair, special) for pair in dict.fromkeys(texts)]
            found = self._plain.encode_batch([pair[:2] for pair in keys], add_special_tokens=special)
        else:
            keys = [(words, None, special) for words in dict.fromkeys(tuple(self._spaced(words)) for words in texts)]
            batch = [list(words) for words, *_ in keys]
            found = self._plain.encode_batch(batch, is_pretokenized=True, add_special_tokens=special)
        return dict(zip(keys, found, strict=True))

    def encode_controlled(self, text: str) -> list[int]:
        """Recognises only control tokens that have CONTROL before them; all other text is plain."""
        return self._encode(text, special=False, backend=self._controlled).ids

    def encode_controlled_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """As `encode_controlled`, with the characters [start, end) of each id."""
        encoding = self._encode(text, special=False, backend=self._controlled)
        return encoding.ids, encoding.offsets

    @cached_property
    def _controlled(self) -> Backend:
        backend = Backend.from_str(self._plain.to_str())
        backend.encode_special_tokens = False
        return backend

    def encode_batch(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """The same ids as `encode`, for many texts, on all cores."""
        ahead = [self._ahead.get((text, None, special)) for text in texts] if self._ahead else [None]
        if None not in ahead:
            return [encoding.ids for encoding in ahead if encoding is not None]
        try:
            encodings = self._plain.encode_batch_fast(list(texts), add_special_tokens=special)
        except TypeError as error:
            for text in texts:  # raises an error that names the text
                self.encode(text)
            raise InputError(f"texts cannot be encoded: {error}") from error
        return [encoding.ids for encoding in encodings]

    def encode_pair(self, first: str, second: str) -> Encoding:
        """Two texts as one input: question and passage, sentence and next sentence."""
        encoding = self._encode(first, second, special=True)
        parts = encoding.sequence_ids
        offsets = [
            _trim((first, second)[part], span) if part is not None else (0, 0)
            for part, span in zip(parts, encoding.offsets, strict=True)
        ]
        return Encoding(encoding.ids, encoding.type_ids, offsets, parts)

    def encode_words(self, words: Sequence[str], *, special: bool = True) -> tuple[list[int], list[int | None]]:
        """Words already split → ids, and for each id the index of its word (None for a special token)."""
        encoding = self._encode(self._spaced(words), special=special)
        return encoding.ids, encoding.word_ids

    def _spaced(self, words: Sequence[str]) -> list[str]:
        return [self._word_gap + word if i and word else word for i, word in enumerate(words)]

    def encode_offsets(self, text: str, *, special: bool = True) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids and, for each, the characters [start, end) it stands for, without the space before; (0, 0) if special."""
        encoding = self._encode(text, special=special)
        return encoding.ids, [_trim(text, span) for span in encoding.offsets]

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return self._full.decode(list(ids), skip_special_tokens=skip_special)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Readable pieces: a space is a space; part of a character is shown as bytes, \\xe2 or <0xE2>."""
        return [self._readable(i) for i in ids]

    def token(self, index: int) -> str:
        """The token exactly as the vocabulary spells it."""
        token = self._full.id_to_token(index) if index >= 0 else None
        if token is None:
            raise InputError(f"id {index} is not in the vocabulary of {len(self)} tokens")
        return token

    def bytes_of(self, index: int) -> bytes:
        """The bytes that the token stands for; they may be a part of a character."""
        token = self.token(index)
        if index in self._added:
            return token.encode()
        if "ByteLevel" in self._decoders and all(letter in BYTE_OF for letter in token):
            return bytes(BYTE_OF[letter] for letter in token)
        byte = BYTE_PIECE.fullmatch(token) if "ByteFallback" in self._decoders else None
        if byte:
            return bytes([int(byte[1], 16)])
        return (token.replace("▁", " ") if self._decoders & {"Metaspace", "Replace"} else token).encode()

    def id(self, token: str) -> int | None:
        return self._full.token_to_id(token)

    @property
    def digest(self) -> str:
        """A hash of the vocabulary: equal if and only if all tokens have the same ids."""
        vocabulary = sorted(self._full.get_vocab(with_added_tokens=True).items())
        return hashlib.blake2b(json.dumps(vocabulary).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return self._full.get_vocab_size(with_added_tokens=True)

    def save(self, folder: str | Path) -> None:
        """`tokenizer.json` and `tokenizer_config.json`, as transformers' AutoTokenizer opens them; Marian's files as
        they were."""
        target = Path(folder)
        if self._files:
            for name, content in self._files.items():
                save_bytes(target / name, content)
            return
        save_text(target / "tokenizer.json", self._full.to_str(pretty=True))
        inputs = ["input_ids", "attention_mask"]
        if any(self.encode_pair("a", "b").segments):
            inputs.insert(1, "token_type_ids")
        settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
        settings |= {f"{role}_token": token for role, token in self.roles.items()}
        settings["clean_up_tokenization_spaces"] = False
        if self.max_length is not None:
            settings["model_max_length"] = self.max_length
        if self.chat_template is not None:
            settings["chat_template"] = self.chat_template
        save_json(target / "tokenizer_config.json", settings)

    def _encode(
        self, text: str | list[str], pair: str | None = None, *, special: bool, backend: Backend | None = None
    ) -> BackendEncoding:
        words = isinstance(text, list)
        if isinstance(text, list) or pair is not None:
            found = self._ahead.get((tuple(text) if isinstance(text, list) else text, pair, special))
            if found is not None:
                return found
        try:
            chosen = backend or self._plain
            if len(text) > LONG or len(pair or "") > LONG:  # as in `encode`
                batch: list[Any] = [text if pair is None else (text, pair)]
                return chosen.encode_batch(batch, is_pretokenized=words, add_special_tokens=special)[0]
            return chosen.encode(text, pair, is_pretokenized=words, add_special_tokens=special)
        except TypeError as error:
            raise InputError(f"{ascii(text)[:80]}: not a text, or half a surrogate pair in it ({error})") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # as above; the vocabulary does not fit the tokenizer's rules
            raise CheckpointError(
                f"the tokenizer fails on {ascii(text)[:80]}: {error}; fetch its files again"
            ) from error

    def _role_id(self, role: str) -> int | None:
        return self._full.token_to_id(self.roles[role]) if role in self.roles else None

    def _readable(self, index: int) -> str:
        content, token = self.bytes_of(index), self.token(index)
        if "ByteFallback" in self._decoders and not content.isascii() and BYTE_PIECE.fullmatch(token):
            return token
        return content.decode("utf-8", errors="backslashreplace")


class StreamDecoder:
    """Ids one at a time → text, as soon as it can no longer change. A character of several tokens is returned whole."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset()
        self._window: list[int] = []  # the last settled ids (the next one's spacing depends on them), and all after
        self._settled = 0  # ids of the window whose text was returned
        self._returned = 0  # characters of the window's text that were returned

    def push(self, index: int) -> str:
        if index in self._skipped:
            return ""
        self._window.append(index)
        text = self._text()
        whole = text.rstrip("\ufffd")
        fresh = whole[self._returned :]
        self._returned = max(self._returned, len(whole))
        if fresh and whole == text:
            self._window = self._window[self._settled :]
            self._settled = len(self._window)
            self._returned = len(self._text())
        return fresh

    def finish(self) -> str:
        """The remaining text; bytes that are no whole character are shown as U+FFFD."""
        rest = self._text()[self._returned :]
        self._window, self._settled, self._returned = [], 0, 0
        return rest

    def _text(self) -> str:
        return self._tokenizer.decode(self._window, skip_special=False)


def _controls(spec: dict[str, Any], chat_template: str | None) -> set[str]:
    """Control tokens: those marked special, and added ones that occur in the chat template."""
    template = chat_template or ""
    return {
        token["content"]
        for token in spec.get("added_tokens") or []
        if token["special"] or (token["content"].strip() and token["content"] in template)
    }


def _without_controls(spec: dict[str, Any], controls: frozenset[str]) -> dict[str, Any]:
    """The same ids, with the control tokens under names that no text contains.

    Turning off the search for added tokens is not enough: a Unigram or word model finds them as ordinary pieces. The
    new name contains a space, which every such model has replaced before the lookup.
    """
    hidden = {content: f"{CONTROL}{content}" for content in controls & vocabulary_of(spec).keys()}
    model = dict(spec["model"])
    stored = model["vocab"]
    if isinstance(stored, list):
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in stored]
    else:
        model["vocab"] = {hidden.get(piece, piece): i for piece, i in stored.items()}
    if model.get("unk_token"):
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    if model.get("merges"):
        model["merges"] = [merge for merge in model["merges"] if not hidden.keys() & _merge_names(merge)]
    added = [
        token | {"content": hidden[token["content"]], "special": True} if token["content"] in hidden else token
        for token in spec.get("added_tokens") or []
    ]
    return spec | {"model": model, "added_tokens": added}


def _merge_names(merge: str | list[str]) -> set[str]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return {left, right, left + right}


def _parts(component: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A component, or the components of a sequence."""
    if component is None:
        return []
    return component["decoders"] if component["type"] == "Sequence" else [component]


def _trim(text: str, span: tuple[int, int]) -> tuple[int, int]:
    start, end = span
    piece = text[start:end]
    return (start + len(piece) - len(piece.lstrip()), end) if piece.strip() else span


def _byte_letters() -> dict[str, int]:
    """Byte-level BPE maps each byte to a visible letter: itself if it is one, else the next free one from U+0100."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    unseen = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(unseen)}


BYTE_OF = _byte_letters()
