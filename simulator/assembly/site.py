"""The facts of a pool: its model, accelerators, limits, layers and KV blocks, each worked out once."""
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from simulator import registry
from simulator.assembly.context import block_tokens
from simulator.assembly.drafts import draft_deployment, drafter_memory, why_no_modules
from simulator.assembly.experts import exchanging
from simulator.assembly.memory_notes import excess_notes
from simulator.assembly.pooling import is_pooling
from simulator.assembly.ranks import needs_lock_step
from simulator.assembly.tower_notes import unknown_towers
from simulator.config.experiment import Experiment
from simulator.config.models import model_of
from simulator.domain.block_shapes import block_faults
from simulator.domain.deployment import Deployment
from simulator.domain.drafter_memory import DrafterMemory
from simulator.domain.facts import load_accelerator, load_node_with
from simulator.domain.hardware_spec import AcceleratorSpec, NodeSpec
from simulator.domain.kv_groups import GroupPlan, plan_groups
from simulator.domain.kv_link import KvLink, kv_link
from simulator.domain.kv_pages import packs_pages
from simulator.domain.kv_size import KvSize
from simulator.domain.layer_groups import GroupRules, LayerGroups
from simulator.domain.memory_plan import EngineLimits, MemoryPlan, plan_within
from simulator.domain.model_spec import ModelSpec
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors, KeyFault, collect_faults
from simulator.experts.faults import expert_faults
from simulator.latency.roofline.towers import TowerTimes, tower_times
from simulator.scheduling.contract import MemoryNeeds

KEYS_OF_ENCODERS = ("limit_mm_per_prompt", "language_model_only", "skip_mm_profiling")


class Fact:
    """Property of a Site, worked out at its first use; faults name the pool."""

    def __init__(self, work: Callable[["Site"], Any]):
        self._work, self.__doc__ = work, work.__doc__

    def __set_name__(self, owner: type, name: str):
        self._name = name

    def __get__(self, site: "Site | None", owner: type | None = None) -> Any:
        if site is None:
            return self
        found = site.__dict__[self._name] = site.named(partial(self._work, site))
        return found


class Site:
    """The facts of a pool.

    Each fact raises InputErrors: files that cannot be read, a model that cannot be spread as configured or does not
    fit.

    Parameters
    ----------
    pool : config.experiment.Pool, or an Experiment without pools.
    prefix : of the keys of the pool in the experiment's file.
    """

    def __init__(self, pool, prefix: str = ""):
        self.pool, self.prefix = pool, prefix

    def named(self, work: Callable[[], Any]) -> Any:
        """Return the result of `work`; its faults are reported with the name of the pool."""
        try:
            return work()
        except InputErrors as errors:
            if not self.prefix:
                raise
            raise InputErrors([
                KeyFault(self.prefix + fault) if isinstance(fault, KeyFault) and not fault.startswith(self.prefix)
                else fault for fault in errors.faults]) from None

    @Fact
    def scheduler(self) -> type:
        """The Scheduler subclass."""
        return registry.load("scheduler", self.pool.engine.scheduler)

    @Fact
    def scheduler_facts(self):
        """SchedulerFacts of the scheduler with its parameters."""
        return self.scheduler.facts(self.pool.engine.parameters)

    @Fact
    def tower_times(self) -> TowerTimes | None:
        """Times of the model's vision tower; None: no accelerator, or unknown shape."""
        return tower_times(self.deployment, self.backend, self.pool.latency.parameters)

    @Fact
    def backend(self) -> type:
        """The latency backend."""
        return registry.load("latency", self.pool.latency.backend)

    @Fact
    def model(self) -> ModelSpec | None:
        """The model; None: the experiment names none."""
        return self.pool.model and model_of(self.pool.model)

    @Fact
    def accelerator(self) -> AcceleratorSpec | None:
        """The accelerator; None: the experiment names none."""
        return self.pool.hardware and load_accelerator(self.pool.hardware.name)

    @Fact
    def node(self) -> NodeSpec | None:
        """The node type; None: the experiment names none."""
        name = self.pool.topology.node
        return name and load_node_with(self.accelerator, name, "topology.node")

    @Fact
    def needs_lock_step(self) -> bool:
        """Whether data-parallel ranks, if there are any, are in lock step."""
        return needs_lock_step(self.pool, self.model)

    @property
    def is_in_lock_step(self) -> bool:
        """Whether there are data-parallel ranks in lock step."""
        return self.pool.topology.data_parallel > 1 and self.needs_lock_step

    @Fact
    def stored(self) -> Deployment | None:
        """The model on its ranks, without accelerators; None: no [model]."""
        model, topology, engine = self.pool.model, self.pool.topology, self.pool.engine
        if model is None:
            return None
        spec = replace(self.model, has_head=False) if is_pooling(self.pool) else self.model
        items = getattr(engine.parameters, "items", None)
        if items is not None and items.is_text_only(spec.vision):
            spec = replace(spec, vision=None, vision_parameters=0)
        parallelism = Parallelism(
            tensor_parallel=topology.tensor_parallel, pipeline_parallel=topology.pipeline_parallel,
            expert_parallel=topology.expert_parallel,
            data_parallel=topology.data_parallel if self.needs_lock_step else 1,
            decode_context_parallel=topology.decode_context_parallel,
            prefill_context_parallel=topology.prefill_context_parallel)
        stored = Deployment(
            model=spec, accelerator=None, parallelism=parallelism, weight_dtype=model.dtype,
            kv_cache_dtype=model.kv_cache_dtype, gpu_memory_utilization=engine.gpu_memory_utilization or 1.0,
            experts=engine.experts)
        if not self.model.has_head and not is_pooling(self.pool):
            raise InputErrors([KeyFault(f"model.name: {self.model.name} has no output head; expected scheduler = "
                                        '"vllm" and engine.task = "pooling" with it')])
        self._refuse_parts_of_texts()
        faults = [f"topology: {fault}" for fault in (*parallelism.faults(spec), *block_faults(
            stored, self.scheduler_facts.refines_blocks))]
        faults += [f"model.{fault}" for fault in stored.format_faults()]
        if faults:
            raise InputErrors(map(KeyFault, faults))
        return stored

    def _refuse_parts_of_texts(self) -> None:
        """Raise InputErrors for options that would compute a text in parts, where the model sees it whole."""
        engine = self.pool.engine
        options = {"enable_prefix_caching": engine.enable_prefix_caching,
                   "enable_chunked_prefill": getattr(engine.parameters, "enable_chunked_prefill", False)}
        if self.model.is_causal:
            return
        why = (f"{self.model.name} attends in both directions, so that a prompt is computed whole and nothing is kept; "
               "vLLM turns it off too")
        faults = [f"{key}: expected false, found true: {why}" for key, is_on in options.items() if is_on]
        tokens = getattr(engine.parameters, "max_num_batched_tokens", None)
        if tokens is not None and tokens < self.max_model_len:
            faults.append(f"max_num_batched_tokens: expected at least max_model_len = {self.max_model_len}, since "
                          f"{self.model.name} computes a prompt whole, found {tokens}")
        if faults:
            raise InputErrors(KeyFault(f"engine.{fault}") for fault in faults)

    @Fact
    def deployment(self) -> Deployment | None:
        """The model on its accelerators; None: either is not named."""
        accelerator, node, stored = collect_faults(
            lambda: self.accelerator, lambda: self.node, lambda: self.pool.hardware and self.stored)
        if stored is None:
            return None
        deployment = replace(stored, accelerator=accelerator, node=node)
        if deployment.experts is not None and (faults := list(expert_faults(deployment))):
            raise InputErrors([KeyFault(f"engine.experts{key}: {message}") for key, message in faults])
        return deployment

    @Fact
    def draft(self) -> Deployment | None:
        """The draft model on its accelerators; None: there is none."""
        return draft_deployment(self)

    @Fact
    def max_model_len(self) -> int:
        """The longest text, prompt and output, in tokens.

        Source: vllm-project/vllm, vllm/config/model.py, _get_and_verify_max_len.
        """
        engine, model = self.pool.engine, self.model
        asked, is_allowed = engine.max_model_len, engine.allow_long_max_model_len
        if model is None:
            if is_allowed:
                raise InputErrors([KeyFault("engine.allow_long_max_model_len: without [model] there is no maximum that "
                                            "it could lift; expected false")])
            return asked
        longest = model.max_position_embeddings
        if asked is not None and asked > longest and not is_allowed:
            raise InputErrors([KeyFault(
                f"engine.max_model_len: expected at most {longest}, the maximum of {model.name}, found {asked}; vLLM "
                "refuses it too. allow_long_max_model_len = true takes it, like vLLM's "
                "VLLM_ALLOW_LONG_MAX_MODEL_LEN")])
        return asked or longest

    @Fact
    def group_rules(self) -> GroupRules | None:
        """The scheduler's rules for block tables of layer kinds; None: none."""
        rules = self.scheduler_facts.grouping
        return rules and replace(rules, enable_prefix_caching=self.pool.engine.enable_prefix_caching)

    @Fact
    def group_plan(self) -> GroupPlan | None:
        """Groups of the model's layers; None: one block table, or given groups."""
        rules = self.group_rules
        if rules is None and self.stored and packs_pages(self.stored):
            raise InputErrors([KeyFault(
                f"engine.scheduler: expected vllm, found {self.pool.engine.scheduler}: {self.deployment.model.name} "
                "keeps caches of several sizes, windows and rings among them, and one block table cannot hold these")])
        if rules is None or rules.given:
            return None
        stored = self.stored and replace(self.stored, accelerator=self.accelerator)
        plan = partial(plan_groups, stored, self.pool.engine.block_size, self.max_model_len, drafter=self.drafter)
        try:
            enabled = stored and plan(replace(rules, is_disabled=False))
        except ValueError as error:         # pages that cannot share a pool
            raise InputErrors([KeyFault(f"engine.num_gpu_blocks: {error}")]) from None
        if not rules.is_disabled:
            return enabled
        key = "engine.disable_hybrid_kv_cache_manager: expected false, found true"
        try:
            groups = enabled and plan(rules)
        except ValueError as error:
            raise InputErrors([KeyFault(f"{key}: {error}")]) from None
        if groups == enabled:
            raise InputErrors([KeyFault(f"{key}: all layers are of one kind, and cannot be changed")])
        return None

    @Fact
    def layer_groups(self) -> LayerGroups | None:
        """LayerGroups, given or of the model; None: layers share a block table."""
        rules, pool = self.group_rules, self.pool
        if rules is not None and rules.given:
            return rules.groups_given(pool.engine.block_size, self.max_model_len,
                                      pool.topology.decode_context_parallel)
        return self.group_plan and self.group_plan.layers

    @Fact
    def needs(self) -> MemoryNeeds:
        """MemoryNeeds of the scheduler, which must state them, for the deployment."""
        return self.scheduler.memory(self.pool.engine.parameters, self.deployment, self.max_model_len)

    @Fact
    def drafter(self) -> DrafterMemory | None:
        """DrafterMemory; None: it holds nothing, or is unknown and the blocks are given."""
        if self.deployment is None:
            return None
        try:
            return drafter_memory(self)
        except InputErrors:
            if self.pool.engine.num_gpu_blocks is None:
                raise
            return None

    @property
    def limits(self) -> EngineLimits:
        """The engine's arguments that decide over memory."""
        needs, engine = self.needs, self.pool.engine
        return EngineLimits(
            block_size=engine.block_size, max_model_len=self.max_model_len, drafter=self.drafter,
            grouping=self.group_rules, max_num_batched_tokens=needs.max_num_batched_tokens,
            max_num_seqs=needs.max_num_seqs, share=needs.share, has_old_kernels=needs.has_old_kernels,
            copies_latent_up=needs.copies_latent_up, items=needs.items,
            adapter_bytes=needs.adapter_bytes, batches_in_flight=needs.batches_in_flight,
            spared_blocks=needs.spared_blocks, states=needs.states and replace(
                needs.states, page_size=engine.block_size, keeps_prefixes=engine.enable_prefix_caching))

    @Fact
    def memory(self) -> MemoryPlan | None:
        """MemoryPlan that gives num_gpu_blocks; None: the experiment does."""
        if self.pool.engine.num_gpu_blocks is not None:
            return None
        try:
            return plan_within(exchanging(self.pool, self.deployment), self.limits, self.group_plan, self.needs.reserve)
        except InputErrors:
            raise
        except ValueError as error:         # DoesNotFit, or a scheduler that does not state its needs
            raise InputErrors([KeyFault(f"engine.num_gpu_blocks: {error}")]) from None

    @property
    def kv_lines(self) -> list[str]:
        """The engine's own report of its KV cache; empty: unknown, as without a model."""
        groups, deployment = self.group_plan, self.deployment
        if deployment is None or (self.layer_groups is not None and groups is None):
            return []
        try:
            lines = self.needs.lines
        except ValueError:                  # a scheduler that does not state its needs
            return []
        size = self.memory.kv_size if self.memory is not None else KvSize(
            self.num_gpu_blocks, self.block_tokens, len(groups.layers.groups) if groups else 1,
            self.limits.request_blocks(deployment, groups, self.max_model_len), self.max_model_len)
        return lines(size) if lines else []

    @property
    def num_gpu_blocks(self) -> int:
        """KV blocks of each replica, including the null block, as in vLLM."""
        return self.pool.engine.num_gpu_blocks if self.memory is None else self.memory.num_gpu_blocks

    @property
    def block_tokens(self) -> int:
        """Tokens of a KV block of a replica."""
        return block_tokens(self.pool, self.layer_groups)

    @Fact
    def kv_link(self) -> KvLink | None:
        """Links over which KV leaves a replica; None without a deployment."""
        return self.deployment and kv_link(self.deployment)

    @Fact
    def host_kv(self):
        """Layout of KV blocks for hosts; None: no deployment, or given groups."""
        from simulator.domain.host_kv import host_kv  # few experiments have a tier

        if self.deployment is None or (self.layer_groups is not None and self.group_plan is None):
            return None
        return host_kv(self.deployment, self.pool.engine.block_size, self.group_plan)

    def check(self) -> "Site":
        """Work out all facts of the deployment, and return this Site.

        Raises
        ------
        InputErrors
            All faults.
        """
        collect_faults(lambda: self.deployment, lambda: self.max_model_len)
        layers, _ = collect_faults(lambda: self.layer_groups, lambda: self.draft)
        engine = self.pool.engine
        if faults := list(self.scheduler.layer_faults(engine.parameters, layers, engine.enable_prefix_caching)):
            raise InputErrors([KeyFault(f"{self.prefix}engine.{key}: {message}") for key, message in faults])
        _ = self.memory
        if why := why_no_modules(self.scheduler_facts.speculative, self.model):
            raise InputErrors([KeyFault(f"{self.prefix}engine.speculative.method: {why}")])
        self._check_given_blocks()
        self._check_encoder()
        return self

    def _check_encoder(self) -> None:
        """Raise InputErrors where keys of an encoder are given, and the model has none."""
        if self.model is not None and (self.model.vision_parameters or self.model.unknown_towers):
            return
        given = [key for key in KEYS_OF_ENCODERS if getattr(self.pool.engine.parameters, key, None)]
        if given:
            why = "it acts on the encoder of a [model]" if self.model is None else f"{self.model.name} takes text alone"
            raise InputErrors([KeyFault(f"{self.prefix}engine.{key}: expected none: {why}") for key in given])

    def _check_given_blocks(self) -> None:
        """Raise InputErrors where the engine would not start with a given number of blocks."""
        found = self.pool.engine.num_gpu_blocks
        if found is None or self.deployment is None:
            return
        try:
            why = self.needs.why_not_few
        except ValueError:                  # a scheduler that does not state its needs
            return
        if why and (fault := self.limits.too_few(self.deployment, self.layer_groups, found)):
            raise InputErrors([KeyFault(f"{self.prefix}engine.num_gpu_blocks: {fault}; {why}")])

    def explain(self) -> list[str]:
        """Return text lines on the use of memory, and on separate block tables."""
        deployment, layers, engine = self.deployment, self.layer_groups, self.pool.engine
        if self.memory is not None:
            lines = self.memory.explain().splitlines()
        else:
            lines = layers.explain() if layers else []
            if self.block_tokens > engine.block_size:
                lines.append(f"{self.num_gpu_blocks} blocks of {self.block_tokens} tokens, shared by several "
                             "accelerators")
        if layers is None and deployment is not None and deployment.model.sliding_attention:
            lines.append("one block table for all layers: each keeps a token to the end, whatever its window")
        lines += excess_notes(self) + unknown_towers(self.model)
        return lines + self.kv_lines + (deployment.checkpoint_notes() if deployment is not None else [])


def sites_of(experiment: Experiment) -> tuple[Site, ...]:
    """Return the Site of each pool that computes tokens; no fact is worked out yet."""
    return tuple(Site(pool, f"pools.{pool.name}." if experiment.pools else "") for pool in experiment.all_pools())
