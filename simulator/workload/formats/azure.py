"""`azure`: the inference traces of Azure: LLM 2023 and 2024, LMM 2025.

Source: github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace_{code,conv}.csv, AzureLLMInferenceDataset2024.md,
AzureLMMInferenceDataset2025.md: TIMESTAMP, ContextTokens, GeneratedTokens, in 2025 NumImages, too. Times have seven
digits of a second and no zone (2023), six or none and a zone (2024), or the form of ISO 8601 with Z (2025). The first
arrival becomes 0. Tokens of images are in ContextTokens already.
"""
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from simulator.workload.columns import Columns
from simulator.workload.formats.order import notes_on_order
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.tables import scan_pieces

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
        images = values.get("NumImages")
        notes = notes_on_order(path, times)
        if images is not None and images.any():
            notes += (f"{path}: {np.count_nonzero(images)} requests have images, {images.sum()} in all; their tokens "
                      "are in ContextTokens, their encoding takes no time here.",)
        return Columns(
            arrival_ns=times, prompt_tokens=values["ContextTokens"], output_tokens=values["GeneratedTokens"],
            notes=notes, origin_ns=first_ns)
