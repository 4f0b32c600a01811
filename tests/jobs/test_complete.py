"""`headway run --complete` and `headway.complete`: whole words with probabilities."""

import itertools
import json
from pathlib import Path

import pytest
from support.commands import headway as command

import headway
from headway.errors import InputError


def test_a_real_tokenizer_suggests_whole_words(language_model: Path) -> None:
    bundle = headway.load(language_model)
    words = headway.complete(bundle, "the import state", top=8)
    assert 1 <= len(words) <= 8
    assert all(a.probability >= b.probability for a, b in itertools.pairwise(words))
    assert 0 < sum(word.probability for word in words) <= 1.0 + 1e-6
    whole = [word for word in words if word.text[:1].isalpha()]
    assert all(word.word == "state" + word.text for word in whole)
    with pytest.raises(InputError, match="at least 1"):
        headway.complete(bundle, "a", top=0)


def test_the_command(language_model: Path, translator: Path, tmp_path: Path) -> None:
    shown = command("run", language_model, "--complete", "the import", "--top", "3", cwd=tmp_path)
    assert len(shown.stdout.splitlines()) == 3 and "%" in shown.stdout, shown.stderr
    printed = command("run", language_model, "--complete", "--top", "3", "--json", cwd=tmp_path, input="the import\n")
    expected = headway.complete(language_model, "the import", top=3)
    assert [word["text"] for word in json.loads(printed.stdout)["words"]] == [word.text for word in expected]
    assert "completion needs a decoder" in command("run", translator, "--complete", "x", cwd=tmp_path).stderr
    wrong = command("run", language_model, "--complete", "x", "--beams", "2", cwd=tmp_path)
    assert wrong.returncode and "--beams does not apply" in wrong.stderr
