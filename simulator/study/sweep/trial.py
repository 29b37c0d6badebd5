"""One run that a study asks for, and what became of it."""
import json
import zlib
from typing import Any, NamedTuple

DONE, REFUSED, FAILED, TIMEOUT, KILLED = STATUSES = ("done", "refused", "failed", "timeout", "killed")


class Trial(NamedTuple):
    """One run that a study asks for.

    index : row of the plan. id : what it is, 16 hexadecimal digits (`identity`). point : number of the point.
    replication : which of its runs, from 0. seed : of the experiment.
    assignment : dotted key of the experiment -> TOML value.
    num_requests : of a synthetic workload, in place of the experiment's; None: that.
    """

    index: int
    id: str
    point: int
    replication: int
    seed: int
    assignment: dict[str, Any]
    num_requests: int | None = None


class Finished(NamedTuple):
    """What became of a trial: a line of a segment.

    status : one of `STATUSES`. error : why it is not done, a sentence; None: it is. attempts : to run it.
    summary : every scalar leaf of summary.json by its dotted name, "ttft_ms.p99"; None: there is nothing to measure.
    extra : what the run says of itself (`statistics.of_run.Look`), "gpus", and what `telling.said` gathers of runs:
        "diagnosis", as `run` prints it, and "backends"; lines of older versions have none of the two.
    wall_s : real seconds. host, began : the machine's name, and when the run began, ISO 8601 in UTC; empty where no run
        began, or in segments of older versions. These three differ from machine to machine.
    """

    id: str
    index: int
    replication: int
    seed: int
    status: str
    error: str | None
    attempts: int
    summary: dict[str, float | None]
    extra: dict[str, Any]
    wall_s: float
    host: str = ""
    began: str = ""

    def result(self) -> tuple:
        """Return what must be equal wherever the trial runs."""
        return self.id, self.status, self.error, self.summary, self.extra


def line_of(finished: Finished) -> bytes:
    """Return the line that a segment holds, its CRC-32 at the end."""
    body = _body(finished._asdict())
    return f'{body[:-1]},"crc32":{zlib.crc32(body.encode())}}}\n'.encode()


def read_line(line: bytes) -> Finished | None:
    """Return what a line of a segment holds; None: it is torn, or damaged.

    The CRC is that of the line without its key, as `line_of` writes it.
    """
    try:
        content = json.loads(line)
        crc = content.pop("crc32")
        if line[-1:] != b"\n" or zlib.crc32(_body(content).encode()) != crc:
            return None
        return Finished(**content)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _body(content: dict) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
