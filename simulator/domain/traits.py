"""Schemas of request properties beside times and lengths.

Adapters, images, and the output lengths that policies may see.
"""
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1)]
Pixels = Annotated[int, Meta(ge=1, le=2**40)]
Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
LARGEST_SIDE = 2**20        # pixels


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
    """A number of images; the keys of the distribution are in the same table."""

    distribution: Annotated[str, Meta(description="distribution of the numbers")]
    parameters: Annotated[Any, Meta(extra={"kind": "length_distribution"})]


class Images(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images in prompts, [workload.images].

    They follow the shared part of a prompt, before the request's own text. Encoders compute them as [engine.encoder]
    says, or pools with role = "encode" ahead of all else; without either they only take up their tokens.
    """

    count: Annotated[CountChoice, Meta(description=(
        "number of images of a request; give min = 0 where there may be none"))]
    rule: Annotated[Literal["qwen2_vl", "tokens_per_image"], Meta(description=(
        "number of tokens of an image: qwen2_vl: as the image processor of Qwen2-VL computes it; tokens_per_image: a "
        "constant"))] = "qwen2_vl"
    sizes: Annotated[tuple[tuple[Annotated[float, Meta(ge=0, le=LARGEST_SIDE)], ...], ...], Meta(
        extra={"unit": "pixels"}, description="qwen2_vl: height, width and weight of each size")] = ()
    min_pixels: Annotated[Pixels, Meta(extra={"unit": "pixels"}, description=(
        "qwen2_vl: a smaller image is enlarged"))] = 3136
    max_pixels: Annotated[Pixels, Meta(extra={"unit": "pixels"}, description=(
        "qwen2_vl: a larger image is reduced; the default is that of the published models"))] = 12_845_056
    distinct: Annotated[Annotated[int, Meta(ge=1, le=2**24)] | None, Meta(extra={"unit": "images"}, description=(
        "number of different images, all equally likely; a repeated image need not be encoded again; default: no two "
        "images are equal"))] = None
    tokens_per_image: Annotated[Tokens | None, Meta(description="tokens_per_image: tokens of each image")] = None

    def __post_init__(self):
        check_readers(self, "rule", {
            "sizes": ("qwen2_vl",), "min_pixels": ("qwen2_vl",), "max_pixels": ("qwen2_vl",),
            "tokens_per_image": ("tokens_per_image",)})
        if self.rule == "tokens_per_image" and self.tokens_per_image is None:
            raise ValueError('rule = "tokens_per_image" needs tokens_per_image')
        if self.rule == "qwen2_vl":
            self._check_sizes()

    def _check_sizes(self) -> None:
        if not self.sizes:
            raise ValueError('rule = "qwen2_vl" needs sizes')
        for size in self.sizes:
            if len(size) != 3 or not all(side >= 1 and side == int(side) for side in size[:2]):
                raise ValueError(f"sizes: expected [height, width, weight], whole pixels, found {list(size)}")
        if not 0 < sum(size[2] for size in self.sizes) < float("inf"):
            raise ValueError("sizes: the weights must have a positive, finite sum")
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels {self.min_pixels} is above max_pixels {self.max_pixels}")
