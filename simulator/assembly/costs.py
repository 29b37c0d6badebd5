"""Costs and energy of a run, from [prices], [power], [carbon] and [electricity]."""
from functools import partial

from simulator import registry
from simulator.assembly.encoders import num_replicas
from simulator.config.experiment import Experiment, Pool
from simulator.domain.facts import load_node
from simulator.results.energy import PoweredPool, PowerFacts
from simulator.results.money import Bill, PricedPool
from simulator.results.power_meter import Metered, PowerMeter
from simulator.results.summary import Ledger


def bill_of(experiment: Experiment) -> Bill | None:
    """Return the prices of an experiment's replicas; None: no price is given."""
    pools, encode = experiment.all_pools(), experiment.encode_pools()
    if not any(pool.cost_per_hour for pool in (*pools, *encode)):
        return None
    by_price = [pool.hardware.name for pool in experiment.pools or (experiment,)
                if pool.hardware is not None and not getattr(pool, "cost_per_hour", 0.0)]
    prices = {name: experiment.prices[name] for name in by_price} if experiment.prices else {}
    return Bill(tuple(PricedPool(places(pool), pool.cost_per_hour / pool.topology.data_parallel) for pool in pools),
                sum(pool.cost_per_hour * num_replicas(pool) for pool in encode), tuple(prices.items()))


def power_of(experiment: Experiment) -> PowerFacts | None:
    """Return the power draw of an experiment; None without [power]."""
    if experiment.power is None:
        return None
    carbon = experiment.carbon
    hour = (carbon.starts_at_hour or 0) if carbon is not None and carbon.by_hour else None
    return PowerFacts(tuple(map(partial(_powered, experiment), experiment.all_pools())), carbon,
                      experiment.electricity, hour)


def ledger_of(experiment: Experiment, is_of_window: bool = False) -> Ledger:
    """Return the ledger of money and energy of one run.

    is_of_window : only a part of the run may be measured.
    """
    power = power_of(experiment)
    meter = power and PowerMeter(tuple(map(_metered, experiment.all_pools())), power.starts_at_hour, is_of_window)
    return Ledger(bill_of(experiment), power, meter)


def places(pool: Pool) -> int:
    """Return the number of rows of a pool in `Run.replicas`."""
    return max(num_replicas(pool), pool.max_replicas or 0) * pool.topology.data_parallel


def _powered(experiment: Experiment, pool: Pool) -> PoweredPool:
    name, topology = pool.hardware.name if pool.hardware else "", pool.topology
    accelerators = topology.accelerators // topology.data_parallel
    nodes = accelerators / load_node(topology.node).num_accelerators if topology.node else None
    return PoweredPool(name, places(pool), accelerators, experiment.power.get(name), nodes)


def _metered(pool: Pool) -> Metered:
    topology = pool.topology
    backend = registry.load("latency", pool.latency.backend)
    phase_ns = getattr(backend, "phase_ns", None)
    return Metered(places(pool), topology.tensor_parallel * topology.prefill_context_parallel,
                   phase_ns and partial(phase_ns, pool.latency.parameters))
