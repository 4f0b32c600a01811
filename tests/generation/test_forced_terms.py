"""Terms that an answer must have: where the search may put them, and that every answer has them."""

import re
from pathlib import Path

import pytest
from support import untrained
from support.commands import headway

from headway.bundle import Bundle
from headway.errors import ConfigError, DataError
from headway.generation.forced_terms import ForcedTerms, term_ids, word_tokens
from headway.loading import load
from headway.tasks.glossary import Glossary

SOURCES = ["3 May 1998", "4 June", "", "May 1998 and on", "nothing of it"]
TERMS = {"May": "import statement", "1998": "hello", "june": "User"}
LENGTH = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained.translator(tmp_path_factory.mktemp("models") / "translator")


@pytest.fixture(scope="module")
def model(folder: Path) -> Bundle:
    return load(folder)


def has(text: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text) is not None


def test_every_answer_has_its_terms_as_words_alone_or_together(model: Bundle) -> None:
    found = model(SOURCES, glossary=TERMS, max_new_tokens=LENGTH)
    plain = model(SOURCES, beams=5, max_new_tokens=LENGTH)
    for source, text, without in zip(SOURCES, found, plain, strict=True):
        wanted = Glossary(TERMS).found(source)
        assert all(has(text, term) for term in wanted), (source, text)
        assert text == model(source, glossary=TERMS, max_new_tokens=LENGTH)
        assert wanted or text == without
        assert not wanted or not all(has(without, term) for term in wanted)  # control
    several = model(SOURCES[0], glossary=TERMS, max_new_tokens=LENGTH, n=3)
    assert len(set(several)) == 3 and all(has(text, "hello") for text in several)


def test_a_state_counts_the_tokens_of_terms_in_any_order(model: Bundle) -> None:
    tokenizer = model.processor.require_tokenizer("a test")
    rule = ForcedTerms(((5, 6, 7), (8,)), (2,), tokenizer)
    state = rule.new_state()
    assert rule.size == 4 and state.met == 0 and state.following() == {5, 8}
    assert state.after(5).met == 1 and state.after(5).following() == {6}
    assert state.after(5).after(9).met == 0, "a term that is broken off begins again"
    done = state.after(8).after(5).after(6).after(7)
    assert done.met == 4 and not done.left and done.closed and not done.after(9).closed
    assert state.met == 0, "the state of another beam is another one"


def test_beams_are_divided_among_the_numbers_of_tokens(model: Bundle) -> None:
    rule = ForcedTerms(((5,),), (2,), model.processor.require_tokenizer("a test"))
    state, vocab = rule.new_state(), 100
    candidates = [[-score, token, -score] for score, token in ((0.1, 20.0), (0.2, 21.0), (0.3, 22.0), (9.0, 5.0))]
    found = rule.allocate(candidates, [state], width=2, vocab=vocab)
    assert [int(place) for _, place, _ in found] == [20, 5], "the best one without the term, and the one with it"
    for end, expected in ((-8.0, [20, 21]), (-0.01, [2, 20, 21])):
        ended = rule.allocate([*candidates, [end, 2.0, end]], [state.after(5)], width=2, vocab=vocab)
        assert [int(place) for _, place, _ in ended] == expected, "it ends where that is among the best"


def test_terms_are_found_as_words_and_the_longest_first(tmp_path: Path) -> None:
    glossary = Glossary({"dog": "Hund", "ice cream": "Eis", "ice": "Glatteis", "US": "USA"})
    assert glossary.found("Dog, ICE  cream and dogs; us") == ("Hund", "Eis")
    assert glossary.found("The US. Ice, dog, dog") == ("USA", "Glatteis", "Hund")
    file = tmp_path / "terms.tsv"
    file.write_text("# comment\ndog\tHund\n\nUS\tUSA\n")
    assert Glossary.read(file).terms == {"dog": "Hund", "US": "USA"}
    for content, message in (("dog\n", "terms.tsv:1"), ("a\tb\na\tc\n", "terms.tsv:2.*two"), ("#\n", "no terms")):
        file.write_text(content)
        with pytest.raises(DataError, match=message):
            Glossary.read(file)


def test_tokens_of_a_term_are_those_inside_a_text(model: Bundle) -> None:
    tokenizer = model.processor.require_tokenizer("a test")
    assert tokenizer.decode(list(term_ids("import", tokenizer))).strip() == "import"
    going_on = set(word_tokens(tokenizer))
    assert tokenizer.encode("a", special=False)[0] in going_on and term_ids("import", tokenizer)[0] not in going_on


def test_a_glossary_of_the_command_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("May\thello\n")
    run = ["run", folder, "3 May", "--max-new-tokens", "9", "--glossary"]
    assert has(headway(*run, "terms.tsv", cwd=tmp_path).stdout, "hello")
    assert "no such file" in headway(*run, "other.tsv", cwd=tmp_path).stderr
    untrained.of_task("summarize", tmp_path / "summarize")
    refused = headway("run", "summarize", "3 May", "--glossary", "terms.tsv", cwd=tmp_path)
    assert refused.returncode == 2 and "does not translate, so --glossary does not apply" in refused.stderr
    with pytest.raises(ConfigError, match="beams above 1"):
        load(folder)("3 May", glossary={"May": "hello"}, beams=1)
