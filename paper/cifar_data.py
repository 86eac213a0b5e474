"""CIFAR-10 from files in the binary version or the pickled one.

In: a folder.  Out: images, pixels from 0 to 255, and labels.
Every file is compared with its published checksum before it is read.  A pickled file can run code;
the published one does not, and the names it may load are limited all the same.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.study import MissingPartError

Bytes = NDArray[np.uint8]

IMAGES = 10_000
"""Images in each file."""
PIXELS = 3 * 32 * 32
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
SHA1 = {
    "data_batch_1": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch": "67eb016db431130d61cd03c7ad570b013799c88c",
}
"""Names of the files of cifar-10-batches-bin, without their extension, and their checksums."""
MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
"""Names of the files of cifar-10-batches-py, and their checksums."""


class DataError(MissingPartError):
    """Images are missing, or not what they should be."""


@dataclass(frozen=True, eq=False, slots=True)
class Images:
    """Pictures of 3 x 32 x 32 pixels and their classes, 0 to 9."""

    pixels: Bytes
    labels: Bytes

    def __len__(self) -> int:
        return len(self.labels)


def read(folder: str | Path) -> tuple[Images, Images]:
    """Training and test images from a folder that holds either version, or whose subfolder does."""
    folder = Path(folder)
    for place in (folder, folder / "cifar-10-batches-bin", folder / "cifar-10-batches-py"):
        for ending, reader in ((".bin", _binary), ("", _pickled)):
            if (place / f"{TEST[0]}{ending}").is_file():
                return tuple(_joined(place, names, ending, reader) for names in (TRAIN, TEST))  # type: ignore[return-value]
    raise DataError(
        f"no CIFAR-10 in {str(folder)!r}: it must hold cifar-10-batches-py or "
        "cifar-10-batches-bin. `python -m paper.fetch_cifar10 FOLDER` makes the latter, with npm."
    )


def binary_file(images: Images) -> bytes:
    """These images in the binary version: a label, then red, green and blue."""
    rows = np.concatenate([images.labels[:, None], images.pixels.reshape(-1, PIXELS)], axis=1)
    return rows.tobytes()


def check_binary(name: str, content: bytes) -> None:
    """Refuse a binary file that is not the published one."""
    _check(name, hashlib.sha1(content, usedforsecurity=False).hexdigest(), SHA1[name])


def _joined(
    place: Path, names: tuple[str, ...], ending: str, reader: Callable[[str, bytes], Images]
) -> Images:
    parts = []
    for name in names:
        try:
            content = (place / f"{name}{ending}").read_bytes()
        except OSError as problem:
            raise DataError(f"cannot read {name}{ending}: {problem.strerror}.") from None
        parts.append(reader(name, content))
    return Images(
        np.concatenate([part.pixels for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )


def _binary(name: str, content: bytes) -> Images:
    check_binary(name, content)
    rows = np.frombuffer(content, np.uint8).reshape(IMAGES, 1 + PIXELS)
    return Images(rows[:, 1:].reshape(IMAGES, 3, 32, 32), rows[:, 0])


def _pickled(name: str, content: bytes) -> Images:
    _check(name, hashlib.md5(content, usedforsecurity=False).hexdigest(), MD5[name])
    batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    pixels = np.asarray(batch[b"data"], np.uint8).reshape(IMAGES, 3, 32, 32)
    return Images(pixels, np.asarray(batch[b"labels"], np.uint8))


class _Unpickler(pickle.Unpickler):
    """An unpickler of arrays that refuses all other names."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in ("_reconstruct", "ndarray", "dtype"):
            return super().find_class(module, name)
        raise DataError(f"a file of images refers to {module}.{name}, which is not allowed.")


def _check(name: str, found: str, published: str) -> None:
    if found != published:
        raise DataError(
            f"{name} is not the published file (checksum {found[:8]}, expected {published[:8]}): "
            "get it again."
        )
