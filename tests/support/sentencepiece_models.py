"""Small SentencePiece models, trained by that library on a few sentences, and lines of varied Unicode."""

from __future__ import annotations

import functools
import io
import random
import unicodedata

WORDS = [
    "the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "attention", "is", "all", "you", "need",
    "größer", "naïve", "Straße", "señor", "été", "café", "日本語", "東京",
    "한국어", "мир", "привет", "Ελλάδα", "שלום", "مرحبا", "हिन्दी", "12.5", "1,000",
    "€", "–", "“quoted”", "don't", "e-mail",
]  # fmt: skip
ODD = [
    "ﬁne", "①", "½", "™", "Ａｂｃ", "ｶﾞ", "e\u0301", "o\u0308", "\u1112\u1161\u11ab", "😀", "👩‍👩‍👧", "🇩🇪", "\t",
    "\u00a0", "\u3000", "\u200b", "\ufeff", "<s>", "</s>", "<unk>", "[MASK]", "▁", "a▁b", "ﷺ", "Ⅻ", "℃", "\r\n", "",
    "  ", "ſ", "ß",
]  # fmt: skip
BLOCKS = ((0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0x1E00, 0x2BFF),
          (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFDFF), (0x1F300, 0x1FAFF))  # fmt: skip


def lines(count: int) -> list[str]:
    """Sentences, odd characters between words, runs of one block of Unicode, and all of them decomposed."""
    rng = random.Random(0)
    out = []
    for number in range(count):
        words = [rng.choice(WORDS if rng.random() < 0.7 else ODD) for _ in range(rng.randint(0, 12))]
        text = rng.choice([" ", " ", "", "  "]).join(words)
        if number % 4 == 1:
            low, high = rng.choice(BLOCKS)
            text = "".join(rng.choice([chr(rng.randint(low, high))] * 4 + [" "]) for _ in range(rng.randint(1, 30)))
        out.append(unicodedata.normalize("NFD", text) if number % 4 == 2 else text)
    return out


@functools.cache
def trained(
    kind: str = "unigram", *, rule: str = "nmt_nfkc", size: int = 400, seed: int = 0, **options: object
) -> bytes:
    """The file of a model."""
    import sentencepiece

    rng, file = random.Random(seed), io.BytesIO()
    sentences = [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(600)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=file, vocab_size=size, model_type=kind,
        normalization_rule_name=rule, hard_vocab_limit=False, num_threads=1, minloglevel=2, **options,
    )  # fmt: skip
    return file.getvalue()
