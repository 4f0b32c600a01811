"""`translate`: teacher forcing shifted right, padding that asks for nothing, answers in order, truncation counts."""

from typing import Any

import pytest
import torch

from headway.data.row import Row
from headway.errors import ConfigError, DataError
from headway.models.build import build
from headway.models.recipes import Size, decoder
from headway.tasks.task import IGNORE
from headway.tasks.translate import Translate

PAIRS = [("three may 1998", "1998-05-03"), ("the fourth of july 1976", "1976-07-04"), ("1 jan 2000", "2000-01-01")]
ROWS = [Row({"source": source, "target": target}, f"dates.tsv:{i}") for i, (source, target) in enumerate(PAIRS, 1)]


def make(**options: Any) -> Translate:
    return Translate.from_data(
        Translate.scan(ROWS), tokenizer=None, options={"vocab": 300, "target_limit": 20, **options}
    )


def test_the_decoder_sees_the_target_shifted_right() -> None:
    task = make()
    examples = [example for row in ROWS for example in task.examples(row)]
    batch = task.collate(examples, seeds=[()] * 3, where=["a", "b", "c"])
    wanted, shifted = batch.targets["ids"], batch.inputs["decoder_ids"]
    assert (shifted[:, 0] == task.start_id).all()
    for row, example in enumerate(examples):
        target = torch.tensor(example["target"], dtype=torch.long)
        assert torch.equal(wanted[row, : len(target)], target) and target[-1] == task.tokenizer.eos_id
        assert torch.equal(shifted[row, 1 : len(target)], target[:-1])
        assert (wanted[row, len(target) :] == IGNORE).all()
    assert batch.count == int((wanted != IGNORE).sum())


def test_half_of_the_pairs_are_reversed_in_the_first_epochs() -> None:
    task = make(two_way_epochs=2)
    [example, *_] = task.examples(ROWS[0])

    def targets(epoch: int) -> list[list[int]]:
        batch = task.collate([example] * 200, seeds=[(0, epoch, place) for place in range(200)], where=[])
        assert batch.count == int((batch.targets["ids"] != IGNORE).sum())
        return [[token for token in row if token != IGNORE] for row in batch.targets["ids"].tolist()]

    straight, reversed_ = example["target"].tolist(), example["source"].tolist()
    shares = [targets(epoch).count(reversed_) / 200 for epoch in range(3)]
    assert shares[0] == pytest.approx(0.5, abs=0.1) and shares[1] == pytest.approx(0.5, abs=0.1) and shares[2] == 0
    assert targets(0) == targets(0) != targets(1), "a draw of the epoch and the example"
    held_out = task.collate([example] * 20, seeds=[()] * 20, where=[]).targets["ids"].tolist()
    assert held_out == [straight] * 20
    long = make(two_way_epochs=2, target_limit=len(reversed_) - 1)
    batch = long.collate([example] * 50, seeds=[(0, 0, place) for place in range(50)], where=[])
    assert batch.targets["ids"].tolist() == [straight] * 50, "a source over the limit of targets stays a source"


def test_old_options_have_no_directions() -> None:
    assert "two_way_epochs" not in make().to_dict() and make(two_way_epochs=3).to_dict()["two_way_epochs"] == 3


def test_padding_changes_no_loss() -> None:
    task = make(label_smoothing=0.0)
    model = build(task.config(Size(width=32, layers=1, heads=2), "modern")).eval()
    examples = [example for row in ROWS for example in task.examples(row)]
    together = task.loss(model, task.collate(examples, seeds=[()] * 3, where=[])).total
    alone = sum(task.loss(model, task.collate([e], seeds=[()], where=[])).total for e in examples)
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("recipe", ["modern", "classic"])
def test_answers_come_in_order_and_alone_or_together(recipe: Any) -> None:
    task = make()
    model = build(task.config(Size(width=32, layers=1, heads=2), recipe)).eval()
    texts = [row.fields["source"] for row in ROWS]
    together = task.predict(model, texts, beams=2)
    assert together == [task.predict(model, [text], beams=2)[0] for text in texts]
    best = task.predict(model, texts[:1], beams=3, n=3)[0]
    assert len(best) == 3


def test_what_does_not_fit_is_counted_or_refused() -> None:
    task = make(source_limit=4)
    for row in ROWS:
        example = task.examples(row)[0]
        assert len(example["source"]) <= 4 and example["source"][-1] == task.tokenizer.eos_id
    line = task.truncation.summary()[0]
    assert line.startswith("source: 1 of 3 cut to 4 tokens (33.3%)") and "dates.tsv:2" in line
    with pytest.raises(DataError, match=r"dates\.tsv:2: source has \d+ tokens, the model takes 4"):
        make(source_limit=4, overflow="error").examples(ROWS[1])


def test_scores_against_perfect_and_wrong_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make()
    model = build(task.config(Size(width=32, layers=1, heads=2), "modern")).eval()
    right = [row.fields["target"] for row in ROWS]
    monkeypatch.setattr(task, "predict", lambda *_a, **_k: right)
    scores = task.evaluate(model, ROWS)
    assert scores["exact"] == 1.0 and scores["chrf"] == pytest.approx(100.0)
    monkeypatch.setattr(task, "predict", lambda *_a, **_k: ["nothing"] * 3)
    assert task.evaluate(model, ROWS)["exact"] == 0.0
    assert task.signature().startswith("BLEU|nrefs:1|") and "; chrF2|nrefs:1|" in task.signature()


def test_a_decoder_is_no_start_for_it() -> None:
    model = build(decoder(Size(width=32, layers=1, heads=2), "modern", vocab=30, context=16))
    with pytest.raises(ConfigError, match="encoder-decoder"):
        make().adapt(model)
