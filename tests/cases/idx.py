"""Images in the format of FashionMNIST, for the tests of examples that read it."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    """The format as its authors describe it."""
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_images(folder: Path) -> Path:
    """256 and 64 images: class k has a bright stripe at row 2 k."""
    generator = np.random.default_rng(0)
    for name, count in (("train", 256), ("t10k", 64)):
        labels = np.arange(count) % 10
        pixels = generator.integers(0, 60, (count, 28, 28))
        pixels[np.arange(count), 2 * labels] += 150
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels)))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder
