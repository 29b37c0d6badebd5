"""Schema of [engine.experts]: placement, popularity and communication of experts."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

All2All = Literal["allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency"]     # vLLM's names
Steps = Annotated[int, Meta(ge=1, le=2**40)]
Redundant = Annotated[int, Meta(ge=0, le=2**20)]
Threshold = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Popularity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frequency with which tokens choose each expert of a layer."""

    distribution: Annotated[Literal["uniform", "zipf", "file"], Meta(description=(
        "uniform: all equal; zipf: the i-th expert of a layer in proportion to i^-s, in an order drawn for each layer; "
        "file: as given in `file`"))
        ] = "uniform"
    s: Annotated[Annotated[float, Meta(ge=0, le=10)] | None, Meta(extra={"unit": "exponent"}, description=(
        "zipf: exponent s; the larger, the less even"))] = None
    file: Annotated[str | None, Meta(extra={"path": True}, description=(
        "file: CSV without header, a load for each expert; one line for all layers with experts, or one for "
        "each"))] = None
    drift_steps: Annotated[Steps | None, Meta(extra={"unit": "iterations"}, description=(
        "experts exchange their popularity at random after each such number of iterations of a replica; default: "
        "never"))] = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="seed of the orders and exchanges")] = 0

    def __post_init__(self):
        for key, distribution in (("s", "zipf"), ("file", "file")):
            if (getattr(self, key) is not None) != (self.distribution == distribution):
                raise ValueError(f'distribution = "{self.distribution}": {key} goes with "{distribution}", and that '
                                 f"with {key}")
        if self.distribution == "uniform" and (self.drift_steps is not None or self.seed):
            raise ValueError('drift_steps and seed change nothing where distribution = "uniform"')


class Eplb(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's expert-parallel load balancer, under its names."""

    num_redundant_experts: Annotated[Redundant, Meta(description=(
        "expert slots on all ranks beyond one for each expert"))] = 0
    window_size: Annotated[Steps, Meta(extra={"unit": "iterations"}, description=(
        "iterations over which loads are recorded"))] = 1000
    step_interval: Annotated[Steps, Meta(extra={"unit": "iterations"}, description=(
        "iterations from one rearrangement to the next; the first one happens after a quarter of them"))] = 3000
    use_async: Annotated[bool, Meta(description=(
        "weights are moved while the old placement serves; false: an iteration waits for them"))] = True


class Dbo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's two-batch overlap, under its names."""

    enabled: Annotated[bool, Meta(description=(
        "two-batch overlap: halves of a batch alternate; one computes while the tokens of the other are "
        "communicated"))] = False
    decode_token_threshold: Annotated[Threshold, Meta(extra={"unit": "tokens"}, description=(
        "least tokens on any rank, for a batch of decodes alone"))] = 32
    prefill_token_threshold: Annotated[Threshold, Meta(extra={"unit": "tokens"}, description=(
        "least tokens on any rank, for a batch with prompts"))] = 512
    comm_sms: Annotated[int, Meta(ge=0, le=4096, description=(
        "multiprocessors reserved for communication; VLLM_DBO_COMM_SMS"))] = 20
    num_sms: Annotated[int, Meta(ge=1, le=4096, description="multiprocessors of the accelerator; 132: H100")] = 132

    def __post_init__(self):
        if self.comm_sms >= self.num_sms:
            raise ValueError(f"comm_sms = {self.comm_sms} leaves none of num_sms = {self.num_sms}")
        others = self.decode_token_threshold, self.prefill_token_threshold, self.comm_sms, self.num_sms
        if not self.enabled and others != (32, 512, 20, 132):
            raise ValueError("its other keys take enabled = true")


class Experts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Experts of a mixture, [engine.experts]."""

    all2all_backend: Annotated[All2All | None, Meta(description=(
        "how data-parallel ranks exchange tokens for their experts; default: value of the key all2all_backend in "
        "[latency], or allgather_reducescatter"))] = None
    placement: Annotated[Literal["linear", "round_robin"], Meta(description=(
        "linear: each rank holds consecutive experts; round_robin: experts are dealt to ranks one by one"))] = "linear"
    popularity: Annotated[Popularity, Meta(description="how often experts are chosen")] = Popularity()
    eplb: Annotated[Eplb | None, Meta(description=(
        "experts are placed anew, and copied, by their load; absent: the placement is fixed"))] = None
    dbo: Annotated[Dbo, Meta(description="two-batch overlap")] = Dbo()

    @property
    def changes(self) -> bool:
        """Whether loads change while requests are served."""
        return self.popularity.drift_steps is not None or self.eplb is not None

    @property
    def num_redundant(self) -> int:
        """Slots beyond one for each expert."""
        return self.eplb.num_redundant_experts if self.eplb else 0
