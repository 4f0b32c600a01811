"""Figures from plain arrays: each draws its numbers and labels, in the format of the file's suffix."""

from pathlib import Path

import numpy as np
import pytest

from headway.inspect import draw_alignment, draw_attention, draw_heads, draw_positions
from headway.inspect.pictures import draw_confusion

RNG = np.random.default_rng(0)


def drawn(figure) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.get_images()]


def labels(figure) -> set[str]:
    texts = [t for axes in figure.axes for t in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    return {text.get_text() for text in texts}


def test_an_alignment_draws_its_weights(tmp_path: Path) -> None:
    weights = RNG.random((3, 4))
    figure = draw_alignment(weights, columns=[" a", "$b", "\n", ""], rows=["x", "y", "z"], path=tmp_path / "a.svg")
    assert np.array_equal(drawn(figure)[0], weights)
    assert {"␣a", "⏎", "∅", r"\$b", "x"} <= labels(figure)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<svg" in text


@pytest.mark.parametrize("heads", [1, 4, 6])
def test_every_head_is_drawn_once(heads: int, tmp_path: Path) -> None:
    weights = RNG.random((heads, 3, 5))
    figure = draw_attention(
        weights, queries=list("abc"), keys=list("vwxyz"), path=tmp_path / "a.png", title="$100 & <b>"
    )
    found = [image for image in drawn(figure) if image.shape == (3, 5)]
    assert len(found) == heads and all(np.array_equal(a, b) for a, b in zip(found, weights, strict=True))
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == [f"head {head}" for head in range(heads)]
    assert set("abcvwxyz") <= labels(figure)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_angles_are_drawn_by_their_cosine() -> None:
    angles = RNG.random((6, 4)) * 20
    np.testing.assert_allclose(drawn(draw_positions(angles, angles=True))[0], np.cos(angles))
    assert np.array_equal(drawn(draw_positions(angles))[0], angles)


def test_heads_that_were_not_measured_stay_blank() -> None:
    change = np.array([[0.5, -1.25], [np.nan, 0.0]])
    figure = draw_heads(change)
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written == ["0.50", "-1.25", "0.00"]
    assert np.isnan(drawn(figure)[0][1, 0]) or np.ma.is_masked(figure.axes[0].get_images()[0].get_array()[1, 0])


def test_a_letter_that_the_font_lacks_is_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    draw_alignment(np.eye(2), columns=["你好", "👩"], rows=["שלום", "b"], path=tmp_path / "a.png")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_small_changes_of_heads_are_distinguishable() -> None:
    figure = draw_heads(np.array([[0.0138, -0.0004]]))
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.0138", "-0.0004"]


@pytest.mark.parametrize("heads", [1, 4])
def test_a_title_stays_in_the_picture(heads: int) -> None:
    title = "a model of mine: what is the price of twenty-one plates?  (encoder layer 0)"
    figure = draw_attention(RNG.random((heads, 3, 3)), queries=list("abc"), keys=list("abc"), title=title)
    figure.draw_without_rendering()
    box = figure._suptitle.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    assert figure._suptitle.get_text().split() == title.split()


def test_labels_of_a_confusion_matrix_keep_their_spaces() -> None:
    figure = draw_confusion(np.array([[3, 1], [0, 4]]), labels=["Ankle boot", "Bag"])
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["Ankle boot", "Bag"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["3", "1", "4"]
