"""Shared parts of observed requests, from the native trace of the planned requests, which `observe` writes."""
import csv
import io
from pathlib import Path

from simulator.errors import InputErrors
from simulator.workload.reading.files import check_text, read_bytes

NEEDED = ("request_id", "prompt")


def planned_prompts(path: str | Path) -> dict[str, str]:
    """Return the cell `prompt` of each request of a native trace.

    Empty: no prompts are shared.

    Raises
    ------
    InputErrors
        It cannot be read, or has no ids.
    """
    data = read_bytes(path)
    check_text(path, data)
    rows = csv.DictReader(io.StringIO(data.decode()))
    names = rows.fieldnames or []
    if "request_id" not in names:
        raise InputErrors([f'{path}:1: column "request_id" is missing; expected the native trace of what was sent'])
    return {row["request_id"]: row["prompt"] or "" for row in rows} if "prompt" in names else {}


def as_long_as(prompt: str, tokens: int) -> str | None:
    """Return a prompt as long as the server counted it, by its own part at the end.

    Templates and other tokens for a text change its length, but not its shared parts. None: the prompt cannot be that
    short, or does not end with a part of its own.
    """
    head, slash, last = prompt.rpartition("/")
    stream, _, count = last.rpartition(":")
    pieces = [piece.rpartition(":")[2] for piece in prompt.split("/")]
    if not all(piece.isdecimal() for piece in pieces):
        return prompt                           # its reader reports the fault
    missing = tokens - sum(map(int, pieces))
    if not missing:
        return prompt
    if stream or int(count) + missing < 1:
        return None
    return f"{head}{slash}:{int(count) + missing}"
