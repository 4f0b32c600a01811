"""Tasks that start from DeBERTa (v2 with its convolution, fill with the mask decoder) and from XLNet: they train, are
saved as the family they came from, and predict the same when loaded again."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.task_run import losses, trained

import headway
from headway import tasks
from headway.bundle import Bundle
from headway.data.dataset import open_builtin
from headway.families import find
from headway.families.family import Keys
from headway.models.build import build
from headway.models.init import initialise
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer

DEBERTA = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 48,
           "max_position_embeddings": 128, "relative_attention": True, "pos_att_type": "c2p|p2c", "type_vocab_size": 0,
           "position_biased_input": False, "position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm",
           "conv_kernel_size": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
XLNET = {"d_model": 32, "n_head": 2, "n_layer": 2, "d_inner": 48, "dropout": 0.0, "mem_len": 16}
STARTS = {"deberta-v2": (DEBERTA, "DebertaV2ForMaskedLM"), "xlnet": (XLNET, "XLNetLMHeadModel")}
CASES = [
    *(("deberta-v2", name) for name in ("fill", "classify", "tag", "answer", "embed")),
    *(("xlnet", name) for name in ("generate", "classify", "tag", "answer")),
]


def start(family: str, tokenizer: Tokenizer) -> tuple[Any, dict[str, Any]]:
    keys, architecture = STARTS[family]
    keys = keys | {"vocab_size": len(tokenizer)}
    model = build(find(family).read(Keys(keys), architecture))
    initialise(model, "classic", seed=0)
    return model.eval(), keys


@pytest.mark.parametrize(("family", "name"), CASES)
def test_a_task_starts_from_it(family: str, name: str, tmp_path: Path) -> None:
    data, kind = open_builtin(tasks.find(name).builtin, size=16), tasks.find(name)
    options = {"context": 16} if name == "generate" else {"limit": 48}
    own = kind.from_data(kind.scan(data.train()), tokenizer=None, options={"vocab": 300, **options})
    task = kind.from_data(kind.scan(data.train()), tokenizer=own.tokenizer, options=options)
    model, keys = start(family, task.tokenizer)
    model = task.adapt(model)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    if name == "generate":
        assert task.architecture == "xlnet"
        ids = torch.randint(5, 300, (4, 17))
        batch = task.collate([{"ids": row.numpy()} for row in ids], seeds=[(0, i) for i in range(4)], where=[])
        assert batch.count == 4 * 2 * 4 and batch.inputs["order"].min() == -1
        batch_loss = task.loss(model.train(), batch).total
        batch_loss.backward()
        assert all(p.grad is not None for key, p in model.named_parameters() if ".segment" not in key)
        model.eval().zero_grad(set_to_none=True)
    else:
        curve = losses(trained(task, model, data, folder=tmp_path, steps=2, batch=8))
        assert all(value == value for value in curve)
        assert any(not torch.equal(before[key], value) for key, value in model.state_dict().items())
    row = next(iter(data.test()))
    value = task.model_input(row)
    if name in ("fill", "generate"):  # whose rows are whole documents
        value = f"the {task.mask} of a name" if name == "fill" else "the name of"
    more = {"max_new_tokens": 4, "temperature": 0.0} if name == "generate" else {}
    found = task.predict(model.eval(), [value], **more)
    bundle = Bundle(model, family, Processor(task.tokenizer), foreign=keys, task=task)
    again = headway.load(bundle.save(tmp_path / "saved"))
    assert again.family == family
    assert rounded(again.task.predict(again.model, [value], **more)) == rounded(found)


def rounded(found: Any) -> str:
    return re.sub(r"\d\.\d+(e-\d+)?", lambda number: f"{float(number[0]):.4f}", str(found))
