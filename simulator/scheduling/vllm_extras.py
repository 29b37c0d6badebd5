"""Grammars, LoRA adapters, image embeddings and held KV of the scheduler `vllm`."""
from simulator.domain.vllm_versions import behaviour_of
from simulator.kv.encoder_cache import EncoderCache
from simulator.kv.retaining import RetainingKV
from simulator.scheduling.adapter_slots import AdapterSlots
from simulator.scheduling.grammar_draws import compile_ns, failing
from simulator.scheduling.grammars import Grammars
from simulator.scheduling.tally import Tally
from simulator.scheduling.vllm_tables import WHY_NO_OLD_ENCODER


def retaining(plan, rules) -> RetainingKV:
    """Return a KV cache that holds blocks for programs.

    plan : KVPlan with its `retention`. rules : further arguments of a SparseKV.
    """
    if plan.with_tables:
        raise ValueError("blocks held for programs have no block tables")
    cache = RetainingKV(plan.num_blocks, plan.block_size, plan.content, **rules)
    cache.retain_by(plan.retention)
    return cache


def new_grammars(given, names, seed: int) -> Grammars:
    """Return the grammars of one replica.

    The compile time of a grammar is drawn once for all replicas.

    given : StructuredOutputParameters. names : names of the grammars.
    """
    return Grammars(compile_ns(given, len(names), seed), failing(given, names, seed), given.workers)


def new_tally(parameters, context, num_groups: int) -> Tally:
    """Return the tally of adapters and grammars in the batches of one replica.

    parameters : VllmParameters. context : ReplicaContext. num_groups : groups of members.
    """
    lora, slots = parameters.lora, None
    num_adapters = len(context.labels.get("adapter", ())) if lora is not None else 0
    if num_adapters > 0:
        slots = AdapterSlots(num_adapters, lora.max_loras, lora.max_cpu_loras or lora.max_loras)
    return Tally(context.demands, num_groups, num_adapters, slots)


def new_encoder(parameters, context) -> EncoderCache | None:
    """Return the embedding cache of one replica.

    None: there is no encoder, or there are no items to encode.

    parameters : VllmParameters. context : ReplicaContext.
    """
    given, items = parameters.encoder, context.items
    if given is None or items is None or not len(items.table):
        return None
    if not behaviour_of(parameters.vllm_version).has_encoder:
        raise ValueError(f"encoder: {WHY_NO_OLD_ENCODER}")
    return EncoderCache(items, given.max_num_encoder_input_tokens or parameters.max_num_batched_tokens,
                        given.cache_tokens or parameters.max_num_batched_tokens, given.disable_chunked_mm_input,
                        context.encoded_tokens, context.fetches_items,
                        behaviour_of(parameters.vllm_version).cuts_at_items)
