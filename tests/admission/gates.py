"""Workloads with classes and tenants, and what stands before the replicas, for the tests of this folder."""
import numpy as np

from simulator import registry
from simulator.admission.base import AdmissionContext
from simulator.admission.gateway_queue import GatewayQueue
from simulator.domain.gateway import GatewayQueueParameters, Saturation
from simulator.domain.slo_classes import by_name
from simulator.signals.view import View
from support.workloads import plain_workload

S = 1_000_000_000


def labelled_workload(slo_classes=(None,), tenants=None, prompt_tokens=1):
    """Return a workload of one request per class; None: it names none. Tenants likewise."""
    count = len(slo_classes)
    workload = plain_workload(np.arange(count), prompt_tokens, 1)
    for column, given in (("slo_class", slo_classes), ("tenant", tenants or [None] * count)):
        names = sorted({name for name in given if name is not None})
        workload.labels[column] = names
        workload.demands[column] = [-1 if name is None else names.index(name) for name in given]
    return workload


def context_of(workload, replicas=1, classes=(), num_slots=0):
    """Return what policies work with."""
    return AdmissionContext(view=View(replicas), workload=workload, classes=by_name(classes), num_slots=num_slots,
                            make=chosen_by)


def chosen_by(kind, section, context):
    """Return what a nested table chooses."""
    return registry.load(kind, getattr(section, registry.KINDS[kind].key))(section.parameters, context)


def made(kind, name, context, **keys):
    """Return a policy or detector with these keys."""
    chosen = registry.load(kind, name)
    return chosen(chosen.Parameters(**keys), context)


def queue_of(context, detector="concurrency", detector_keys=None, **keys):
    """Return a gateway queue with these keys, and a detector with those."""
    parameters = registry.load("saturation", detector).Parameters(**(detector_keys or {}))
    section = Saturation(detector=detector, parameters=parameters)
    return GatewayQueue(GatewayQueueParameters(saturation=section, **keys), context)
