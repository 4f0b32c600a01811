"""Pages in a real browser: selecting by pressing, pointing and arrow keys."""

from collections.abc import Callable
from typing import Any

from support import pages
from support.browser import choose, near, tip

from headway.explain.examples import example
from headway.explain.story import Story

Open = Callable[[Story], Any]
ENTER, TAB, LEFT, RIGHT, DOWN = "\ue007", "\ue004", "\ue012", "\ue014", "\ue015"  # as a keyboard sends them


def test_pressing_tokens_heads_and_rows_follows_them(show: Open) -> None:
    page = show(pages.decoder_story())
    near(page, "tokens")
    page.find_elements("css selector", "#tokens .token")[4].click()
    assert page.find_element("id", "pick-query").get_property("value") == "4"
    near(page, "heads")
    page.find_elements("css selector", ".thumb")[6].click()  # four heads a layer: layer 1, head 2
    assert page.find_element("id", "large-name").text == "layer 1, head 2"
    near(page, "stream")
    page.find_elements("css selector", "#ranking button")[1].click()
    assert page.find_element("id", "pick-layer").get_property("value") == "0"


def test_arrow_keys_read_a_matrix_and_enter_follows(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "heads")
    choose(page, layer=1, head=2, query=6, key=3)
    canvas = page.find_element("css selector", "#large .frame canvas")
    page.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(DOWN, LEFT)
    said = page.find_element("id", "say").get_attribute("textContent")
    assert said.startswith("weights[2, 7, 2] = ")
    canvas.send_keys(ENTER)
    assert page.find_element("id", "pick-query").get_property("value") == "7"
    assert page.find_element("id", "pick-key").get_property("value") == "2"
    page.switch_to.active_element.send_keys(DOWN)  # the picture was drawn again and is still in focus
    assert page.find_element("id", "say").get_attribute("textContent").startswith("weights[2, 8, 2] = ")


def test_arrow_keys_walk_tables_and_clocks(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "embedding")
    choose(page, layer=0, head=1, query=5)
    for place, first, second in (
        ("#embedding .dials svg", "angles[5, 0]", "angles[5, 1]"),
        ("#every-key td", "q · k", "scaled"),
    ):
        page.find_element("id", "pick-head").send_keys(TAB)  # from here on the keyboard is what is used
        page.execute_script("arguments[0].focus()", page.find_element("css selector", place))
        assert tip(page).startswith(first)
        page.switch_to.active_element.send_keys(RIGHT)
        assert tip(page).startswith(second)


def test_generation_steps_by_button_and_by_key(show: Open) -> None:
    story = pages.decoder_story()
    page = show(story)
    near(page, "generation")
    button = page.find_element("id", "next-step")
    button.click()
    button.send_keys(RIGHT)
    assert "step 3 of 5" in page.find_element("id", "player").text
    assert len(page.find_elements("css selector", "#written .piece")) == 14 + 2 + 1


def test_pressing_a_token_of_the_other_text_selects_it_as_a_query(show: Open) -> None:
    page = show(pages.translator_story())
    near(page, "tokens")
    choose(page, layer=0)  # the encoder's own: the written text has no part in it
    page.find_elements("css selector", "#tokens .token")[6 + 2].click()
    assert page.find_element("id", "pick-layer").get_property("value") == "2"
    assert page.find_element("id", "pick-query").get_property("value") == "2"


def test_without_attention_nothing_can_be_pressed(show: Open) -> None:
    page = show(example("positions"))
    near(page, "tokens")
    assert "Press" not in page.find_element("tag name", "body").text
