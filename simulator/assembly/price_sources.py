"""Sources of prices for an accelerator, and for a model on it: measured tables, laws, and their substitutes."""
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from simulator.assembly.latency import latency_model
from simulator.assembly.operator_bounds import sources_of
from simulator.assembly.site import Site
from simulator.config.experiment import Experiment
from simulator.domain.efficiency import efficiency_of
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.errors import InputErrors
from simulator.latency.roofline.law_errors import SYSTEMS, law_error
from simulator.latency.roofline.laws import ANY, generation_of

OPERATORS = (("products", "bfloat16"), ("products", "fp8"), ("experts", "bfloat16"), ("prefill", "bfloat16"),
             ("decode", "bfloat16"), ("all_reduce", ""))
OWN, KIN, JOINT = "own", "generation", "joint"


class CardPrices(NamedTuple):
    """Prices of the roofline on an accelerator.

    laws : OWN, KIN or JOINT: tables of this card are among those of its laws; laws of its generation; of all others.
    generation : name of the laws. system : of the tables, None: none is of this card. shares : source of its shares of
    peak. errors : mean relative error of operators, with the words of its source, by operator and format.
    """

    laws: str
    generation: str
    system: str | None
    shares: str
    errors: dict[str, tuple[float, str]]


class Priced(NamedTuple):
    """Prices of a model on an accelerator by a backend.

    refusal : why there are none; None: there are. sources : by operator. notes : on replaced and missing prices.
    """

    backend: str
    refusal: str | None
    sources: Mapping[str, str] = MappingProxyType({})
    notes: tuple[str, ...] = ()


def card_prices(spec: AcceleratorSpec) -> CardPrices:
    """Return the prices of the roofline on an accelerator."""
    generation, _ = generation_of(spec)
    system = SYSTEMS.get(spec.name)
    errors = {" ".join(filter(None, each)): law_error(*each, spec) for each in OPERATORS}
    laws = OWN if system is not None else JOINT if generation == ANY else KIN
    return CardPrices(laws, generation, system, efficiency_of(spec).source, errors)


def priced(experiment: Experiment) -> Priced:
    """Return the prices of an experiment without pools."""
    site, backend = Site(experiment), experiment.latency.backend
    try:
        model = latency_model(site)
        model.predict([(64, 0)], [64], 1)       # notes are of predictions that were made
    except (InputErrors, ValueError) as error:
        faults = getattr(error, "faults", [str(error)])
        return Priced(backend, "; ".join(dict.fromkeys(faults)))
    return Priced(backend, None, sources_of(site), tuple(dict.fromkeys(model.warnings())))
