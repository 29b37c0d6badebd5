"""Prices and emissions where a pool is: those of the experiment's tables, unless the pool has its own, hour by hour."""
from simulator.config.experiment import Experiment, Pool
from simulator.domain.costs import Numbers, Price, from_the_start


def price_of(experiment: Experiment, pool: Pool) -> Price | None:
    """Return the entry of [prices] for a pool.

    None: the pool has a cost_per_hour, or there is no entry.
    """
    is_given = any(each.cost_per_hour for each in experiment.pools if each.name == pool.name)
    return None if is_given or pool.hardware is None else (experiment.prices or {}).get(pool.hardware.name)


def gpu_price_of(pool: Pool, price: Price) -> Numbers:
    """Return the price of an accelerator of a pool for an hour.

    Prices that differ by hour begin with that of simulated time 0.
    """
    return _of(pool, pool.price_per_gpu_hour, price.per_gpu_hour, price.starts_at_hour)


def cost_by_hour(experiment: Experiment, pool: Pool) -> tuple[float, ...] | None:
    """Return the cost of a place in each hour of the day; None: hours do not differ.

    The first hour is that of simulated time 0.
    """
    price, topology = price_of(experiment, pool), pool.topology
    numbers = price and gpu_price_of(pool, price)
    if not isinstance(numbers, tuple):
        return None
    return tuple(each * topology.accelerators / topology.data_parallel for each in numbers)


def emissions_of(experiment: Experiment, pool: Pool) -> Numbers | None:
    """Return the grams of CO2 of a kilowatt-hour where a pool is; None: not given."""
    carbon = experiment.carbon
    return carbon and _of(pool, pool.carbon_g_per_kwh, carbon.g_per_kwh, carbon.starts_at_hour)


def energy_price_of(experiment: Experiment, pool: Pool) -> Numbers | None:
    """Return the price of a kilowatt-hour where a pool is; None: not given."""
    electricity = experiment.electricity
    return electricity and _of(pool, pool.electricity_per_kwh, electricity.per_kwh, electricity.starts_at_hour)


def _of(pool: Pool, own: Numbers | None, table: Numbers, starts_at_hour: int | None) -> Numbers:
    """Return the numbers of a pool: its own, or those of a table; by its own hour of the day, or that of the table."""
    hour = starts_at_hour if pool.starts_at_hour is None else pool.starts_at_hour
    return from_the_start(table if own is None else own, hour)
