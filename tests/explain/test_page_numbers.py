"""Pages in a real browser: every number is the story's, and the page's own arithmetic agrees with the model."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import pages
from support.browser import choose, column_of, hover, near, point_at, tip, value_in

from headway.explain.story import Guess, LensLayerView, Story

Open = Callable[[Story], Any]


def test_pointing_shows_name_shape_index_and_value(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "heads")
    for layer, head, row, column in [(0, 0, 5, 2), (2, 3, 13, 0)]:
        choose(page, layer=layer, head=head)
        text = point_at(page, page.find_element("css selector", "#large .frame canvas"), row, column)
        assert text.startswith(f"weights[{head}, {row}, {column}] = ") and "shape 4 × 14 × 14" in text
        assert value_in(text) == pytest.approx(float(story.attention[layer].weights[head, row, column]), rel=1e-5)
    assert "masked" in point_at(page, page.find_element("css selector", "#large .frame canvas"), 2, 5)


def test_embeddings_and_angles_are_the_storys(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    section = near(page, "embedding")
    text = point_at(page, section.find_elements("css selector", ".frame canvas")[0], 3, 7)
    assert value_in(text) == pytest.approx(float(story.embedding[0].token[3, 7]), rel=1e-5)
    choose(page, layer=0, head=0, query=9)
    assert hover(page, section.find_elements("css selector", ".dials svg")[2]).startswith("angles[9, 2] = ")
    assert value_in(tip(page)) == pytest.approx(float(story.embedding[0].position.angles[9, 2]), rel=1e-5)


@pytest.mark.parametrize("make", [pages.decoder_story, pages.translator_story])
def test_the_pages_own_arithmetic_is_the_models(make: Callable[[], Story], show: Open) -> None:
    story = make()
    page = show(story)
    near(page, "byhand")
    for layer, attention in enumerate(story.attention):
        head, query = layer % attention.heads, attention.weights.shape[1] - 1
        choose(page, layer=layer, head=head, query=query)
        q, k = attention.q[head, query], attention.k[head * attention.kv_heads // attention.heads]
        np.testing.assert_allclose([float(x) for x in column_of(page, "every-key", 1)], k @ q, atol=0.006)
        weights = [float(x) for x in column_of(page, "every-key", -1)]
        np.testing.assert_allclose(weights, attention.weights[head, query], atol=6e-5)
        assert float(page.find_element("id", "check").get_attribute("data-worst")) < 1e-5


def test_wrong_recorded_weights_are_reported(show: Open) -> None:
    story = pages.decoder_story(layers=1)
    story.attention[0].weights[:] = story.attention[0].weights[:, :, ::-1]
    page = show(story)
    near(page, "byhand")
    assert page.find_element("id", "check").text.startswith("≠")


def test_the_notes_own_example(show: Open) -> None:
    page = show(pages.seed_story())
    near(page, "byhand")
    choose(page, key=0)
    assert page.find_element("id", "total").text.endswith("score 26.05")
    fits = [row.text.split()[4:] for row in page.find_elements("css selector", "#byhand details tbody tr")]
    assert [" ".join(words) for words in fits] == [
        "match ✓", "strong match ✓", "strong match ✓", "minor mismatch ✗", "match ✓", "match ✓"
    ]  # fmt: skip
    choose(page, key=1)
    assert page.find_element("id", "total").text.endswith("score −4.5")


def test_temperature_top_k_and_top_p(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "output")
    logits = np.array([each.logit for each in story.output.rows[0].candidates])

    def slide(name: str, value: float) -> list[str]:
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        page.execute_script(script, page.find_element("id", f"slide-{name}"), value)
        return column_of(page, "candidates", -1)

    hot = np.exp(logits / 1.5) / np.exp(logits / 1.5).sum()
    assert abs(float(slide("temperature", 1.5)[0].strip("%")) / 100 - hot[0]) < 0.006
    slide("temperature", 1)
    three = slide("k", 3)
    assert [text == "out" for text in three[:12]] == [False] * 3 + [True] * 9
    slide("k", 21)
    share = np.exp(logits) / np.exp(logits).sum()
    fewest = int(np.searchsorted(share.cumsum(), 0.9) + 1)
    assert [text == "out" for text in slide("p", 0.9)[:12]] == [i >= fewest for i in range(12)]


def test_cross_attention_shows_its_alignment(show: Open) -> None:
    story = pages.translator_story()
    page = show(story)
    near(page, "heads")
    choose(page, layer=3)
    mean = story.attention[3].weights.mean(0)
    text = point_at(page, page.find_element("css selector", "#alignment canvas"), 1, 4)
    assert value_in(text) == pytest.approx(float(mean[1, 4]), rel=1e-4)
    pairs = [node.text for node in page.find_elements("css selector", "#alignment li")]
    read = [token.text.replace(" ", "␣") for token in story.sequences["source"].tokens]
    assert [pair.split(" ← ")[1] for pair in pairs] == [read[i] for i in mean.argmax(1)]


def test_a_tag_is_shown_for_each_token(show: Open) -> None:
    page = show(pages.encoder_story("tags"))
    near(page, "output")
    page.find_elements("css selector", "#output .token")[3].click()
    assert page.find_element("css selector", "#output .who").text == "Logits of ␣time"


def test_only_self_attention_is_rotated_by_position(show: Open) -> None:
    story = pages.translator_story()
    rng = np.random.default_rng(0)
    turned = [pages.embedding(rng, name, count, kind="rotary") for name, count in (("source", 6), ("target", 4))]
    page = show(replace(story, embedding=turned))
    near(page, "byhand")
    for layer, attention in enumerate(story.attention):
        choose(page, layer=layer)
        said = "rotated by its position" in page.find_element("css selector", "#byhand .body").text
        assert said == (attention.kind == "self")


def test_the_logit_lens_of_a_classifier(show: Open) -> None:
    guesses = [Guess("good", 0.75), Guess("not good", 0.25)]
    page = show(replace(pages.encoder_story("classes"), lens=[LensLayerView(0, [guesses])]))
    near(page, "stream")
    assert column_of(page, "lens", 1) == ["good 75%"] and column_of(page, "lens", 2) == ["not good 25%"]


def test_a_query_names_the_predicted_token(show: Open) -> None:
    story = pages.translator_story()
    page = show(story)
    near(page, "byhand")
    choose(page, layer=3, query=2)
    written = story.output.rows[2].candidates[0].text.replace(" ", "␣")
    assert page.find_element("css selector", "#byhand .who").text.endswith(f"next comes {written}")
