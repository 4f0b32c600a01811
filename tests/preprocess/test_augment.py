"""Random changes of pictures: each does what it says, and depends on the example's key alone."""

import numpy as np
import pytest

from headway.preprocess.augment import DRAWS, Augmentation, mixture, partner, rectangles, uniforms
from headway.preprocess.image_processor import ImageProcessor

KEYS = [(0, 3, place) for place in range(400)]
DRAWN = uniforms(KEYS, DRAWS)
GRID = (np.arange(8)[:, None] * 8 + np.arange(8)).astype(np.uint8)  # every pixel differs
BATCH = np.repeat(GRID[None, :, :, None], 400, axis=0)  # (400, 8, 8, 1)


def changed(pixels: np.ndarray = BATCH, **options) -> np.ndarray:
    return Augmentation(**options).change(pixels, DRAWN[: len(pixels)], fill=[9.7])


def test_draws_are_uniform_and_independent_of_each_other():
    draws = uniforms([(0, 1, place) for place in range(20_000)], DRAWS)
    assert draws.min() >= 0 and draws.max() < 1
    assert np.abs(draws.mean(0) - 0.5).max() < 0.01 and np.abs(draws.std(0) - np.sqrt(1 / 12)).max() < 0.01
    assert np.abs(np.corrcoef(draws.T) - np.eye(DRAWS)).max() < 0.03
    following = uniforms([(0, 2, place) for place in range(20_000)], DRAWS)  # the next epoch
    assert np.abs(np.corrcoef(draws[:, 0], following[:, 0])[0, 1]) < 0.03
    assert np.unique(draws).size == draws.size


def test_draws_of_an_example_do_not_depend_on_the_others():
    np.testing.assert_array_equal(uniforms([KEYS[7]], DRAWS)[0], DRAWN[7])
    assert uniforms([(1,), (1,)], 3).tolist() == [uniforms([(1,)], 3)[0].tolist()] * 2
    assert uniforms([(0, 1)], 1) != uniforms([(1, 0)], 1)


def test_half_of_the_pictures_are_mirrored():
    mirrored = [np.array_equal(each, BATCH[0, :, ::-1]) for each in changed(flip=True)]
    same = [np.array_equal(each, BATCH[0]) for each in changed(flip=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True)) and 160 < sum(mirrored) < 240


def test_a_shift_moves_by_whole_pixels_and_mirrors_the_edge():
    found = changed(shift=0.25)[..., 0]
    wanted = np.pad(GRID, 2, mode="reflect")
    places = {(top, left): wanted[top : top + 8, left : left + 8].tobytes() for top in range(5) for left in range(5)}
    assert {each.tobytes() for each in found} == set(places.values())


def test_colour_changes_brightness_contrast_and_saturation():
    grey = np.full((400, 4, 4, 3), 100, np.uint8)
    found = changed(grey, colour=0.2).astype(float)
    assert found.std((1, 2, 3)).max() == 0  # no contrast and no colour to change
    assert 79 <= found.min() < 83 and 117 < found.max() <= 120
    colourful = np.zeros((400, 4, 4, 3), np.uint8)
    colourful[..., 0], colourful[:, :2, :, 2] = 120, 60
    found = changed(colourful, colour=0.2).astype(float)
    contrast, saturation = found[:, 0].mean((1, 2)) - found[:, 3].mean((1, 2)), np.ptp(found[:, 3, 0], axis=1)
    assert contrast.std() > 1 and saturation.std() > 1
    assert np.array_equal(changed(colour=0.5), BATCH)  # a grey picture has no colour


def test_erasing_fills_a_rectangle_with_the_mean_colour():
    side = np.full((400, 20, 20, 1), 200, np.uint8)
    erased = (changed(side, erase=0.5)[..., 0] == 9).mean((1, 2))
    assert 140 < (erased > 0).sum() < 260 and erased.max() <= 0.27
    assert set(np.unique(changed(side, erase=0.5))) == {9, 200}


def test_zoom_uses_a_part_of_the_picture():
    windows = Augmentation(zoom=0.6).windows(DRAWN)
    left, top, right, bottom = np.array(windows).T
    area = (right - left) * (bottom - top)
    assert left.min() >= 0 and top.min() >= 0 and right.max() <= 1 and bottom.max() <= 1
    assert 0.35 < area.min() < 0.45 and area.max() > 0.95
    assert Augmentation(flip=True).windows(DRAWN[:2]) == [None, None]
    picture = np.zeros((40, 20, 3), np.uint8)
    picture[20:, 10:] = 255
    corner = ImageProcessor(size=(8, 8)).pixels(picture, window=(0.5, 0.5, 1.0, 1.0))
    assert corner.shape == (8, 8, 3) and corner.min() > 200


def test_rectangles_have_the_share_of_the_picture_they_should():
    area = np.linspace(0.05, 0.95, 400)
    found = rectangles((50, 50), area, DRAWN[:, :3])
    whole = area < 0.45  # beyond, an oblong one is limited by the picture
    assert np.abs(found.mean((1, 2)) - area)[whole].max() < 0.03
    rows, columns = found.any(2), found.any(1)
    np.testing.assert_array_equal(found, rows[:, :, None] & columns[:, None, :])
    assert rows[:, 0].any() and rows[:, -1].any() and columns[:, 0].any() and columns[:, -1].any()


def test_mixtures():
    mixing = Augmentation(mixup=0.25, cutmix=0.25)
    chosen = [partner(key, 1000, mixing) for key in KEYS]
    alone = [index is None for index in chosen]
    assert 160 < sum(alone) < 240
    others = [index for index in chosen if index is not None]
    assert len(set(others)) > 0.85 * len(others) and min(others) < 50 and max(others) > 950
    kept, share = mixture(DRAWN[~np.array(alone)], (8, 6), mixing)
    assert kept.shape[1:] == (1, 8, 6) and np.allclose(kept.mean((1, 2, 3)), share, atol=1e-6)
    cut = ((kept == 0) | (kept == 1)).all((1, 2, 3))
    assert 0.35 < cut.mean() < 0.65 and np.ptp(kept[~cut], axis=(1, 2, 3)).max() == 0


@pytest.mark.parametrize("options", [{}, {"flip": True}, {"mixup": 0.1}])
def test_a_description_names_what_is_done(options):
    found = Augmentation(**options)
    assert bool(found) == bool(options) and found.mixes == ("mixup" in options)
    assert found.describe() == {(): "none", ("flip",): "mirror images", ("mixup",): "mixup of 10%"}[tuple(options)]
