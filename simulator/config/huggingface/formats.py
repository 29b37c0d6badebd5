"""The format of each weight matrix by its module's name, from a checkpoint's quantisation table."""
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from simulator.config.huggingface.keys import Keys
from simulator.config.huggingface.methods import METHODS
from simulator.config.huggingface.module_names import FUSED, is_tower, kind_of
from simulator.config.huggingface.rules import WHERE, Reading, Rule
from simulator.config.huggingface.tensor_formats import Matrix, matrices_of, rows_of
from simulator.config.words import show
from simulator.domain.stored_format import Format
from simulator.errors import InputErrors, did_you_mean

# Names of one method in vLLM's versions, and in the libraries that write checkpoints.
ALIASES = {"compressed_tensors": "compressed-tensors", "awq_marlin": "awq", "auto_awq": "awq", "gptq_marlin": "gptq",
           "auto_gptq": "gptq", "auto-round": "inc", "gpt_oss_mxfp4": "mxfp4", "deepseek_v4_fp8": "fp8",
           "modelopt_fp4": "modelopt", "modelopt_mxfp8": "modelopt", "modelopt_mixed": "modelopt"}


class ModuleFormats(NamedTuple):
    """The formats of a checkpoint's matrices.

    method : by which the checkpoint declares them. rules : the first that has a module decides on it.
    kv_cache_dtype : of the KV cache, None: the model's. matrices : of the checkpoint's files, from which
    the rules then are; None: the table alone is there.
    """

    method: str
    rules: tuple[Rule, ...]
    kv_cache_dtype: str | None = None
    matrices: dict[str, Matrix] | None = None

    def format_of(self, module: str) -> Format | None:
        """Return the format of a module by its name; None: the model's dtype.

        The name is as in "model.layers.3.mlp.experts.0.down_proj". A module that vLLM fuses has the format of its
        shards.

        Raises
        ------
        InputErrors
            Shards of the module differ, which vLLM refuses.
        """
        parent, _, last = module.rpartition(".")
        if last not in FUSED:
            return self._found(module)[1]
        is_named, found = self._found(module, by_name=True)
        if is_named:
            return found
        shards = [f"{parent}.{shard}" if parent else shard for shard in FUSED[last]]
        if faults := self.uneven(shards):
            raise InputErrors(faults)
        return self._found(shards[0])[1]

    def first_named(self, modules: Sequence[str]) -> Format | None:
        """Return the format of a matrix that has one of several names.

        The first that a list has decides; else rules that need no name do.
        """
        for module in modules:
            is_named, found = self._found(module, by_name=True)
            if is_named:
                return found
        return self._found(modules[0])[1]

    def alike(self, layers: Iterable[int]) -> dict[int, int]:
        """Return for each layer the first one that all rules treat alike: maybe itself."""
        known: list[tuple[list, int]] = []
        found = {}
        for number in layers:
            of_rules = [rule.names.of_layer(number) for rule in self.rules if rule.names is not None]
            first = next((other for rules, other in known if rules == of_rules), number)
            if first == number and None not in of_rules:
                known.append((of_rules, number))
            found[number] = first
        return found

    def uneven(self, modules: Iterable[str]) -> list[str]:
        """Return the faults of modules that vLLM runs as one product in several formats."""
        found: dict[str, dict] = {}
        for module in modules:
            parent, _, last = module.rpartition(".")
            fused = next((name for name, shards in FUSED.items() if last in shards), None)
            if fused and kind_of(module) == "linear":
                found.setdefault(f"{parent}.{fused}", {})[last] = self._found(module)[1]
        return [f"{WHERE}: {name} is one product in vLLM, which refuses shards of several formats: "
                + ", ".join(f"{shard} {each.method if each else 'not quantised'}" for shard, each in shards.items())
                for name, shards in found.items() if len(set(shards.values())) > 1]

    def _found(self, module: str, by_name: bool = False) -> tuple[bool, Format | None]:
        """Return whether a rule has the module, and its format.

        by_name : by rules that name modules alone.
        """
        kind = "plain" if self.method == "modelopt" and is_tower(module) else kind_of(module)
        for rule in self.rules:
            if rule.names is not None or not by_name:
                decision = rule.decide(module, kind)
                if decision[0]:
                    return decision
        return False, None


def stated_table(config: dict, beside: dict | None = None) -> dict | None:
    """Return the quantisation table of a config.json, None without.

    vLLM looks at the top level, then at the text model, then at the file beside it:
    transformers_utils/model_arch_config_convertor.py (get_quantization_config) and transformers_utils/config.py, for
    hf_quant_config.json of ModelOpt before 0.31.
    """
    text = config.get("text_config")
    for table in (config, text if isinstance(text, dict) else {}):
        for name in (WHERE, "compression_config"):
            if table.get(name) is not None:
                return table[name]
    return beside


def read_formats(keys: Keys) -> ModuleFormats | None:
    """Return the formats of matrices that a config.json declares, None without.

    Faults are left in `keys`.
    """
    table = keys.get(WHERE)
    if table is None:
        return None
    if not isinstance(table, dict):
        keys.fault(WHERE, f"expected a table, found {show(table)}")
        return None
    table = unnested(table)
    stated, method = table.get("quant_method"), stated_method(table)
    if method not in METHODS:
        hint = did_you_mean(stated, METHODS) if isinstance(stated, str) else f"; valid: {', '.join(METHODS)}"
        allowed = "" if hint.startswith("; valid") else f"; valid: {', '.join(METHODS)}"
        keys.fault(f"{WHERE}.quant_method", f"unknown method {show(stated)}{hint}{allowed}")
        return None
    found = ModuleFormats(method, tuple(METHODS[method](Reading(keys, table))), kv_cache_dtype(table, method))
    if keys.files is None or keys.files.tensors is None:
        return found
    matrices = matrices_of(keys.files.tensors, method, found.format_of)     # the tensors themselves settle formats
    return found._replace(rules=(Rule(None, rows_of(matrices), ()),), matrices=matrices)


def stated_method(table: dict) -> str | None:
    """Return the method of a table, by one name where vLLM and libraries have several."""
    stated = table.get("quant_method") or _producer(table)
    return ALIASES.get(stated.lower(), stated.lower()) if isinstance(stated, str) else None


def _producer(table: dict) -> str | None:
    """Return "modelopt" for a table without a method if its producer or its keys are ModelOpt's, as in vLLM."""
    producer = table.get("producer")
    is_modelopt = isinstance(producer, dict) and producer.get("name") == "modelopt"
    return "modelopt" if is_modelopt or "quant_algo" in table else None


def unnested(table: dict) -> dict:
    """Return a table with the keys of its inner one."""
    # hf_quant_config.json of ModelOpt keeps its keys one table deeper than config.json does.
    inner = table.get("quantization")
    return table | inner if isinstance(inner, dict) else table


def kv_cache_dtype(table: dict, method: str) -> str | None:
    """Return the declared format of the KV cache; None: the model's dtype.

    vLLM (vllm/utils/torch_utils.py, get_kv_cache_quant_algo_string; vllm/model_executor/layers/attention/attention.py;
    first as of vllm-project/vllm at 959009b402c3) takes ModelOpt's fp8, later revisions its nvfp4 too, and fp8 for any
    kv_cache_scheme of compressed-tensors; with other formats of ModelOpt the cache keeps the model's dtype.
    """
    scheme = table.get("kv_cache_scheme") or (method == "modelopt" and table.get("kv_cache_quant_algo"))
    if method == "compressed-tensors":
        return "fp8" if scheme else None
    if method != "modelopt" or not scheme:
        return None
    if isinstance(scheme, dict):
        if scheme.get("type") != "float":
            return None
        return {8: "fp8" if scheme.get("dynamic") is False else None, 4: "fp4"}.get(scheme.get("num_bits"))
    return {"fp8": "fp8", "nvfp4": "fp4"}.get(str(scheme).lower())
