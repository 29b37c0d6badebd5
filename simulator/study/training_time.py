"""Add a training workload up: computation, exposed communication, pipeline bubble.

With ratios that hide a share of the communication behind computation, p pipeline stages, v virtual stages each and m
micro-batches, an iteration takes

    sum of computation + sum of exposed communication
    + bubble      (p - 1) / (m v) x sum over layers of computation + forward + input-gradient communication
    + pipeline    2 v m messages between stages, as far as they are exposed

Every operation runs once, one after the other. The bubble leaves out `embedding_layer`, weight-gradient communication
and overlap. Source: aliyun/SimAI at f5efb5a9 (1.6), AnalyticalAstra, compared with what the program prints.
"""
import math
from collections.abc import Callable
from typing import NamedTuple

from simulator.study.training_workload import Operation, Phase, TrainingWorkload

GROUPS = ("data", "data_expert", "tensor", "expert")
OUTSIDE_THE_BUBBLE = "embedding_layer"
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
        Hide an input gradient by the ratio of its layer's forward group, and take the pipeline ratio for the bandwidth
        of pipeline messages where none is given, as SimAI does.
    """

    def __init__(self, whole_ns: WholeNs, bus_factors: Callable[[str, str], float], overlaps: Overlaps,
                 giga_bytes: float = 1e9, is_simai: bool = False):
        self._whole_ns, self._bus_factors, self._overlaps = whole_ns, bus_factors, overlaps
        self._giga_bytes, self._is_simai = giga_bytes, is_simai

    def time(self, workload: TrainingWorkload, pipeline_is_given: bool = True) -> TrainingTime:
        """Return how long one iteration of `workload` takes."""
        layers = [self._layer(operation) for operation in workload.operations]
        exposed = dict.fromkeys(GROUPS, 0.0)
        for operation, layer in zip(workload.operations, layers, strict=True):
            for phase, took in zip(operation[1:], layer[1:], strict=True):
                exposed[phase.group] += took.exposed_us
        return TrainingTime(layers, exposed, self._pipeline_us(workload, pipeline_is_given),
                            _bubble_us(workload, layers),
                            sum(phase.compute_us for layer in layers for phase in layer[1:]))

    def _layer(self, operation: Operation) -> LayerTime:
        forward_group = operation.forward.group
        input_group = forward_group if self._is_simai else operation.input_gradient.group
        return LayerTime(operation.name, self._phase(operation.forward, forward_group),
                         self._phase(operation.input_gradient, input_group),
                         self._phase(operation.weight_gradient, "data"))

    def _phase(self, phase: Phase, hidden_as: str) -> PhaseTime:
        if not phase.kind:
            return PhaseTime(phase.compute_ns / 1e3, 0.0, 0.0, 0.0, 0.0)
        whole_us = self._whole_ns(phase.group, phase.kind, phase.num_bytes) / 1e3
        exposed_us = whole_us * (1.0 - getattr(self._overlaps, hidden_as.split("_")[0]))
        algbw = phase.num_bytes / self._giga_bytes / (whole_us * 1e-6) if whole_us > 0.0 else 0.0
        return PhaseTime(phase.compute_ns / 1e3, exposed_us, whole_us, algbw,
                         algbw * self._bus_factors(phase.group, phase.kind))

    def _pipeline_us(self, workload: TrainingWorkload, bandwidth_is_given: bool) -> float:
        num_messages = 2 * workload.virtual_stages * workload.micro_batches
        exposed, num_bytes = 1.0 - self._overlaps.pipeline, workload.pipeline_bytes
        if workload.pipeline <= 1 or num_bytes == 0.0 or exposed == 0.0:
            return 0.0
        if self._is_simai:
            gb_per_s = None if bandwidth_is_given else self._overlaps.pipeline
            if gb_per_s == 0.0:         # SimAI divides by it
                return math.inf
            ns = num_messages * (num_bytes / self._giga_bytes / gb_per_s * 1e9 if gb_per_s
                                 else self._whole_ns("pipeline", "send_recv", num_bytes))
            return math.floor(ns / 1e3) * exposed
        return num_messages * self._whole_ns("pipeline", "send_recv", num_bytes) / 1e3 * exposed


def _bubble_us(workload: TrainingWorkload, layers: list[LayerTime]) -> float:
    busy_us = sum(
        layer.forward.compute_us + layer.input_gradient.compute_us + layer.weight_gradient.compute_us
        + layer.forward.total_us + layer.input_gradient.total_us
        for layer in layers if layer.name != OUTSIDE_THE_BUBBLE)
    return (workload.pipeline - 1) / (workload.micro_batches * workload.virtual_stages) * busy_us
