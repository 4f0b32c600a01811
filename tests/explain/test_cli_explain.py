"""`headway explain`: a page, pictures, a terminal view, worked examples, and errors that say what to do."""

from pathlib import Path

import numpy as np
import pytest
from support.stories import bundle
from typer.testing import CliRunner

import headway
from headway.cli import app
from headway.errors import InputError
from headway.explain import Explanation
from headway.explain.views import VIEWS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle("translate").save(tmp_path_factory.mktemp("explain") / "dates")


@pytest.fixture(scope="module")
def explained(folder: Path) -> Explanation:
    return headway.explain(folder, "May 3", against="05-03")


def run(*arguments: object) -> str:
    found = CliRunner().invoke(app, ["explain", *map(str, arguments)])
    if isinstance(found.exception, InputError):
        raise found.exception
    assert found.exit_code == 0, found.output + repr(found.exception)
    return found.output


def test_a_page_is_written_and_its_size_printed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(folder, "May 3, 1998", "--against", "1998-05-03")
    page = tmp_path / "explain.html"
    assert said.startswith("explain.html  ") and "MB" in said
    text = page.read_text(encoding="utf-8")
    assert "May 3, 1998" in text and page.stat().st_size < 5_000_000
    assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text


def test_pictures_are_drawn_without_a_page(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(folder, "May 3", "--against", "05-03", "--png", "a.png", "--svg", "a.svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG") and "<svg" in (tmp_path / "a.svg").read_text()
    assert not (tmp_path / "explain.html").exists()


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn(view: str, explained: Explanation) -> None:
    figure = explained.draw(view)  # type: ignore[arg-type]
    images = [np.asarray(image.get_array()) for axes in figure.axes for image in axes.get_images()]
    crossing = [each for each in explained.story.attention if each.kind == "cross"][-1]
    wanted = {
        "attention": [each for each in explained.story.attention if each.name.startswith("decoder")][-2].weights[0],
        "alignment": crossing.weights.mean(0),
        "positions": np.cos(explained.story.embedding[0].position.angles),
    }
    if view == "heads":
        assert images[0].shape == (3 * 2, 2)  # encoder, decoder and cross, two layers of two heads
    else:
        np.testing.assert_allclose(images[0], wanted[view])


def test_the_terminal_view_writes_no_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(folder, "May 3, 1998", "--against", "1998-05-03", "--terminal")
    assert "source" in said and "answer" in said and not list(tmp_path.iterdir())


def test_worked_examples(tmp_path: Path) -> None:
    names = run("--example", "list").split()
    assert names[:2] == ["chasing", "three-words"]
    for name in names:
        page = tmp_path / f"{name}.html"
        run("--example", name, "-o", page)
        assert page.stat().st_size > 10_000
    chasing = (tmp_path / "chasing.html").read_text(encoding="utf-8")
    assert "26.05" in chasing and "−4.5" in chasing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--example", "nothing"], "the examples are chasing"),
        ([], "takes MODEL and INPUT"),
        (["MODEL", "May 3", "--layers", "x"], "such as 0,5"),
        (["MODEL", "May 3", "--against", "05-03", "--layers", "9"], "layers are 0 to"),
        (["MODEL", "May 3", "--view", "heads"], "--png or --svg"),
        (["MODEL", "May 3", "--png", "a.svg"], r"must end in \.png"),
        (["MODEL", "May 3", "--png", "a.png", "--view", "lines"], "not one of attention"),
        (["MODEL", "3 May " * 500], "--first N or --last N"),
    ],
)
def test_errors_say_what_to_do(arguments: list[str], message: str, folder: Path, tmp_path: Path) -> None:
    given = [str(folder) if each == "MODEL" else each for each in arguments]
    with pytest.raises(InputError, match=message):
        run(*given)
