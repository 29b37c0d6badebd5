"""Schemas of request properties beside times and lengths.

Adapters, images, videos, and the output lengths that policies may see.
"""
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1)]
Pixels = Annotated[int, Meta(ge=1, le=2**40)]
Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
LARGEST_SIDE = 2**20        # pixels
OF_SIZE = ("model", "qwen2_vl")     # rules that count tokens by the size of an image


def check_readers(given: msgspec.Struct, choice: str, readers: dict[str, tuple[str, ...]]) -> None:
    """Raise ValueError where a key was given that the chosen value ignores.

    readers : key -> the values of `choice` that read it.
    """
    defaults = {field.name: field.default for field in msgspec.structs.fields(given)}
    chosen = getattr(given, choice)
    strangers = [key for key, values in readers.items()
                 if chosen not in values and getattr(given, key) != defaults[key]]
    if strangers:
        raise ValueError(f'{choice} = "{chosen}" does not read {", ".join(strangers)}')


class OutputKnowledge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policies' predictions of output lengths, [workload.output_knowledge].

    The prediction is fixed for each request before it arrives, by its id; the engine uses the true length.
    """

    predictor: Annotated[Literal["none", "exact", "declared", "mean", "lognormal_error", "bucket", "column"], Meta(
        description=(
            "predicted output length. none: no prediction; exact: the true length; declared: max_tokens; mean: the "
            "mean of the true lengths in its SLO class; lognormal_error: the true length with an unbiased error; "
            "bucket: the upper edge of its bucket; column: the column predicted_tokens of the trace"))] = "none"
    error_sigma: Annotated[float, Meta(ge=0, le=10, extra={"unit": "log"}, description=(
        "lognormal_error: standard deviation of the logarithm"))] = 0.3
    bias: Annotated[float, Meta(gt=0, le=1e6, extra={"unit": "ratio"}, description=(
        "lognormal_error: multiplies the mean"))] = 1.0
    buckets: Annotated[tuple[Tokens, ...], Meta(extra={"unit": "tokens"}, description=(
        "bucket: upper edges, ascending; a length above the last edge is predicted as declared"))] = (64, 256, 1024)
    wrong_bucket_share: Annotated[Share, Meta(description=(
        "bucket: share of the requests that are put into a neighbouring bucket"))] = 0.0

    def __post_init__(self):
        check_readers(self, "predictor", {
            "error_sigma": ("lognormal_error",), "bias": ("lognormal_error",), "buckets": ("bucket",),
            "wrong_bucket_share": ("bucket",)})
        if not self.buckets or any(b <= a for a, b in zip(self.buckets, self.buckets[1:], strict=False)):
            raise ValueError(f"buckets: expected ascending upper edges, found {list(self.buckets)}")


class Adapters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LoRA adapters of the requests, [workload.adapters].

    All requests of a session, or of any play, have one adapter.
    """

    names: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(description="names of the adapters")]
    assign: Annotated[Literal["random", "round_robin", "weighted", "zipf"], Meta(description=(
        "random: each is equally likely; round_robin: request i has the i-th, cyclically; weighted: by weights; zipf: "
        "the k-th has weight 1 / k**exponent"))] = "random"
    weights: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(extra={"unit": "weight"}, description=(
        "weighted: relative probability of each adapter, in any unit"))] = ()
    exponent: Annotated[float, Meta(ge=0, le=100, description="zipf: exponent; 0 is random")] = 1.0
    none_share: Annotated[Share, Meta(description="share of the requests that use the base model")] = 0.0

    def __post_init__(self):
        check_readers(self, "assign", {"weights": ("weighted",), "exponent": ("zipf",)})
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"names: expected different names, at least one, found {list(self.names)}")
        if self.assign == "weighted" and len(self.weights) != len(self.names):
            raise ValueError(f"{len(self.weights)} weights for {len(self.names)} names")
        if self.assign == "weighted" and not 0 < sum(self.weights) < float("inf"):
            raise ValueError("the weights must have a positive, finite sum")


class CountChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of items; the keys of the distribution are in the same table."""

    distribution: Annotated[str, Meta(description="distribution of the numbers")]
    parameters: Annotated[Any, Meta(extra={"kind": "length_distribution"})]


class Images(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images in prompts, [workload.images].

    They follow the shared part of a prompt, before the request's own text. Encoders compute them as [engine.encoder]
    says, or pools with role = "encode" ahead of all else; without either they only take up their tokens.
    """

    count: Annotated[CountChoice, Meta(description=(
        "number of images of a request; give min = 0 where there may be none"))]
    rule: Annotated[Literal["model", "qwen2_vl", "tokens_per_image"], Meta(description=(
        "number of tokens of an image. model: by the rule of the vision tower of [model]; qwen2_vl: as the image "
        "processor of Qwen2-VL computes it; tokens_per_image: a constant"))] = "qwen2_vl"
    sizes: Annotated[tuple[tuple[Annotated[float, Meta(ge=0, le=LARGEST_SIDE)], ...], ...], Meta(
        extra={"unit": "pixels"}, description="model, qwen2_vl: height, width and weight of each size")] = ()
    min_pixels: Annotated[Pixels | None, Meta(extra={"unit": "pixels"}, description=(
        "model, qwen2_vl: a smaller image is enlarged; default: as in published models, 3136 for qwen2_vl"))] = None
    max_pixels: Annotated[Pixels | None, Meta(extra={"unit": "pixels"}, description=(
        "model, qwen2_vl: a larger image is reduced; default: as in published models, 12845056 for qwen2_vl"))] = None
    distinct: Annotated[Annotated[int, Meta(ge=1, le=2**24)] | None, Meta(extra={"unit": "images"}, description=(
        "number of different images, all equally likely; a repeated image need not be encoded again; default: no two "
        "images are equal"))] = None
    tokens_per_image: Annotated[Tokens | None, Meta(description="tokens_per_image: tokens of each image")] = None

    def __post_init__(self):
        check_readers(self, "rule", {
            "sizes": OF_SIZE, "min_pixels": OF_SIZE, "max_pixels": OF_SIZE,
            "tokens_per_image": ("tokens_per_image",)})
        if self.rule == "tokens_per_image" and self.tokens_per_image is None:
            raise ValueError('rule = "tokens_per_image" needs tokens_per_image')
        if self.rule in OF_SIZE:
            if not self.sizes:
                raise ValueError(f'rule = "{self.rule}" needs sizes')
            check_weighted(self, "sizes", ("height", "width"))
            check_area(self)


class Videos(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Videos in prompts, [workload.videos], by the rule of the tower of [model].

    They follow the images of a prompt. Frames are sampled as the processor of the model does; vLLM's loader may sample
    them before, see num_frames.
    """

    count: Annotated[CountChoice, Meta(description=(
        "number of videos of a request; give min = 0 where there may be none"))]
    clips: Annotated[tuple[tuple[Annotated[float, Meta(ge=0, le=LARGEST_SIDE)], ...], ...], Meta(
        min_length=1, extra={"unit": "seconds and pixels"}, description=(
            "length, height, width and weight of each clip"))]
    frames_per_s: Annotated[Annotated[float, Meta(gt=0, le=1000)] | None, Meta(extra={"unit": "1/s"}, description=(
        "frames that are sampled of a second; default: as the processor of the model does, 2 or 1"))] = None
    num_frames: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(extra={"unit": "frames"}, description=(
        "frames that are sampled of each clip, whatever its length; vLLM's loader takes 32 unless it is told "
        "otherwise; default: by frames_per_s"))] = None
    min_pixels: Annotated[Pixels | None, Meta(extra={"unit": "pixels"}, description=(
        "a smaller frame is enlarged, of Qwen3-VL a video by all its frames; default: as in published models"))] = None
    max_pixels: Annotated[Pixels | None, Meta(extra={"unit": "pixels"}, description=(
        "a larger frame is reduced, of Qwen3-VL a video by all its frames; default: as in published models"))] = None
    distinct: Annotated[Annotated[int, Meta(ge=1, le=2**24)] | None, Meta(extra={"unit": "videos"}, description=(
        "number of different videos, all equally likely; default: no two videos are equal"))] = None

    def __post_init__(self):
        if self.frames_per_s is not None and self.num_frames is not None:
            raise ValueError("frames_per_s and num_frames both set the number of frames; give one of them")
        check_weighted(self, "clips", ("seconds", "height", "width"))
        check_area(self)


def check_weighted(given: msgspec.Struct, key: str, names: tuple[str, ...]) -> None:
    """Raise ValueError unless the rows of `key` have these values and a weight."""
    rows = getattr(given, key)
    for row in rows:
        if len(row) != len(names) + 1 or not all(
                value > 0 if name == "seconds" else value >= 1 and value == int(value)
                for name, value in zip(names, row, strict=False)):
            raise ValueError(f"{key}: expected [{', '.join(names)}, weight], whole pixels, found {list(row)}")
    if not 0 < sum(row[-1] for row in rows) < float("inf"):
        raise ValueError(f"{key}: the weights must have a positive, finite sum")


def check_area(given: Images | Videos) -> None:
    """Raise ValueError unless the least area is at most the largest one."""
    least, most = given.min_pixels, given.max_pixels
    if least is not None and most is not None and least > most:
        raise ValueError(f"min_pixels {least} is above max_pixels {most}")
