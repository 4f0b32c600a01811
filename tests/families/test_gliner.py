"""GLiNER: what the `gliner` package computed with tiny models (`tests/parity/gliner_golden.py` writes the file), the
model written out here over the reference library's encoder, the files both ways, and the variants that are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from support.gliner_files import golden, write_folder
from torch import Tensor, nn
from transformers import DebertaV2Config, DebertaV2Model

import headway
from headway.bundle import Bundle
from headway.errors import CheckpointError, ConfigError, InputError
from headway.tasks.entities_by_name import EntitiesByName, EntityReading, split_words

GOLDEN = golden()
CASES = list(GOLDEN["cases"])
EACH_CASE = pytest.mark.parametrize("case", CASES)
FIELDS = ("start", "end", "text", "label")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("gliner")
    return {
        name: write_folder(base / str(number), GOLDEN["cases"][name], GOLDEN["tokenizer"])
        for number, name in enumerate(CASES)
    }


@pytest.fixture(scope="module")
def bundles(folders: dict[str, Path]) -> dict[str, Bundle]:
    return {name: headway.load(folder) for name, folder in folders.items()}


def reading(bundle: Bundle, text: str, labels: list[str]) -> EntityReading:
    task, (text, spans) = bundle.find_task(), split_words(text, 1)
    assert isinstance(task, EntitiesByName)
    (only,) = task.readings([text[a:b] for a, b in spans], labels, where="")
    return only


@torch.no_grad()
def logits(bundle: Bundle, read: EntityReading) -> Tensor:
    """(word, span, label) of one text alone."""
    places = {"word_at": torch.tensor([read.word_at]), "label_at": torch.tensor([read.label_at])}
    return bundle.model(torch.tensor([read.ids]), **places).logits[0]


@EACH_CASE
def test_logits_and_entities_are_those_of_the_package(case: str, bundles: dict[str, Bundle]) -> None:
    bundle, runs = bundles[case], GOLDEN["cases"][case]["runs"]
    for run in runs:
        for text, wanted in zip(GOLDEN["texts"], run.get("logits", []), strict=False):
            found = logits(bundle, reading(bundle, text, run["labels"]))
            torch.testing.assert_close(found[found.isfinite().all(-1)], torch.tensor(wanted), atol=1e-5, rtol=1e-5)
        options = {name: run[name] for name in ("labels", "threshold", "nested")}
        for text, wanted, batched in zip(
            GOLDEN["texts"], run["entities"], bundle(GOLDEN["texts"], **options), strict=True
        ):
            for one in (batched, bundle(text, **options)):
                assert [[each[name] for name in FIELDS] for each in one["entities"]] == [each[:4] for each in wanted]
                assert [each["score"] for each in one["entities"]] == pytest.approx([e[4] for e in wanted], abs=1e-5)
    assert any(run["entities"][0] for run in runs) and any(run["nested"] for run in runs)


@torch.no_grad()
def written_out(folder: Path, read: EntityReading) -> Tensor:
    """From the file's own tensors: the reference library's encoder, torch's LSTM, and the spans one by one."""
    config, tensors = json.loads((folder / "gliner_config.json").read_text()), load_file(folder / "model.safetensors")

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

    def project(name: str, x: Tensor) -> Tensor:
        own = part(name + ".")
        return F.linear(F.relu(F.linear(x, own["0.weight"], own["0.bias"])), own["3.weight"], own["3.bias"])

    encoder = DebertaV2Model(DebertaV2Config(**config["encoder_config"])).eval()
    encoder.load_state_dict(part("token_rep_layer.bert_layer.model."))
    hidden = encoder(torch.tensor([read.ids])).last_hidden_state[0]
    if "token_rep_layer.projection.weight" in tensors:
        own = part("token_rep_layer.projection.")
        hidden = F.linear(hidden, own["weight"], own["bias"])
    words, width = hidden[read.word_at], config["hidden_size"]
    if config["num_rnn_layers"]:
        lstm = nn.LSTM(width, width // 2, config["num_rnn_layers"], bidirectional=True, batch_first=True)
        lstm.load_state_dict(part("rnn.lstm."))
        words = lstm(words[None])[0][0]
    marker = 92  # <<ENT>>
    first = [at + (not config["embed_ent_token"]) for at, token in enumerate(read.ids) if token == marker]
    labels, span = project("prompt_rep_layer", hidden[first]), "span_rep_layer.span_rep_layer."
    out = []
    for start in range(len(words)):
        for end in range(start, min(start + config["max_width"], len(words))):
            both = [project(f"{span}project_start", words[start]), project(f"{span}project_end", words[end])]
            out.append(labels @ project(f"{span}out_project", F.relu(torch.cat(both))))
    return torch.stack(out)


@EACH_CASE
def test_the_model_written_out(case: str, folders: dict[str, Path], bundles: dict[str, Bundle]) -> None:
    for labels in (["person", "city"], ["date of birth"]):
        read = reading(bundles[case], "Marie was born in Warsaw, Ian and Zoé in 1899.", labels)
        assert bundles[case].processor.tokenizer.id("<<ENT>>") == 92
        found = logits(bundles[case], read)
        torch.testing.assert_close(
            found[found.isfinite().all(-1)], written_out(folders[case], read), atol=1e-5, rtol=1e-5
        )


def test_another_order_of_the_ends_is_noticed(folders: dict[str, Path], bundles: dict[str, Bundle]) -> None:
    read = reading(bundles[CASES[0]], "Marie was born in Warsaw", ["city"])
    changed = headway.load(folders[CASES[0]])
    changed.model.start, changed.model.end = changed.model.end, changed.model.start  # type: ignore[union-attr]
    found = logits(changed, read)
    wanted = written_out(folders[CASES[0]], read)
    assert not torch.allclose(found[found.isfinite().all(-1)], wanted, atol=1e-3)


@EACH_CASE
def test_saved_files_have_the_same_tensors_and_settings(
    case: str, folders: dict[str, Path], bundles: dict[str, Bundle], tmp_path: Path
) -> None:
    saved = bundles[case].save(tmp_path / "saved")
    assert not (saved / "config.json").exists()
    ours, theirs = load_file(saved / "model.safetensors"), load_file(folders[case] / "model.safetensors")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    before, after = (json.loads((folder / "gliner_config.json").read_text()) for folder in (folders[case], saved))
    changed = {"model_type", "architectures", "encoder_config"}
    assert {key: after[key] for key in before if key not in changed} == {
        key: before[key] for key in before if key not in changed
    }
    again = headway.load(saved)
    assert again.config == bundles[case].config
    assert again(GOLDEN["texts"], labels=["person"]) == bundles[case](GOLDEN["texts"], labels=["person"])


def test_the_package_and_headway_open_each_others_files(folders: dict[str, Path], tmp_path: Path) -> None:
    gliner = pytest.importorskip(
        "gliner", reason="the gliner package is no dependency; its stored results are compared"
    )
    saved = headway.load(folders[CASES[0]]).save(tmp_path / "saved")
    model, labels = gliner.GLiNER.from_pretrained(str(saved), local_files_only=True), ["person", "city"]
    for text, found in zip(GOLDEN["texts"], model.inference(GOLDEN["texts"], labels), strict=True):
        ours = headway.load(saved)(text, labels=labels)["entities"]
        assert [[each[name] for name in FIELDS] for each in ours] == [[each[name] for name in FIELDS] for each in found]


def changed_folder(tmp_path: Path, **keys: Any) -> Path:
    case = GOLDEN["cases"][CASES[0]]
    return write_folder(tmp_path / "changed", case | {"config": case["config"] | keys}, GOLDEN["tokenizer"])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"span_mode": "token_level"}, r"gliner_config.json: span_mode = 'token_level' is not supported"),
        ({"span_mode": "marker"}, r"span_mode = 'marker' is not supported; supported: 'markerV0'"),
        ({"labels_encoder": "BAAI/bge-small-en"}, r"labels_encoder: a bi-encoder, .* is not supported"),
        ({"relations_layer": "dot"}, r"relations_layer: a model that finds relations is not supported"),
        ({"labels_decoder": "gpt2"}, r"labels_decoder: a model that generates labels by a decoder is not"),
        ({"post_fusion_schema": "l2l-l2t-t2t"}, r"post_fusion_schema = 'l2l-l2t-t2t' is not supported"),
        ({"subtoken_pooling": "mean"}, r"subtoken_pooling = 'mean' is not supported"),
        ({"words_splitter_type": "spacy"}, r"words_splitter_type = 'spacy' is not supported"),
        ({"model_type": "gliner_bi_encoder_span"}, r"model_type 'gliner_bi_encoder_span' is not a supported"),
        ({"encoder_config": None}, r"encoder_config is missing.*save_pretrained\(FOLDER, safe_serialization=True\)"),
        ({"encoder_config": {"model_type": "bert"}}, r"encoder_config: model_type 'bert' is not supported"),
        ({"hidden_size": 13}, r"width is 13: two directions of an LSTM cannot share it"),
        ({"max_widht": 3}, r"gliner_config.json: max_widht = 3 is not a key of this family; did you mean 'max_width'"),
    ],
)
def test_other_variants_are_refused_by_name(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        headway.load(changed_folder(tmp_path, **keys))


def test_a_size_that_the_tensors_do_not_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"rnn\.lstm|recurrent"):
        headway.load(changed_folder(tmp_path, num_rnn_layers=2))


def test_a_tokenizer_without_the_marker_is_an_error(tmp_path: Path) -> None:
    bundle = headway.load(changed_folder(tmp_path, ent_token="<<KIND>>"))
    with pytest.raises(InputError, match="the tokenizer has no token '<<KIND>>'"):
        bundle("Marie", labels=["person"])


def test_token_ids_alone_give_the_encoders_vectors(bundles: dict[str, Bundle]) -> None:
    bundle, ids = bundles[CASES[0]], torch.tensor([[1, 6, 7, 2]])
    with torch.no_grad():
        torch.testing.assert_close(bundle.logits(input_ids=ids), bundle.model.encoder(ids).hidden)  # type: ignore[union-attr]
