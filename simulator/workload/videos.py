"""Videos in prompts: their token counts by the rule of the model, and their positions."""
from collections.abc import Callable

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.domain.media import Limits, Video, video
from simulator.domain.towers import Tower
from simulator.domain.traits import Videos
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns
from simulator.workload.images import added, amounts_of, chosen, draw, refuse_turns
from simulator.workload.limits import MISSING


def with_videos(columns: Columns, given: Videos | None, streams: RandomStreams,
                tower_for: Callable[[str], Tower]) -> Columns:
    """Return the requests with the videos of [workload.videos], behind images.

    Each video is a token stream of its own, and counts as an image in the results.

    tower_for : returns the vision tower of the model; its argument is the key that needs it.

    Raises
    ------
    InputErrors
        The workload has sessions; a size or a prompt is out of range; the model takes no videos.
    """
    if given is None:
        return columns
    refuse_turns(columns, "videos")
    if any((columns.facts[name] == MISSING).any() for name in ("num_images", "image_tokens") if name in columns.facts):
        raise InputErrors([KeyFault("workload.videos: the trace gives no images of some requests; expected none, or "
                                    "images of all")])

    def sizes(generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        tower, limits = tower_for("workload.videos"), Limits(given.min_pixels, given.max_pixels)
        try:
            encoded = [video(tower, Video(seconds, int(height), int(width), given.frames_per_s, given.num_frames),
                             limits) for seconds, height, width, _ in given.clips]
        except ValueError as error:
            raise InputErrors([KeyFault(f"workload.videos.clips: {error}")]) from None
        return amounts_of(encoded, chosen([clip[-1] for clip in given.clips], generator, count))

    return added(columns, draw(columns, given, streams, "video", sizes), "videos")
