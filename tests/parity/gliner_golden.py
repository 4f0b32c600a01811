"""Writes gliner_golden.json: tiny GLiNER models by the `gliner` package, and what it computes with them.

The package is no dependency of Headway. In an environment of its own:

    pip install gliner && python tests/parity/gliner_golden.py
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import gliner
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from support.gliner_files import GOLDEN, weights_of

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
PIECES = ["▁", "▁person", "▁city", "▁of", "▁birth", "▁date", "▁Mar", "ie", "▁Curie", "▁was", "▁born", "▁in", "▁War",
          "saw", "▁the", "▁and", "er", "in", "an"]  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,-'0123456789é"
ENCODER = {
    "model_type": "deberta-v2", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 24, "max_position_embeddings": 64, "relative_attention": True, "position_buckets": 8,
    "max_relative_positions": -1, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p",
    "position_biased_input": False, "type_vocab_size": 0, "vocab_size": 100,
}  # fmt: skip
BASE = {"span_mode": "markerV0", "hidden_size": 12, "max_width": 4, "max_len": 30, "encoder_config": ENCODER}
CASES = {
    "projected, LSTM": BASE,
    "same width, two layers of LSTM": BASE | {"hidden_size": 16, "num_rnn_layers": 2, "max_width": 3},
    "no LSTM, label by its first token": BASE | {"num_rnn_layers": 0, "embed_ent_token": False},
}
TEXTS = [
    "Marie Curie was born in Warsaw.",
    "In Warsaw, Ian O'Brien-Anders and Zoé were born.",
    "Curie",
]
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
LABELS = [["person", "city"], ["date of birth"], ["city", "person", "thing", "date of birth"]]


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = [(piece, 0.0) for piece in SPECIAL]
    vocabulary += [(piece, -2.0 - 0.01 * i) for i, piece in enumerate(PIECES)]
    vocabulary += [(letter, -6.0) for letter in LETTERS]
    inner = Tokenizer(models.Unigram(vocabulary, unk_id=3))
    inner.normalizer = normalizers.NFKC()
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    roles = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=128, **roles)


def build(config: dict[str, Any], folder: Path) -> Any:
    """A model of the package whose weights follow from their names."""
    tokenizer().save_pretrained(folder / "base")
    given = json.loads(json.dumps(config)) | {"model_name": str(folder / "base"), "name": "tiny"}
    model = gliner.GLiNER.from_config(given, backbone_from_pretrained=False)
    state = {name: weights_of(name, tensor.shape) for name, tensor in model.model.state_dict().items()}
    model.model.load_state_dict(state)
    return model.eval()


@torch.no_grad()
def computed(model: Any, texts: list[str], labels: list[str], **options: Any) -> dict[str, Any]:
    """Of each text, read in one batch: the logits of its spans, word by word and by their length, and its entities."""
    words = [[token for token, _, _ in model.data_processor.words_splitter(text)] for text in texts]
    given = [{"tokenized_text": each, "ner": None} for each in words]
    collator = model.data_collator_class(
        model.config, data_processor=model.data_processor, return_tokens=True, return_entities=True,
        return_id_to_classes=True, prepare_labels=False,
    )  # fmt: skip
    batch = collator(given, entity_types=labels)
    logits = model.model(**{name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}).logits
    found = model.inference(texts, labels, **options)
    longest = logits.shape[2]
    spans = [[(i, k) for i in range(len(own)) for k in range(min(longest, len(own) - i))] for own in words]
    return {
        "logits": [
            [[round(float(x), 6) for x in each[span]] for span in own] for each, own in zip(logits, spans, strict=True)
        ],
        "entities": [
            [[each["start"], each["end"], each["text"], each["label"], round(each["score"], 6)] for each in one]
            for one in found
        ],
    }


def main() -> None:
    out: dict[str, Any] = {"gliner": gliner.__version__, "texts": TEXTS, "cases": {}}
    for name, config in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            model = build(config, Path(folder))
            model.save_pretrained(Path(folder) / "model", safe_serialization=True)
            saved = json.loads((Path(folder) / "model" / "gliner_config.json").read_text())
            saved["model_name"] = "tiny"
            files = {f: json.loads((Path(folder) / "model" / f).read_text()) for f in TOKENIZER_FILES}
            shapes = {name: list(tensor.shape) for name, tensor in model.model.state_dict().items()}
            runs = [
                {"labels": labels, "threshold": threshold, "nested": nested}
                | computed(model, TEXTS, labels, threshold=threshold, flat_ner=not nested)
                for labels, threshold, nested in zip(LABELS, (0.5, 0.6, 0.3), (False, False, True), strict=True)
            ]
        del runs[-1]["logits"]  # its entities have their scores
        out["tokenizer"] = files
        out["cases"][name] = {"config": saved, "tensors": shapes, "runs": runs}
    GOLDEN.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
