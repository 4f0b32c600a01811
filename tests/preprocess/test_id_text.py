"""Token ids as text, for models without a tokenizer."""

import pytest

from headway.errors import InputError
from headway.preprocess.id_text import IdTokenizer
from headway.preprocess.text import StreamDecoder


def test_ids_are_separated_by_spaces_or_commas() -> None:
    tokenizer = IdTokenizer(12)
    assert tokenizer.encode("3, 11 0") == [3, 11, 0] and len(tokenizer) == 12
    assert tokenizer.encode_batch(["1 2", "3"]) == [[1, 2], [3]]
    assert tokenizer.decode([3, 11, 0]) == "3 11 0" and tokenizer.tokens([11]) == ["11"]
    assert tokenizer.encode_offsets("3, 11 0") == ([3, 11, 0], [(0, 1), (3, 5), (6, 7)])
    assert tokenizer.eos_id is None and not tokenizer.special_ids


def test_a_stream_separates_ids() -> None:
    stream = StreamDecoder(IdTokenizer(12))
    assert "".join([*map(stream.push, [3, 11, 0]), stream.finish()]) == "3 11 0"


@pytest.mark.parametrize("text", ["", "three", "1 x", "01", "1.5", "٣"])
def test_other_texts_raise(text: str) -> None:
    with pytest.raises(InputError, match="no tokenizer: give the ids"):
        IdTokenizer(12).encode(text)


@pytest.mark.parametrize("text", ["12", "0 -1"])
def test_ids_outside_the_vocabulary_raise(text: str) -> None:
    with pytest.raises(InputError, match=r"(12|-1) is not an id of this model, whose vocabulary has 12 tokens"):
        IdTokenizer(12).encode(text)
