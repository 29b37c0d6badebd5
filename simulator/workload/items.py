"""Pieces of prompts that encoders compute: images."""
import numpy as np

from simulator.domain.items import Items, items_of
from simulator.workload.columns import Columns


def items_in(columns: Columns, n: int) -> Items | None:
    """Return the images of the first `n` prompts.

    None: the workload has no images. Two images are equal if they are equally long pieces of one stream.
    """
    if columns.images is None or columns.prompts is None:
        return None
    counts = columns.prompts.num_segments[:n]
    total = int(counts.sum())
    streams, tokens = columns.prompts.streams[:total], columns.prompts.num_tokens[:total]
    owners = np.repeat(np.arange(n), counts)
    ends = np.append(0, np.cumsum(tokens))
    offsets = ends[:-1] - ends[np.cumsum(counts) - counts][owners]
    is_image = np.isin(streams, columns.images)
    _, contents = np.unique(np.stack([streams[is_image], tokens[is_image]]), axis=1, return_inverse=True)
    work = None
    if columns.image_work is not None:
        work = columns.image_work[np.searchsorted(columns.images, streams[is_image])]
    return items_of(np.bincount(owners[is_image], minlength=n), contents.reshape(-1), offsets[is_image],
                    tokens[is_image], work)


def is_image(workload) -> np.ndarray:
    """Return for each segment of a workload whether it is an image."""
    segments, counts = workload.segments, workload.demands["num_segments"]
    if workload.items is None:
        return np.zeros(len(segments), bool)
    owners = np.repeat(np.arange(len(counts)), counts)
    ends = np.append(0, np.cumsum(segments["num_tokens"]))
    offsets = ends[:-1] - ends[workload.demands["segments_begin"]][owners]
    rows = np.repeat(np.arange(len(counts)), np.diff(workload.items.begins))
    return np.isin(owners << 32 | offsets, rows << 32 | workload.items.table["offset"].astype(np.int64))
