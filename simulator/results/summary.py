"""summary.json: identity and metrics of a run."""
import json
from typing import NamedTuple

from simulator.domain.run import Run
from simulator.results.cluster import PoolFacts
from simulator.results.energy import PowerFacts, energy_of, remarks
from simulator.results.fitness import fitness
from simulator.results.metrics import SCHEMA, summarise
from simulator.results.money import Bill, cost_of
from simulator.results.power_meter import PowerMeter


class Ledger(NamedTuple):
    """The parts of a summary about money and energy; each None if not configured."""

    bill: Bill | None = None
    power: PowerFacts | None = None
    meter: PowerMeter | None = None


UNASKED = Ledger()


def summary_of(run: Run, name: str, seed: int, bounds, pools: tuple[PoolFacts, ...] = (), weights=None,
               ledger: Ledger = UNASKED) -> dict:
    """Return the content of summary.json.

    Parameters
    ----------
    bounds : object with `ttft_ms`, `tpot_ms`, `e2el_ms`, each a float or None.
    pools : as the experiment has them; empty: it has none.
    weights : object with the keys of [fitness]; None: no fitness.
    """
    summary = {"schema": SCHEMA, "name": name, "seed": seed, **summarise(run, bounds, pools)}
    if ledger.bill is not None:
        summary["cost"] = cost_of(run, ledger.bill, summary)
    if ledger.meter is not None:
        summary["energy"] = energy_of(run, ledger.power, ledger.meter, summary["total_output_tokens"])
        summary["diagnosis"] = [*summary["diagnosis"], *remarks(summary["energy"])]
    return summary if weights is None else summary | {"fitness": fitness(summary, weights)}


def json_text(content: dict) -> str:
    """Return JSON in the order of `content`; NaN and infinity are refused."""
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
