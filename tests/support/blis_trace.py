"""BLIS's traces without some of their rows, for `[workload] format = "support.blis_trace:UrgentBlisTrace"`."""
import csv

from simulator.workload.formats.tracev2 import TraceV2
from support.blis import HELD_BACK


class UrgentBlisTrace(TraceV2):
    """Without the requests that v0.7.1 holds back until no other is left."""

    def read(self, path, data):
        """Return the requests of a file that holds `data`, in file order."""
        header, *rows = data.decode().splitlines()
        place = next(csv.reader([header])).index("slo_class")
        urgent = [row for row in rows if next(csv.reader([row]))[place] not in HELD_BACK]
        return super().read(path, "\n".join([header, *urgent]).encode())
