"""Write the tables of a run to files, while the simulation runs."""
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from simulator.domain.run import Run
from simulator.results.chrome_trace import ChromeTrace
from simulator.results.hdf5 import Writer
from simulator.results.token_times import TokenTimes, most_tokens
from simulator.results.trace_window import TraceWindow
from simulator.results.traits import first_answers, has_reasoning
from simulator.workload.base import Workload


class FileRecorder:
    """Receives the engine's calls during a run, and writes files; reuses its memory.

    wants_iterations, wants_tokens : whether the engine must call.
    streams : further tables that grow row by row: name -> type of a row.
    pending : functions called first at the end: they pass on the rows that the engine still holds.
    spent_s : duration of the calls.

    Parameters
    ----------
    output : the Struct of [output], or an object with the same fields.
    workload : of the run.
    attributes : of the root of results.h5.
    listeners : further receivers of iterations.
    streams : see above.
    """

    def __init__(self, output, workload: Workload, attributes: dict, listeners: tuple = (),
                 streams: Mapping[str, np.dtype] | None = None):
        self.wants_iterations = output.iterations or output.chrome_trace or bool(listeners)
        self._listeners = listeners
        self.wants_tokens = output.token_times or has_reasoning(workload)
        self.streams = streams or {}
        self.pending = []
        self.spent_s = 0.0
        self._output = output
        self._workload = workload
        self._attributes = attributes
        self._writer = self._trace = self._tokens = None

    @contextmanager
    def into(self, directory: Path) -> Iterator[None]:
        """Open the files in `directory` for the length of the block.

        The engine runs, and `finish` is called, inside it.
        """
        with ExitStack() as files:
            writer = Writer(directory / "results.h5", self._attributes, self._output.iterations, self.streams)
            self._writer = files.enter_context(writer)
            if self._output.chrome_trace:
                window = TraceWindow(self._output.chrome_trace_window_s, self._output.chrome_trace_max_events)
                self._trace = files.enter_context(ChromeTrace(directory / "trace.json", window))
            if self.wants_tokens:
                self._tokens = TokenTimes(most_tokens(self._workload), directory)
                files.callback(self._tokens.close)
            yield

    def iterations(self, rows: np.ndarray) -> None:
        """Take rows of `records.ITERATION`."""
        began_s = time.perf_counter()
        for listener in self._listeners:
            listener.append(rows)
        if self._output.iterations:
            self._writer.append("iterations", rows)
        if self._trace:
            self._trace.iterations(rows)
        self.spent_s += time.perf_counter() - began_s

    def tokens(self, rows: np.ndarray) -> None:
        """Take rows of `records.TOKEN`."""
        began_s = time.perf_counter()
        self._tokens.append(rows)
        self.spent_s += time.perf_counter() - began_s

    def append(self, name: str, rows: np.ndarray) -> None:
        """Take rows of one of the streams."""
        began_s = time.perf_counter()
        self._writer.append(name, rows)
        self.spent_s += time.perf_counter() - began_s

    def finish(self, run: Run) -> None:
        """Write the tables known only at the end."""
        for hand_on in self.pending:
            hand_on()
        if has_reasoning(run.workload):
            run.first_answer_ns = first_answers(run.workload, self._tokens)
        self._writer.finish(run, self._output.requests, self._tokens if self._output.token_times else None)
        if self._trace:
            run.diagnosis = run.diagnosis + self._trace.finish(run)
