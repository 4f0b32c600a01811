"""Names of the classes of a data set that numbers them: from a file beside the data, or of a data set that is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headway.data.text_reader import read_lines
from headway.errors import DataError

FILES = ("labels.txt", "classes.txt", "class_names.txt", "label_names.txt")
FASHION_MNIST = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
KNOWN = {  # the first labels of a part → its names
    "9003027255095579106431484302445366085216": FASHION_MNIST,  # train
    "9211614657457341248025791460938833807579": FASHION_MNIST,  # test
}
FIRST = 40


def class_names(folder: Path, labels: np.ndarray) -> Sequence[str] | None:
    """Names by class number; None if the classes have none. `labels` are those of one part, in the order of its file.
    The file has one name a line, the first for class 0."""
    for name in FILES:
        if (folder / name).is_file():
            names = [line.strip() for _, line in read_lines(folder / name) if line.strip()]
            if len(names) <= int(labels.max(initial=0)):
                raise DataError(
                    f"{folder / name}: {len(names)} names, but the labels go up to {labels.max()}; give a line a class"
                )
            if len(set(names)) < len(names):
                raise DataError(f"{folder / name}: two classes have the same name")
            return names
    return KNOWN.get("".join(map(str, labels[:FIRST])))
