"""`azure`: the LLM inference traces of Azure, 2023 and 2024.

Source: github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace_{code,conv}.csv: TIMESTAMP, ContextTokens,
GeneratedTokens. Times have seven digits of a second and no zone (2023), or a zone (2024). The first arrival becomes 0.
"""
from pathlib import Path

from simulator.workload.columns import Columns
from simulator.workload.formats.native_csv import scan_columns
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.faults import Faults

COLUMNS = {
    "TIMESTAMP": Column(Kind.TIMESTAMP, 0, MAX_TIME_NS, required=True),
    "ContextTokens": Column(Kind.INTEGER, 1, required=True),
    "GeneratedTokens": Column(Kind.INTEGER, 0, required=True),
}


class Azure:
    """The reader of Azure traces."""

    def __init__(self, parameters=None):
        pass

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, in file order.

        Raises
        ------
        InputErrors
            Everything that is wrong with the file, by line.
        """
        faults = Faults(path)
        scan = scan_columns(path, data, COLUMNS, tuple(COLUMNS), faults)
        faults.raise_if_any()
        times = scan.values["TIMESTAMP"]
        return Columns(
            arrival_ns=times - times.min(),
            prompt_tokens=scan.values["ContextTokens"],
            output_tokens=scan.values["GeneratedTokens"])
