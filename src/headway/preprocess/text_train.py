"""Texts → a new tokenizer description. Same texts, same bytes, in every process.

`char` is one id a character (Karpathy's char-rnn), `bpe` is byte-level BPE (GPT-2), `wordpiece` is BERT's.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from headway.errors import ConfigError, DataError
from headway.preprocess.text_files import Description, wrap_like_bert
from headway.preprocess.text_roles import BERT_ROLES

Kind = Literal["char", "bpe", "wordpiece"]
MAX_CHARACTERS = 50_000_000  # a vocabulary is trained on at most this much; more would hardly change it
SENTENCE_ROLES = {"pad": "<pad>", "bos": "<s>", "eos": "</s>"}


def train(texts: Iterable[str], *, kind: Kind, size: int, lowercase: bool, special: Sequence[str]) -> Description:
    if kind not in get_args(Kind):
        raise ConfigError(f"tokenizer kind {kind!r}: choose one of {', '.join(get_args(Kind))}")
    roles = {
        "char": SENTENCE_ROLES | {"unk": "<unk>"},
        "bpe": SENTENCE_ROLES,
        "wordpiece": BERT_ROLES,
    }[kind]
    kept = _sample(texts)
    if not kept:
        raise DataError("there is no text to make a vocabulary from")
    build = {"char": _char, "bpe": _bpe, "wordpiece": _wordpiece}[kind]
    names = list(dict.fromkeys([*roles.values(), *special]))
    backend = build(kept, names, size=size, lowercase=lowercase)
    backend.add_special_tokens(names)
    spec = json.loads(backend.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] in names]
    return Description(spec, dict(roles))


def _sample(texts: Iterable[str]) -> list[str]:
    """The non-empty texts; beyond MAX_CHARACTERS every second, fourth, eighth … of them, evenly spread."""
    kept: list[str] = []
    size, step = 0, 1
    for number, text in enumerate(text for text in texts if text):
        if number % step:
            continue
        kept.append(text)
        size += len(text)
        if size > MAX_CHARACTERS and len(kept) > 1:
            kept, step = kept[::2], 2 * step
            size = sum(map(len, kept))
    return kept


def _char(texts: list[str], special: list[str], *, size: int, lowercase: bool) -> Backend:
    _require(size, len(special) + 1, "char")
    normalizer = normalizers.Lowercase() if lowercase else None
    counts = _character_counts(texts, normalizer)
    characters = sorted(_most_frequent(counts, size - len(special)))
    vocabulary = {token: i for i, token in enumerate([*special, *characters])}
    backend = Backend(models.BPE(vocabulary, [], unk_token="<unk>"))  # a BPE without merges keeps characters apart
    if normalizer:
        backend.normalizer = normalizer
    backend.decoder = decoders.Fuse()
    _begin_sentence(backend)
    return backend


def _bpe(texts: list[str], special: list[str], *, size: int, lowercase: bool) -> Backend:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _require(size, len(special) + len(alphabet), "bpe")
    backend = Backend(models.BPE())
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=sorted(alphabet), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    _begin_sentence(backend)
    return backend


def _wordpiece(texts: list[str], special: list[str], *, size: int, lowercase: bool) -> Backend:
    _require(size, len(special) + 4, "wordpiece")
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    counts = _character_counts(texts, normalizer)
    counts = Counter({character: n for character, n in counts.items() if not character.isspace()})
    alphabet = sorted(_most_frequent(counts, (size - len(special)) // 4))  # single characters take at most half
    # The trainer orders "##x" pieces by a hash map; listing them as special tokens fixes their order.
    splitter = pre_tokenizers.BertPreTokenizer()
    inner = [f"##{character}" for character in alphabet if len(splitter.pre_tokenize_str(f"a{character}")) == 1]
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizer
    backend.pre_tokenizer = splitter
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*special, *inner],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    wrap_like_bert(backend)
    return backend


def _begin_sentence(backend: Backend) -> None:
    """<s> A, and <s> A </s> B. The task adds </s> at the end where it wants one: a prompt has none."""
    names = [(token, backend.token_to_id(token)) for token in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing(
        single="<s>:0 $A:0", pair="<s>:0 $A:0 </s>:0 $B:1", special_tokens=names
    )


def _character_counts(texts: list[str], normalizer: normalizers.Normalizer | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text) if normalizer else text)
    return counts


def _most_frequent(counts: Counter[str], limit: int) -> list[str]:
    return sorted(counts, key=lambda character: (-counts[character], character))[:limit]


def _require(size: int, least: int, kind: str) -> None:
    if size < least:
        raise ConfigError(f"vocabulary size {size} is too small: kind {kind!r} needs at least {least}")
