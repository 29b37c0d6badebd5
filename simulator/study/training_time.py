"""The time of a training workload: computation, exposed communication, pipeline bubble.

With ratios that hide a share of the communication behind computation, p pipeline stages, v virtual stages each and m
micro-batches, an iteration takes

    sum of computation + sum of exposed communication
    + bubble      (p - 1) / (m v) x sum over layers of computation + forward + input-gradient communication
    + pipeline    2 v m messages between stages, as far as they are exposed

Every operation runs once, one after the other. The bubble leaves out `embedding_layer`, weight-gradient communication
and overlap. Source: aliyun/SimAI at f5efb5a9 (1.6), AnalyticalAstra, compared with the program's output.
"""
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.study.training_workload import Operation, Phase, TrainingWorkload

GROUPS = ("data", "data_expert", "tensor", "expert")
OUTSIDE_THE_BUBBLE = "embedding_layer"
SIMAI_LEAST_FORWARD_BYTES = 4096.0      # of a message of the forward pass; gradients go as they are
WholeNs = Callable[[str, str, float], float]    # group, kind, bytes -> ns with nothing hidden


class Overlaps(NamedTuple):
    """Shares of communication that computation hides; the default is SimAI's."""

    tensor: float = 0.0
    expert: float = 0.0
    data: float = 0.0
    pipeline: float = 1.0


class PhaseTime(NamedTuple):
    """One phase of an operation."""

    compute_us: float
    exposed_us: float
    total_us: float             # of communication, hidden or not
    algbw: float                # giga bytes a second, as the convention counts; 0: no communication
    busbw: float


class LayerTime(NamedTuple):
    """One operation."""

    name: str
    forward: PhaseTime
    input_gradient: PhaseTime
    weight_gradient: PhaseTime


class TrainingTime(NamedTuple):
    """One iteration, in microseconds."""

    layers: list[LayerTime]
    exposed_us: dict[str, float]    # by group, as in GROUPS
    pipeline_us: float
    bubble_us: float
    compute_us: float

    @property
    def communication_us(self) -> float:
        """Exposed communication of the groups; pipeline messages are counted apart."""
        return sum(self.exposed_us.values())

    @property
    def total_us(self) -> float:
        """The whole iteration."""
        return self.compute_us + self.communication_us + self.bubble_us + self.pipeline_us


class Timer:
    """Times workloads.

    Parameters
    ----------
    whole_ns : the communication model.
    bus_factors : (group, kind) -> bus bandwidth over algorithm bandwidth.
    overlaps : Overlaps
    giga_bytes : float
        Bytes in a GB of the bandwidths reported.
    is_simai : bool
        As SimAI does: hide an input gradient by the ratio of its layer's forward group and add both to that group,
        tensor unless expert; enlarge small messages of the forward pass; cut the exposed time of each operation, a
        product of float32, to whole nanoseconds; take the pipeline ratio for the bandwidth of pipeline messages where
        none is given, and charge pipeline messages to one stage too.
    """

    def __init__(self, whole_ns: WholeNs, bus_factors: Callable[[str, str], float], overlaps: Overlaps,
                 giga_bytes: float = 1e9, is_simai: bool = False):
        self._whole_ns, self._bus_factors, self._overlaps = whole_ns, bus_factors, overlaps
        self._giga_bytes, self._is_simai = giga_bytes, is_simai

    def time(self, workload: TrainingWorkload, pipeline_gb_per_s: float | None = None) -> TrainingTime:
        """Return the time of one iteration of `workload`.

        Parameters
        ----------
        pipeline_gb_per_s : float or None
            Bandwidth of messages between stages in SimAI's convention; None: not given.
        """
        layers = [self._layer(operation) for operation in workload.operations]
        exposed = dict.fromkeys(GROUPS, 0.0)
        for operation, layer in zip(workload.operations, layers, strict=True):
            for group, took in zip(self._accounts(operation), layer[1:], strict=True):
                exposed[group] += took.exposed_us
        return TrainingTime(layers, exposed, self._pipeline_us(workload, pipeline_gb_per_s),
                            _bubble_us(workload, layers),
                            sum(phase.compute_us for layer in layers for phase in layer[1:]))

    def _accounts(self, operation: Operation) -> tuple[str, str, str]:
        """Return the groups to which the times of an operation's phases are added."""
        forward, input_gradient, weight_gradient = (phase.group for phase in operation[1:])
        if not self._is_simai:
            return forward, input_gradient, weight_gradient
        layer = "expert" if forward == "expert" else "tensor"
        return layer, layer, "data_expert" if weight_gradient == "data_expert" else "data"

    def _layer(self, operation: Operation) -> LayerTime:
        forward_group, input_group, _ = self._accounts(operation)
        forward = operation.forward
        if self._is_simai and forward.num_bytes:
            forward = forward._replace(num_bytes=max(forward.num_bytes, SIMAI_LEAST_FORWARD_BYTES))
        return LayerTime(operation.name, self._phase(forward, forward_group),
                         self._phase(operation.input_gradient, input_group),
                         self._phase(operation.weight_gradient, "data"))

    def _phase(self, phase: Phase, hidden_as: str) -> PhaseTime:
        if not phase.kind:
            return PhaseTime(phase.compute_ns / 1e3, 0.0, 0.0, 0.0, 0.0)
        whole_ns = self._whole_ns(phase.group, phase.kind, phase.num_bytes)
        overlap, whole_us = getattr(self._overlaps, hidden_as.split("_")[0]), whole_ns / 1e3
        exposed_us = (_simai_exposed(whole_ns, overlap) if self._is_simai else whole_ns * (1.0 - overlap)) / 1e3
        algbw = phase.num_bytes / self._giga_bytes / (whole_us * 1e-6) if whole_us > 0.0 else 0.0
        return PhaseTime(phase.compute_ns / 1e3, exposed_us, whole_us, algbw,
                         algbw * self._bus_factors(phase.group, phase.kind))

    def _pipeline_us(self, workload: TrainingWorkload, gb_per_s: float | None) -> float:
        num_messages = 2 * workload.virtual_stages * workload.micro_batches
        overlap, num_bytes = self._overlaps.pipeline, workload.pipeline_bytes
        if num_bytes == 0.0 or overlap == 1.0:
            return 0.0
        if self._is_simai:              # one stage alone is charged as well
            gb_per_s = float(np.float32(overlap if gb_per_s is None else gb_per_s))
            if gb_per_s == 0.0:         # SimAI divides by it
                return math.inf
            us = math.floor(num_messages * (num_bytes / self._giga_bytes / gb_per_s * 1e9) / 1e3)
            return _simai_exposed(us, overlap)
        if workload.pipeline <= 1:
            return 0.0
        return num_messages * self._whole_ns("pipeline", "send_recv", num_bytes) / 1e3 * (1.0 - overlap)


def _simai_exposed(whole: float, overlap: float) -> float:
    """Return the exposed part of a whole number of ticks: a float32 product, cut to whole ticks."""
    return float(math.floor(np.float32(whole) * (np.float32(1.0) - np.float32(overlap))))


def _bubble_us(workload: TrainingWorkload, layers: list[LayerTime]) -> float:
    busy_us = sum(
        layer.forward.compute_us + layer.input_gradient.compute_us + layer.weight_gradient.compute_us
        + layer.forward.total_us + layer.input_gradient.total_us
        for layer in layers if layer.name != OUTSIDE_THE_BUBBLE)
    return (workload.pipeline - 1) / (workload.micro_batches * workload.virtual_stages) * busy_us
