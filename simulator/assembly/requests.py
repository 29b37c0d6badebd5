"""The requests of an experiment, read or drawn, as its engines take them."""
from collections.abc import Iterable, Iterator
from importlib import import_module

from simulator.assembly.grammar_load import with_grammar_notes
from simulator.assembly.pooling import without_outputs
from simulator.assembly.site import Site, sites_of
from simulator.assembly.towers import tower_of, with_encoder_notes
from simulator.config.experiment import Experiment
from simulator.engine.accepting import missing_texts
from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload
from simulator.workload.grammars import with_grammars
from simulator.workload.load import load
from simulator.workload.open_ended import ENOUGH, Enough

# Modules that draw or read requests while they are served, by the type of the workload; few runs ask for them.
CHUNKED = {"synthetic": "simulator.workload.types.drawn_chunks", "trace": "simulator.workload.types.trace_chunks"}


def requests_of(experiment: Experiment, enough: Enough = ENOUGH, sites: Iterable[Site] = ()) -> Workload:
    """Read or draw the requests of an experiment.

    enough : as in `simulator.workload.load.load`.
    sites : of all pools that will serve the requests: max_model_len is a limit; (): pools of the experiment.

    Raises
    ------
    InputErrors
        Faults of [workload], or of a max_model_len that limits its requests.
    """
    def longest_text():
        return min(site.max_model_len for site in sites or sites_of(experiment))

    return load(experiment.workload, experiment.seed, enough, longest_text,
                lambda key: tower_of(sites or sites_of(experiment), key), experiment.parts())


def chunks_of(experiment: Experiment) -> Workload | None:
    """Return requests drawn or read while they are served; None: all are before."""
    if not experiment.output.streamed:
        return None
    return import_module(CHUNKED[experiment.workload.type]).chunked(experiment.workload, experiment.seed)


def rows_to_send(experiment: Experiment, plays_per_slot: int) -> Workload:
    """Return the requests that a run would simulate, to be sent to a real server.

    plays_per_slot : plays to draw for a closed loop bounded only by its end; a fast server uses more of them.

    Raises
    ------
    InputErrors
        As `requests_of`; requests that the engines of the experiment refuse.
    """
    sites = sites_of(experiment)
    return meet(experiment, sites, requests_of(experiment, Enough(plays_per_slot), sites))


def meet(experiment: Experiment, sites: Iterable[Site], workload: Workload) -> Workload:
    """Return the requests with grammars of the engines, without outputs in pooling.

    Raises
    ------
    InputErrors
        Pools with different grammars, missing texts of requests, images that an engine cannot encode.
    """
    tables = [getattr(site.pool.engine.parameters, "structured_outputs", None) for site in sites]
    workload = without_outputs(with_grammars(workload, tables, experiment.seed), [site.pool for site in sites])
    workload = with_grammar_notes(workload, sites, experiment.seed)
    faults = [f"{site.prefix}engine.{fault}" for site in sites for fault in _faults(site, workload)]
    if workload.items is None:
        faults += [f"pools.{pool.name}.role: expected no encode pool: no prompt of this workload has an image; see "
                   "[workload.images]" for pool in experiment.encode_pools()]
    if faults:
        raise InputErrors(map(KeyFault, faults))
    return with_encoder_notes(workload, experiment, sites)


def _faults(site: Site, workload: Workload) -> Iterator[str]:
    """Yield the settings of an engine that match no request, and the requests that it cannot serve."""
    speculative, parameters = site.scheduler_facts.speculative, site.pool.engine.parameters
    if speculative is not None and speculative.by_text:
        for fault in missing_texts(speculative, workload):
            yield f"speculative.by_text: {fault}"
    for key, message in (*site.scheduler.item_faults(parameters, workload.items),
                         *site.scheduler.label_faults(parameters, workload.labels)):
        yield f"{key}: {message}"


def vocabulary_of(experiment: Experiment) -> int | None:
    """Return the smallest vocabulary of the named models; None: no model is named."""
    return min((site.model.vocab_size for site in sites_of(experiment) if site.model is not None), default=None)


def live_source(workload: Workload):
    """Return a simulator.engine.sources.live.Live, for an external client."""
    from simulator.engine.sources.live import Live  # not needed by a run

    return Live(workload)
