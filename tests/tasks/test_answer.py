"""`answer`: from a question and a text to the piece that answers it."""

import math

import numpy as np
import pytest
import torch
from support.task_run import SMALL, losses, started, trained

from headway.data.read import Row
from headway.errors import ConfigError, DataError, InputError
from headway.models import recipes
from headway.models.build import build
from headway.models.config import PoolerConfig, TokenHeadConfig
from headway.models.init import initialise
from headway.models.outputs import Output
from headway.tasks import find
from headway.tasks.answer import Answer
from headway.tasks.spans import NOWHERE, best_spans

CONTEXT = "Anna lives in Bern . Otto lives in Rome ."
QUESTION = "Where does Otto live ?"
ROWS = [
    Row({"question": QUESTION, "context": CONTEXT, "answers": [("Rome", 35)]}, "q.json:1"),
    Row({"question": "Where does Ida live ?", "context": CONTEXT, "answers": []}, "q.json:2"),
]
NAMES = " ".join(["Anna"] * 20 + ["Otto"] + ["Anna"] * 9)
LONG = Row({"question": "Where ?", "context": NAMES, "answers": [("Otto", 100)]}, "q.json:3")


def begun(**options) -> Answer:
    return Answer.from_data(Answer.scan(ROWS), tokenizer=None, options={"vocab": 100, **options})


@pytest.fixture(scope="module")
def task() -> Answer:
    return begun()


def untrained(task: Answer):
    """All weights drawn, none at zero, so that every text gets another answer."""
    model = build(task.config(SMALL, "classic"))
    initialise(model, "classic", seed=0)
    return model.eval()


class Fixed(torch.nn.Module):
    """A model whose start and end scores are given, by the token's place."""

    def __init__(self, start: dict[int, float], end: dict[int, float]) -> None:
        super().__init__()
        self.start, self.end, self.device = start, end, torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs, *, padding_mask=None, segments=None):
        logits = torch.full((*inputs.shape, 2), -5.0)
        for label, scores in enumerate((self.start, self.end)):
            for place, score in scores.items():
                logits[:, place, label] = score
        return Output(hidden=logits, logits=logits)


# --- examples


def test_an_example_is_question_and_context_with_the_span(task):
    assert find("answer") is Answer
    [example] = task.examples(ROWS[0])
    text = "[CLS] where does otto live ? [SEP] anna lives in bern . otto lives in rome . [SEP]"
    words = text.split()
    assert example["ids"].tolist() == [task.tokenizer.id(word) for word in words]
    assert example["segments"].tolist() == [0] * 7 + [1] * 11
    assert example["context"].tolist() == [7, 17]
    assert example["span"].tolist() == [words.index("rome")] * 2
    [unanswerable] = task.examples(ROWS[1])
    assert tuple(unanswerable["span"]) == NOWHERE


def test_an_answer_inside_a_token_takes_the_whole_token(task):
    [window] = task.windows(QUESTION, CONTEXT, where="")
    first, last = window.span(CONTEXT.index("live"), CONTEXT.index("Bern") + 2)
    assert window.characters(first, last) == (CONTEXT.index("lives"), CONTEXT.index("Bern") + 4)


def test_windows_overlap_and_lose_nothing():
    task = begun(limit=16, stride=5)
    windows = task.windows(LONG.fields["question"], LONG.fields["context"], where="")
    room = 16 - 5  # [CLS] Where ? [SEP] … [SEP]
    starts = [window.offsets[0][0] // 5 for window in windows]
    assert starts == [0, 5, 10, 15, 20]
    assert [len(window.offsets) for window in windows] == [room] * 4 + [10]
    assert all(len(window.ids) <= 16 and window.ids[-1] == task.tokenizer.sep_id for window in windows)
    spans = [tuple(example["span"]) for example in task.examples(LONG)]
    assert spans == [NOWHERE, NOWHERE, (14, 14), (9, 9), (4, 4)]  # token 20 of the context, 4 tokens in front of it
    assert task.truncation.summary() == []


def test_a_stride_wider_than_the_room_leaves_no_gap():
    task = begun(limit=16, stride=100)
    windows = task.windows(LONG.fields["question"], LONG.fields["context"], where="")
    assert sum(len(window.offsets) for window in windows) == 30


def test_an_answer_across_a_windows_end_is_not_in_it():
    task = begun(limit=16, stride=11)
    [window, *_] = task.windows("Where ?", LONG.fields["context"], where="")
    assert window.span(50, 54) == (14, 14) and window.span(50, 59) == NOWHERE


def test_without_windows_a_long_context_is_cut_and_counted_or_refused():
    cut = begun(limit=16, overflow="truncate")
    assert len(cut.examples(LONG)) == 1
    assert cut.truncation.summary()[0].startswith("context: 1 of 1 cut to 11 tokens")
    with pytest.raises(DataError, match="context has 30 tokens"):
        begun(limit=16, overflow="error").examples(LONG)


def test_a_long_question_is_cut_and_counted():
    task = begun(question_limit=3)
    [example] = task.examples(ROWS[0])
    assert example["context"].tolist() == [5, 15]
    assert task.truncation.to_dict()["question"]["longest"] == 5


def test_a_misplaced_answer_is_refused_by_line(task):
    wrong = Row({**ROWS[0].fields, "answers": [("Rome", 34)]}, "q.json:7")
    with pytest.raises(DataError, match=r"q\.json:7: answers: 'Rome' is not at character 34"):
        task.examples(wrong)


# --- loss and search


def test_the_loss_is_over_the_context_and_cls_alone(task):
    batch = task.collate([*task.examples(ROWS[0]), *task.examples(ROWS[1])], seeds=[(), ()], where=["a", "b"])
    place = int(batch.targets["span"][0, 0])
    model = Fixed({0: 1.0, place: 2.0, 3: 50.0}, {0: 0.0, place: 1.0, 3: 50.0})  # token 3 is of the question
    others = 9 * math.exp(-5)
    start, end = (math.log(math.exp(a) + math.exp(b) + others) for a, b in ((1, 2), (0, 1)))
    expected = ((start - 2) + (end - 1)) / 2 + ((start - 1) + (end - 0)) / 2
    assert float(task.loss(model, batch).total) == pytest.approx(expected, rel=1e-5)
    assert batch.count == 2


def test_the_loss_does_not_depend_on_padding(task):
    model, examples = untrained(task), [*task.examples(ROWS[0]), *task.examples(LONG)]
    with torch.no_grad():
        both = task.loss(model, task.collate(examples, seeds=[(), ()], where=[])).total
        apart = sum(task.loss(model, task.collate([one], seeds=[()], where=[])).total for one in examples)
    assert float(both) == pytest.approx(float(apart), rel=1e-5)


def test_span_search_is_the_double_loop():
    logits = torch.randn(3, 12, 2)
    logits[1, 8:] = -torch.inf
    found = best_spans(logits, longest=4, n=5)
    for row in range(3):
        spans = {
            (i, j): float(logits[row, i, 0] + logits[row, j, 1]) for i in range(1, 12) for j in range(i, min(i + 4, 12))
        }
        best = sorted(spans, key=lambda span: -spans[span])[:5]
        assert list(zip(found.first[row].tolist(), found.last[row].tolist(), strict=True)) == best
        assert found.score[row].tolist() == pytest.approx([spans[span] for span in best], rel=1e-5)
        whole = sum(map(math.exp, spans.values())) + math.exp(float(logits[row, 0].sum()))
        assert float(found.total[row]) == pytest.approx(math.log(whole), rel=1e-5)
    assert found.null.tolist() == pytest.approx(logits[:, 0].sum(-1).tolist())


def test_the_answer_and_its_probability(task):
    asked = {"question": QUESTION, "context": CONTEXT}
    sure = Fixed({0: 0.0, 15: 4.0}, {0: 0.0, 15: 4.0})
    [found] = task.predict(sure, [asked])
    # tokens 7 to 16 make 55 spans; besides (15, 15), one begins at token 15 and eight end at it
    spans = [8.0] + [-1.0] * 9 + [-10.0] * 45
    whole = sum(map(math.exp, spans)) + math.exp(0)
    assert found == {"answer": "Rome", "score": pytest.approx(math.exp(8) / whole), "start": 35, "end": 39}


def test_no_answer_wins_by_the_threshold(task):
    asked = [{"question": QUESTION, "context": CONTEXT}]
    model = Fixed({0: 3.0, 15: 2.0}, {0: 3.0, 15: 2.0})  # 6 against 4
    [nothing] = task.predict(model, asked)
    assert (nothing["answer"], nothing["start"], nothing["end"]) == ("", 0, 0)
    assert task.predict(model, asked, null_threshold=1.9)[0]["answer"] == ""
    assert task.predict(model, asked, null_threshold=2.1)[0]["answer"] == "Rome"
    several = task.predict(model, asked, n=3)[0]
    assert [one["answer"] for one in several[:2]] == ["", "Rome"] and len(several) == 3
    assert sum(one["score"] for one in several) < 1


def test_the_best_window_answers_and_the_least_null_counts():
    task = begun(limit=16, stride=5)

    class Finder(Fixed):
        def forward(self, inputs, *, padding_mask=None, segments=None):
            here = (inputs == task.tokenizer.id("otto")).float() * 10
            here[:, 0] = 6 - here.sum(1)  # where it is not, [CLS] is sure of that
            return Output(hidden=here, logits=here[:, :, None].expand(-1, -1, 2))

    [found] = task.predict(Finder({}, {}), [task.model_input(LONG)])
    assert (found["answer"], found["start"]) == ("Otto", 100)
    assert found["score"] > 0.99


def test_predictions_do_not_depend_on_the_batch(task):
    model = untrained(task)
    asked = [task.model_input(row) for row in (*ROWS, LONG)] + [{"question": "Where ?", "context": ""}]
    together = task.predict(model, asked)
    for one, other in zip(together, [task.predict(model, [single])[0] for single in asked], strict=True):
        assert {**one, "score": 0} == {**other, "score": 0}
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
    assert len({one["answer"] for one in together}) > 1
    assert together[-1]["answer"] == ""
    assert all(asked[i]["context"][one["start"] : one["end"]] == one["answer"] for i, one in enumerate(together))


def test_wrong_inputs_are_named(task):
    model = untrained(task)
    with pytest.raises(InputError, match="input 2: task answer takes"):
        task.predict(model, [task.model_input(ROWS[0]), "where?"])
    with pytest.raises(InputError, match="no option 'beams'"):
        task.predict(model, [task.model_input(ROWS[0])], beams=2)
    with pytest.raises(ConfigError, match="stride is 0"):
        begun(stride=0)


def test_a_trained_encoder_gets_an_answer_head(task):
    other = build(recipes.encoder(SMALL, "classic", vocab=len(task.tokenizer), segments=2, head=PoolerConfig()))
    adapted = task.adapt(other)
    assert adapted.config.head == TokenHeadConfig(2, answer=True)
    assert adapted.embedding.tokens.weight is other.embedding.tokens.weight
    assert task.adapt(adapted) is adapted
    with pytest.raises(ConfigError, match="text encoder"):
        task.adapt(build(recipes.decoder(SMALL, "classic", vocab=9, context=9)))


def test_options_survive_a_round_trip(task):
    again = Answer.from_dict(begun(stride=77, null_threshold=1.5).to_dict(), task.tokenizer)
    assert (again.stride, again.null_threshold, again.overflow) == (77, 1.5, "window")


def test_it_learns_to_answer(tmp_path):
    task, model, data = started("answer", rows=200, vocab=1500)
    result = trained(task, model, data, folder=tmp_path, steps=30, batch=16)
    found = losses(result)
    assert found[0] > 3.5 and np.mean(found[-3:]) < 2.6
    scores = task.evaluate(model, list(data.valid()))
    assert set(scores) >= {"exact", "f1", "f1_answerable", "f1_unanswerable", "loss"}
    assert all(0 <= value <= 1 for name, value in scores.items() if name != "loss")
