"""LoRA adapters and grammars of the scheduler `sglang`.

Requests without an adapter share the last number, behind those of the adapters.
"""
from simulator.scheduling.adapter_slots import AdapterSlots
from simulator.scheduling.adapters import Adapters
from simulator.scheduling.grammar_draws import compile_ns, failing
from simulator.scheduling.sglang_grammars import GrammarQueue
from simulator.scheduling.tally import Tally


def new_grammars(parameters, context, waiting) -> GrammarQueue | None:
    """Return the grammar queue of one replica; None: no request has a grammar.

    parameters : SglangParameters. context : ReplicaContext. waiting : WaitingQueue of the scheduler.
    """
    given, names = parameters.structured_outputs, context.labels.get("grammar", ())
    if given is None or not len(names):
        return None
    return GrammarQueue(compile_ns(given, len(names), context.seed), failing(given, names, context.seed), given.workers,
                        context.demands, waiting)


def new_adapters(parameters, context) -> Adapters | None:
    """Return the adapters of a batch; None: there is a place for each.

    Arguments as of `new_grammars`.
    """
    given, count = parameters.lora, _num_adapters(context)
    if given is None or count < given.max_loras_per_batch:
        return None
    return Adapters(given.max_loras_per_batch, count + 1)


def new_tally(parameters, context, num_groups: int) -> Tally | None:
    """Return the tally of adapters and grammars in batches; None: there are none.

    num_groups : groups of members. Other arguments as of `new_grammars`.
    """
    has_grammars = parameters.structured_outputs is not None and len(context.labels.get("grammar", ())) > 0
    count = _num_adapters(context) if parameters.lora is not None else 0
    if count == 0:
        return Tally(context.demands, num_groups, 0, None) if has_grammars else None
    slots = AdapterSlots(count + 1, parameters.lora.max_loras_per_batch, count + 1, count)
    return Tally(context.demands, num_groups, count + 1, slots, base=count)


def _num_adapters(context) -> int:
    return len(context.labels.get("adapter", ()))
