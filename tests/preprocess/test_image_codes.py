"""Codes of patches: learned, encoded, decoded."""

import numpy as np

from headway.data.builtin.captions import CAPTIONED_SHAPES
from headway.preprocess.image_codes import Codebook


def test_a_few_different_patches_are_kept_exactly() -> None:
    random = np.random.default_rng(0)
    patches = random.integers(0, 256, (5, 2, 2, 3), dtype=np.uint8)
    numbers = random.integers(0, 5, (20, 3, 3))
    pictures = patches[numbers].transpose(0, 1, 3, 2, 4, 5).reshape(20, 6, 6, 3)
    book = Codebook.fit(pictures, patch=2, codes=16)
    codes = book.encode(pictures)
    assert len(book) == 5 and codes.shape == (20, 9)
    assert np.array_equal(book.decode(codes, side=6), pictures)
    again = Codebook.from_lists(book.to_lists(), patch=2)
    assert np.array_equal(again.encode(pictures), codes)


def test_more_codes_fit_better_and_every_code_is_used() -> None:
    pictures = np.stack([row.fields["image"] for row in CAPTIONED_SHAPES.rows(size=60)])
    errors = []
    for codes in (8, 64):
        book = Codebook.fit(pictures, patch=4, codes=codes)
        found = book.encode(pictures)
        assert len(book) == codes and len(np.unique(found)) > 0.9 * codes
        errors.append(np.square(book.decode(found, side=32).astype(float) - pictures).mean())
    assert errors[1] < 0.5 * errors[0]
