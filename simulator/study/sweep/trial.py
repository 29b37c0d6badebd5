"""One run of a study, and its result."""
import json
import zlib
from typing import Any, NamedTuple

DONE, REFUSED, FAILED, TIMEOUT, KILLED = STATUSES = ("done", "refused", "failed", "timeout", "killed")


class Trial(NamedTuple):
    """One run of a study.

    index : row of the plan. id : 16 hexadecimal digits (`identity`). point : number of the point.
    replication : number of the run of its point, from 0. seed : of the experiment.
    assignment : dotted key of the experiment -> TOML value.
    num_requests : of a synthetic workload, in place of the experiment's; None: the experiment's.
    """

    index: int
    id: str
    point: int
    replication: int
    seed: int
    assignment: dict[str, Any]
    num_requests: int | None = None


class Finished(NamedTuple):
    """The result of a trial: a line of a segment.

    status : one of `STATUSES`. error : why it is not done, a sentence; None: done. attempts : to run it.
    summary : every scalar leaf of summary.json by its dotted name, "ttft_ms.p99"; None: there is nothing to measure.
    extra : results of `statistics.of_run.Look`, "gpus", and the input of `telling.said`:
        "diagnosis", as `run` prints it, and "backends"; lines of older versions lack the last two.
    wall_s : real seconds. host, began : the machine's name, and when the run began, ISO 8601 in UTC; empty where no run
        began, or in segments of older versions. wall_s, host and began differ from machine to machine.
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
        """Return the part of the result that must be equal wherever the trial runs."""
        return self.id, self.status, self.error, self.summary, self.extra


def line_of(finished: Finished) -> bytes:
    """Return the line for a segment, with its CRC-32 at the end."""
    body = _body(finished._asdict())
    return f'{body[:-1]},"crc32":{zlib.crc32(body.encode())}}}\n'.encode()


def read_line(line: bytes) -> Finished | None:
    """Return the result in a line of a segment; None: the line is torn, or damaged.

    The CRC is of the line without its key "crc32", as `line_of` writes it.
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
