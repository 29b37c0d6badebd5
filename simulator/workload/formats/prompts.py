"""Shared parts of prompts: the `prompt` column of a native trace as segments of token streams."""
import numpy as np

from simulator.domain import records
from simulator.workload.columns import Prompts
from simulator.workload.limits import MISSING
from simulator.workload.reading.csv_scan import Scan
from simulator.workload.reading.faults import Faults

OWN = -1                                # in place of a stream code: the own stream of the request
UNKNOWN = -1                            # in place of a row


def prompts_of(scan: Scan, ids, faults: Faults) -> Prompts:
    """Return the prompts of a scanned trace in file order, and collect their faults.

    Streams: any name; empty, the request's own; `ID.own`, the own stream of request ID; `ID.out`, its outputs;
    `NAME.img`, an image.

    Parameters
    ----------
    ids : int64 array or list of str, or None: a request's id is its row number.
    """
    lengths = scan.values["num_prefill_tokens"]
    counts = scan.values["prompt"]
    texts, num_tokens = scan.segments
    codes, referred = _stream_codes(scan, ids, faults)
    streams = codes[texts] if len(texts) else texts
    is_empty = (counts == MISSING) | (counts == 0)
    begins = np.cumsum(np.where(is_empty, 0, counts)) - np.where(is_empty, 0, counts)
    _check_sums(scan, begins, faults)
    streams = np.insert(streams, begins[is_empty], OWN)
    num_tokens = np.insert(num_tokens, begins[is_empty], lengths[is_empty])
    counts = np.where(is_empty, 1, counts)
    owner = np.repeat(np.arange(len(counts)), counts)
    streams = np.where(streams == OWN, records.own_stream(owner), streams)
    for row in np.unique(owner[streams == records.output_stream(owner)]):
        faults.add(scan.lines[row], "prompt: expected other requests' outputs, found its own")
    is_plain = (counts == 1) & ~np.isin(np.arange(len(counts)), referred)
    is_plain &= streams[np.cumsum(counts) - counts] == records.own_stream(np.arange(len(counts)))
    kept = ~is_plain[owner]
    return Prompts(np.where(is_plain, 0, counts), streams[kept], num_tokens[kept])


def images_in(scan: Scan) -> np.ndarray | None:
    """Return the codes of the streams that are images; None: there are none."""
    is_image = np.array([text.endswith(".img") for text in scan.texts["prompt"]], dtype=bool)
    return records.named_stream(np.flatnonzero(is_image)) if is_image.any() else None


def image_facts(prompts: Prompts, images: np.ndarray) -> dict[str, np.ndarray]:
    """Return the number of images in each prompt, and their tokens."""
    owners = np.repeat(np.arange(len(prompts.num_segments)), prompts.num_segments)
    is_image = np.isin(prompts.streams, images)
    count = len(prompts.num_segments)
    tokens = np.bincount(owners[is_image], prompts.num_tokens[is_image], count)
    return {"num_images": np.bincount(owners[is_image], minlength=count), "image_tokens": tokens.astype(np.int64)}


def _stream_codes(scan: Scan, ids, faults: Faults) -> tuple[np.ndarray, np.ndarray]:
    """Return a stream code for each distinct text, and the rows that some text refers to."""
    texts = scan.texts["prompt"]
    suffixes = [text[-4:] for text in texts]
    is_own = np.array([suffix == ".own" for suffix in suffixes], dtype=bool)
    is_output = np.array([suffix == ".out" for suffix in suffixes], dtype=bool)
    is_reference = is_own | is_output
    row_of = rows_by_id(ids, len(scan.lines)) if is_reference.any() else {}
    rows = np.array([row_of.get(text[:-4], UNKNOWN) for text in texts], dtype=np.int64)
    for code in np.flatnonzero(is_reference & (rows == UNKNOWN)):
        _refuse_reference(scan, code, texts[code][:-4], faults)
    codes = np.select(
        [is_own, is_output, np.array([not text for text in texts], dtype=bool)],
        [records.own_stream(rows), records.output_stream(rows), OWN], records.named_stream(np.arange(len(texts))))
    return codes, rows[is_reference]


def rows_by_id(ids, num_rows: int) -> dict[str, int]:
    """Return the row of each id, as text.

    ids : int64 array or list of str, or None: row numbers.
    """
    numbers = np.arange(num_rows) if ids is None else ids
    names = ids if isinstance(ids, list) else map(str, numbers.tolist())
    return {name: row for row, name in enumerate(names)}


def _refuse_reference(scan: Scan, code: int, name: str, faults: Faults) -> None:
    texts, _ = scan.segments
    counts = np.maximum(scan.values["prompt"], 0)
    row = np.searchsorted(np.cumsum(counts), np.argmax(texts == code), side="right")
    faults.add_cell(scan.lines[row], "prompt", "the id of a request before .own or .out", name)


def _check_sums(scan: Scan, begins: np.ndarray, faults: Faults) -> None:
    counts = np.maximum(scan.values["prompt"], 0)
    totals = np.append(0, np.cumsum(scan.segments[1]))
    sums = totals[begins + counts] - totals[begins]
    lengths = scan.values["num_prefill_tokens"]
    for row in np.flatnonzero((scan.values["prompt"] != MISSING) & (sums != lengths)):
        faults.add(scan.lines[row], (
            f"prompt: expected segments of {lengths[row]} tokens together (num_prefill_tokens), found {sums[row]}"))
