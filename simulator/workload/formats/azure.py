"""`azure`: the inference traces of Azure: LLM 2023 and 2024, LMM 2025.

Source: github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace_{code,conv}.csv, AzureLLMInferenceDataset2024.md,
AzureLMMInferenceDataset2025.md: TIMESTAMP, ContextTokens, GeneratedTokens, in 2025 NumImages, too. Times have seven
digits of a second and no zone (2023), six or none and a zone (2024), or the form of ISO 8601 with Z (2025). The first
arrival becomes 0. Tokens of images are in ContextTokens already.
"""
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from simulator.workload.columns import Columns
from simulator.workload.formats.order import notes_on_order
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.tables import scan_pieces, scans_of

REQUIRED = {
    "TIMESTAMP": Column(Kind.TIMESTAMP, 0, MAX_TIME_NS, required=True),
    "ContextTokens": Column(Kind.INTEGER, 1, required=True),
    "GeneratedTokens": Column(Kind.INTEGER, 0, required=True),
}
COLUMNS = REQUIRED | {"NumImages": Column(Kind.INTEGER, 0, required=True)}


class Azure:
    """The reader of Azure traces, of tens of millions of rows, too."""

    def __init__(self, parameters=None):
        pass

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, see `read_pieces`."""
        return self.read_pieces(path, (data,))

    def read_pieces(self, path: str | Path, pieces: Iterable[bytes]) -> Columns:
        """Return the requests of a file that holds the pieces, in file order.

        Raises
        ------
        InputErrors
            All faults of the file, by line.
        """
        faults = Faults(path)
        values = scan_pieces(path, pieces, COLUMNS, tuple(REQUIRED), faults).values
        faults.raise_if_any()
        times = values["TIMESTAMP"]
        first_ns = int(times.min())
        times -= first_ns
        notes = notes_on_order(path, times) + _notes_on_images(path, *_images_in(values))
        return replace(_columns(values), notes=notes, origin_ns=first_ns)

    def parts(self, path: str | Path, pieces: Iterable[bytes]) -> Iterator[Columns]:
        """Yield the requests of each piece at the times of the file, then the notes.

        Raises
        ------
        InputErrors
            All faults of the file, by line.
        """
        faults, counts = Faults(path), np.zeros(2, np.int64)
        for scan in scans_of(path, pieces, COLUMNS, tuple(REQUIRED), faults):
            counts += _images_in(scan.values)
            yield _columns(scan.values)
        faults.raise_if_any()
        yield Columns(*np.empty((3, 0), np.int64), notes=_notes_on_images(path, *counts.tolist()))


def _columns(values: dict[str, np.ndarray]) -> Columns:
    return Columns(arrival_ns=values["TIMESTAMP"], prompt_tokens=values["ContextTokens"],
                   output_tokens=values["GeneratedTokens"])


def _images_in(values: dict[str, np.ndarray]) -> tuple[int, int]:
    """Return the number of requests with images, and of images."""
    images = values.get("NumImages", np.empty(0, np.int64))
    return int(np.count_nonzero(images)), int(images.sum())


def _notes_on_images(path: str | Path, requests: int, images: int) -> tuple[str, ...]:
    return (f"{path}: {requests} requests have images, {images} in all; their tokens are in ContextTokens, their "
            "encoding takes no time here.",) if images else ()
