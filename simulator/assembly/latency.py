"""The latency model of a pool, from [latency]: its backend, and overheads of the engine around it."""
import math
from functools import partial

from msgspec.structs import replace

from simulator import registry
from simulator.assembly.context import with_context_parallel, with_prompt_parallel
from simulator.assembly.drafts import with_draft_model
from simulator.assembly.experts import expert_pricing, with_exchange
from simulator.assembly.kernel_engine import with_engine
from simulator.assembly.residual import residual_of
from simulator.domain.deployment import Deployment
from simulator.domain.host import HostParameters
from simulator.domain.host_defaults import FRONT_ENDS_ALIKE, vllm_host_us
from simulator.errors import InputErrors, KeyFault
from simulator.experts.timeline import Arrangement
from simulator.latency.overheads.slower import Slower
from simulator.latency.readings import Made, Readings


def latency_model(site, readings: Readings | None = None, arrangement: Arrangement | None = None):
    """Return the latency backend of a pool, with its collective model.

    site : assembly.site.Site of the pool, also in the functions below.
    readings : files already read by latency backends; None: none.
    arrangement : of experts; None: the arrangement of the first iteration.

    Raises
    ------
    InputErrors
        Profiles or facts that it needs are missing or wrong.
    """
    pool = site.pool
    latency, engine, stages = pool.latency, pool.engine, pool.topology.pipeline_parallel
    own, pricing = with_engine(pool, latency.parameters), None
    parameters = own
    if engine.experts is not None:
        parameters = with_exchange(pool, own)
        pricing = expert_pricing(pool, site.deployment, arrangement)
    residual = residual_of(site)
    model = residual.around_forward(_backend_model(site, parameters, site.deployment, readings, pricing))
    host = _host(site, model)
    model.set_host(host.iteration_us, latency.resolution_us, host.sequence_us)
    if stages > 1:
        model.set_stages(layers_of_stages(site.deployment, stages))
    model = with_prompt_parallel(site, with_context_parallel(site, model))
    for go_around in site.scheduler.around(engine.parameters, site.deployment):
        model = _built(go_around, "engine", model)
    if site.draft is not None:
        model = with_draft_model(site, model, partial(
            _backend_model, site, own, site.draft, readings))
    model = residual.around_iteration(model)
    if latency.time_factor is not None:
        model = Slower(model, latency.time_factor)
    if engine.data_parallel and engine.data_parallel.padding == "sglang":
        model.pad_gathered()
    return model


def _backend_model(site, parameters, deployment: Deployment | None, readings: Readings | None, pricing=None):
    """Return the backend for a model on its accelerators.

    pricing : of experts, see `expert_pricing`; None: they are evenly loaded.
    """
    latency, backend, given = site.pool.latency, site.backend, {}
    if latency.collective is not None:
        model = registry.load("collective", latency.collective.backend)
        given["collective"] = _built(model, "latency.collective", latency.collective.parameters, deployment)
    asked = latency.backend, parameters, latency.collective, deployment
    if backend.reads_files:
        read = partial(_built, backend.read, "latency", parameters, deployment, **given)
        given["reading"] = read() if readings is None else readings.of(asked, read)
    if pricing is not None:
        given["experts"] = pricing
    model = _built(backend, "latency", parameters, deployment, **given)
    if readings is None:
        return model
    return readings.around(Made(backend, asked, given, model, lambda changed: _built(
        backend, "latency", parameters, deployment, **changed)))


def operator_errors(site) -> dict:
    """Return OperatorError by operator, from the backend of a pool.

    Raises
    ------
    InputErrors
        The backend knows no errors.
    """
    kept = _LastMade()
    latency_model(site, kept)
    return errors_of_made(kept.made[0])[0]


def errors_of_made(made: Made) -> tuple[dict, dict]:
    """Return OperatorError by operator, and the tables used."""
    _, parameters, _, deployment = made.asked
    return _built(made.backend.errors, "latency", parameters, deployment, made.given.get("collective"))


class _LastMade(Readings):
    """Readings that keep all models made, the model of the pool first."""

    def __init__(self):
        super().__init__()
        self.made: list[Made] = []

    def around(self, made: Made):
        self.made.append(made)
        return made.model


def layers_of_stages(deployment: Deployment | None, num_stages: int) -> list[int]:
    """Return the number of layers of each pipeline stage; without a model, 1 each."""
    if deployment is None:
        return [1] * num_stages
    ways, model = deployment.parallelism, deployment.model
    return [len(ways.layers_of_stage(model, stage)) for stage in range(num_stages)]


def host_times(site, model) -> HostParameters:
    """Return [latency.host] with zero values filled in.

    Times after an iteration are truncated to resolution_us as iterations are; queue delays are truncated where summed.
    """
    host, resolution_us = _host(site, model), site.pool.latency.resolution_us
    if resolution_us == 0.0:
        return host
    return replace(host, **{name: math.floor(getattr(host, name) / resolution_us) * resolution_us
                            for name in ("output_token_us", "completion_us")})


def _host(site, model) -> HostParameters:
    """Return [latency.host] with zeros filled in by a backend that was fitted with host terms, or from vLLM's."""
    given, engine = site.pool.latency.host, site.pool.engine
    terms = model.host_terms()
    is_known = site.backend.knows_kernels and engine.scheduler in ("vllm", *FRONT_ENDS_ALIKE)
    stands_in = given.defaults == "vllm" or (given.defaults is None and is_known)
    if stands_in:
        overlaps = (residual_of(site).covers_host or engine.scheduler in FRONT_ENDS_ALIKE
                    or bool(getattr(engine.parameters, "async_scheduling", False)))
        terms = vllm_host_us(overlaps) | terms
    found = {name: value for name, value in terms.items() if not getattr(given, name)}
    return replace(given, defaults="vllm" if stands_in else "none", **found)


def _built(model: type, key: str, *arguments, **named):
    try:
        return model(*arguments, **named)
    except InputErrors:
        raise
    except ValueError as error:         # no FLOP/s for a number format, no link bandwidth, ...
        raise InputErrors([KeyFault(f"{key}: {error}")]) from None
