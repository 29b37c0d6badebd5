"""Bus bandwidth of every collective over every group: given, or derived from links, cards and layout.

A collective of S bytes over n ranks takes S k / busbw, k = 2 (n - 1) / n of an all-reduce, 1 of a message, (n - 1) / n
of the others, as nccl-tests define bus bandwidth (doc/PERFORMANCE.md). Of a group with n ranks in `nodes` nodes, `gpn`
in each, that share c network cards of rate `nic`:

    one node                nvlink
    one rank a node         c nic
    else, a ring            min(c nic, nvlink gpn / (gpn - 1) if c nic > nvlink, else nvlink)
    else, an all-to-all     (c nic / gpn) (N - 1) / ((nodes - 1) gpn), N = nodes gpn: what leaves the node limits

and all-gather, reduce-scatter and all-to-all reach a share of it that depends on size and nodes (facts.py).
Against aiconfigurator's NCCL tables of 4 and 8 H100 in a node it is within 20 % from 64 MiB up, up to 61 % short from 1
to 32 MiB (the worst for all-reduce), and from 23 % short to twice as long below: prefer measured curves (`table`).
Source: SimAI's analytical model, aliyun/SimAI at f5efb5a9 (1.6); 1.7 keeps its automatic bandwidth.
"""
import math
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.collective.busbw.facts import SMALL_BYTES, SMALL_US, ratios, ratios_one_per_node
from simulator.collective.groups import Group

DECIMAL_GB, BINARY_GB = 1e9, float(1 << 30)
Bandwidth = Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "GB/s"})]
Overlap = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_BUSBW = "bus bandwidth, GB/s; default: from links and layout"


class GroupBandwidths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bus bandwidth of one group, GB/s; bandwidths not given are derived."""

    all_reduce: Annotated[Bandwidth | None, Meta(description=_BUSBW)] = None
    all_gather: Annotated[Bandwidth | None, Meta(description=_BUSBW)] = None
    reduce_scatter: Annotated[Bandwidth | None, Meta(description=_BUSBW)] = None
    all_to_all: Annotated[Bandwidth | None, Meta(description=_BUSBW)] = None


class BusbwParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bus bandwidths, given or derived, of collectives alone on their links."""

    convention: Annotated[Literal["decimal", "simai"], Meta(description=(
        "decimal: a GB is 1e9 bytes, small-message times are a floor. simai: as SimAI_analytical computes, a GB is "
        "2**30 bytes, whole nanoseconds, and its gaps read as it reads them"))] = "decimal"
    tensor: Annotated[GroupBandwidths, Meta(description="tensor parallelism")] = GroupBandwidths()
    expert: Annotated[GroupBandwidths, Meta(description="expert parallelism")] = GroupBandwidths()
    data: Annotated[GroupBandwidths, Meta(description="data parallelism")] = GroupBandwidths()
    pipeline_gb_per_s: Annotated[Bandwidth | None, Meta(description="bandwidth between pipeline stages")] = None
    gpu_type: Annotated[Literal["A100", "A800", "H100", "H20", "H800"] | None, Meta(description=(
        "NVLink bandwidth as SimAI knows it; default: from the accelerator"))] = None
    nvlink_gb_per_s: Annotated[Bandwidth | None, Meta(description=(
        "rate that a GPU reaches over NVLink; default: by gpu_type"))] = None
    nic_type: Annotated[Literal["cx6", "cx7", "bf3"] | None, Meta(description=(
        "network card as SimAI knows it; default: from the node"))] = None
    nic_gb_per_s: Annotated[Bandwidth | None, Meta(description="rate of a card; default: by nic_type")] = None
    nics_per_node: Annotated[Count | None, Meta(description="cards of one NVLink domain; default: the node's")] = None
    gpus_per_node: Annotated[Count | None, Meta(description="GPUs of one NVLink domain; default: the node's")] = None
    small_messages: Annotated[bool, Meta(description=(
        "charge small collectives SimAI's times by group size, 10 us of 2 ranks to 320 us of 128"))] = True
    size_ratios: Annotated[bool, Meta(description=(
        "share of bus bandwidth by message size, SimAI's tables, where it is derived"))] = True
    tensor_overlap: Annotated[Overlap, Meta(description="share hidden behind computation")] = 0.0
    expert_overlap: Annotated[Overlap, Meta(description="share hidden behind computation")] = 0.0
    data_overlap: Annotated[Overlap, Meta(description="share hidden behind computation")] = 0.0
    pipeline_overlap: Annotated[Overlap, Meta(description="share hidden behind computation")] = 0.0


class Links(NamedTuple):
    """Links between the accelerators; GB/s."""

    nvlink: float
    nic: float
    num_nics: float     # of one NVLink domain
    node_size: int      # accelerators of one NVLink domain


class Rate(NamedTuple):
    """Time of one collective over one group, by size."""

    ns_per_byte: float                          # at the peak; 0: takes no time
    small_ns: float = 0.0                       # least time; in SimAI's convention the time below `small_bytes`
    small_bytes: float = 0.0
    ratios: tuple[float, ...] | None = None     # share of the peak by size
    # In SimAI's convention, where its own arithmetic is followed: S / 2**30 / gib_per_s x 1e9 x numerator /
    # denominator, gib_per_s a float32, and float32 again after its share. 0: `ns_per_byte` is all there is.
    gib_per_s: float = 0.0
    numerator: float = 1.0
    denominator: float = 1.0


FREE = Rate(0.0)


class Rates:
    """The `Rate` of each collective.

    Parameters
    ----------
    parameters : BusbwParameters
    links : Links
    groups : dict of str to Group
        "tensor", "expert", "data", "pipeline"; training also has "data_expert", the ranks that share an expert.
    num_accelerators : int
        Accelerators of the whole job.
    """

    def __init__(self, parameters: BusbwParameters, links: Links, groups: dict[str, Group], num_accelerators: int):
        self._parameters, self._links, self._groups = parameters, links, groups
        self._giga = BINARY_GB if parameters.convention == "simai" else DECIMAL_GB
        given = (parameters.tensor, parameters.expert, parameters.data)
        self._is_given = any(value is not None for each in given for value in msgspec.structs.astuple(each))
        self._is_one_node = num_accelerators == links.node_size

    def rate(self, name: str, kind: str) -> Rate:
        """Return the `Rate` of a collective of a `KINDS` over the group `name`."""
        group = self._groups[name]
        if group.size <= 1:
            return FREE
        if name == "pipeline" or kind == "send_recv":
            return self._rate_of_message(name)
        if self._parameters.convention == "decimal":
            return self._decimal(name, kind)
        if self._is_given:
            return self._simai_given(name, kind)
        return self._simai_worked_out(name, kind)

    # ---- the convention of this project

    def _decimal(self, name: str, kind: str) -> Rate:
        group, values = self._groups[name], getattr(self._parameters, name, None)
        small_ns = _floor_ns(group.size) if self._parameters.small_messages else 0.0
        given = getattr(values, kind) if values else None
        if given is not None:
            return self._of(given, kind, group.size, small_ns)
        per_node = group.per_node(self._links.node_size)
        nodes = -(-group.size // per_node)
        cards = self._links.num_nics / min(group.stride, self._links.node_size)
        busbw, is_nvlink = bus_bandwidth(self._links, cards, nodes, per_node, kind)
        column = self._decimal_ratios(kind, nodes, per_node, is_nvlink) if self._parameters.size_ratios else None
        return self._of(busbw, kind, group.size, small_ns, ratios=column)

    @staticmethod
    def _decimal_ratios(kind, nodes, per_node, is_nvlink):
        if kind == "all_reduce":
            return None
        if kind == "all_to_all":
            return ratios_one_per_node() if per_node == 1 else ratios("all_to_all", nodes)
        return ratios("nvlink" if is_nvlink else "nic", nodes)

    def _rate_of_message(self, name: str) -> Rate:
        group, links = self._groups[name], self._links
        busbw = self._parameters.pipeline_gb_per_s
        if busbw is None:
            card = links.nic * links.num_nics / links.node_size
            busbw = links.nvlink if Group(2, group.stride).per_node(links.node_size) == 2 else card
        simai = {"gib_per_s": single(busbw)} if self._parameters.convention == "simai" else {}
        return Rate(1e9 / (busbw * self._giga), **simai)

    # ---- SimAI's, gaps included

    def _simai_given(self, name: str, kind: str) -> Rate:
        tensor, expert, data = (getattr(self._parameters, each) for each in ("tensor", "expert", "data"))
        size, stride = self._groups[name]
        kind = "all_gather" if kind == "reduce_scatter" else kind       # its own value is never read
        if name == "tensor":
            busbw = getattr(tensor, kind)
        elif name == "expert":
            busbw = {"all_reduce": tensor.all_reduce, "all_to_all": expert.all_to_all}.get(kind)
            busbw = None if stride > self._links.node_size else busbw
        elif self._is_one_node:
            busbw = tensor.all_reduce if kind == "all_reduce" else None
        else:
            values = data if name == "data" else expert
            busbw = values.all_reduce if kind == "all_reduce" else values.all_gather
        return FREE if busbw is None else _simai_rate(single(busbw), kind, size)

    def _simai_worked_out(self, name: str, kind: str) -> Rate:
        size = self._groups[name].size
        small = {"small_ns": SMALL_US.get(size, 0.0) * 1e3,
                 "small_bytes": SMALL_BYTES if self._parameters.small_messages else 0.0}
        found = self._simai_bandwidth(name, kind)
        if found is None:       # SimAI goes on with -1 GB/s; before it looks at links, it has served small messages
            return self._decimal(name, kind)._replace(**small)
        busbw, is_nvlink = found
        column = self._simai_ratios(name, kind, is_nvlink) if self._parameters.size_ratios else None
        return _simai_rate(busbw, kind, size)._replace(ratios=column, **small)

    def _simai_bandwidth(self, name: str, kind: str) -> tuple[float, bool] | None:
        (size, stride), links = self._groups[name], self._links
        node, cards = links.node_size, int(links.num_nics)
        if name in ("tensor", "expert") and size * stride <= node:
            nodes, per_node = 1, size if name == "tensor" else node // stride
        elif name in ("tensor", "expert"):
            nodes, per_node = size * stride // node, max(node // stride, 1)
        else:
            nodes, per_node = size, node // stride if stride <= node else 1
        if nodes > 1:
            cards //= stride if stride <= node else node
        if cards < 1 or per_node < 1:
            return None
        links = links._replace(nvlink=single(links.nvlink), nic=single(links.nic))
        return bus_bandwidth(links, cards, nodes, per_node, kind, rounded=single)

    def _simai_ratios(self, name: str, kind: str, is_nvlink: bool):
        (size, stride), node = self._groups[name], self._links.node_size
        nodes = max(size * stride // node, 1)
        if kind == "all_to_all" and name in ("tensor", "expert"):
            is_spread = name == "expert" and size * stride > node and stride >= node
            return ratios_one_per_node() if is_spread else ratios("all_to_all", nodes, exactly=True)
        if kind in ("all_gather", "reduce_scatter") and name == "tensor":
            return ratios("nvlink" if is_nvlink else "nic", nodes, exactly=True)
        return None

    def _of(self, busbw, kind, size, small_ns=0.0, ratios=None) -> Rate:
        return Rate(bus_factor(kind, size) * 1e9 / (busbw * self._giga), small_ns, 0.0, ratios)


def _simai_rate(busbw, kind, size) -> Rate:
    numerator = (size - 1) * (2 if kind == "all_reduce" else 1)
    return Rate(numerator / size * 1e9 / (busbw * BINARY_GB), gib_per_s=busbw, numerator=numerator, denominator=size)


def single(value: float) -> float:
    """Return the float32 nearest to a number.

    Of a product or quotient of two float32 that is the result of float32 arithmetic.
    """
    return float(np.float32(value))


def bus_factor(kind: str, size: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, of nccl-tests.

    >>> bus_factor("all_reduce", 4), bus_factor("all_to_all", 4), bus_factor("send_recv", 2)
    (1.5, 0.75, 1.0)
    """
    if kind == "send_recv":
        return 1.0
    return (2 if kind == "all_reduce" else 1) * (size - 1) / size


def bus_bandwidth(links: Links, num_nics: float, nodes: int, per_node: int, kind: str,
                  rounded: Callable[[float], float] = float) -> tuple[float, bool]:
    """Return the peak bus bandwidth, GB/s, and whether NVLink limits it.

    rounded : applied to each product and quotient.
    """
    if nodes == 1:
        return links.nvlink, kind == "all_to_all"
    total = rounded(links.nic * num_nics)
    cap = math.inf
    if per_node > 1:
        cap = rounded(rounded(links.nvlink * per_node) / (per_node - 1)) if total > links.nvlink else links.nvlink
    if kind == "all_to_all":
        shared = rounded(rounded(total / per_node) * (nodes * per_node - 1))
        return rounded(shared / ((nodes - 1) * per_node)), cap < total
    return min(cap, total), cap < total


def _floor_ns(size: int) -> float:
    """Return the least time of a collective: that of the next larger group in SimAI's table."""
    return 1e3 * next((us for tabled, us in SMALL_US.items() if tabled >= size), SMALL_US[max(SMALL_US)])
