"""vLLM's drafts. Sources: vLLM 0.32.0 and 0.33.0, vllm/config/speculative.py, vllm/engine/arg_utils.py."""
from typing import Any

from simulator.domain.drafter_memory import why_not_loaded
from simulator.errors import InputErrors
from simulator.server_line.facts.answers import Refused, Work
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.vllm.rules import rules_of

SHORT = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
LOOKUPS = ("ngram", "ngram_gpu")
WITHOUT_MODEL = {"ngram": "ngram", "ngram_gpu": "ngram_gpu", "suffix": "suffix",
                 "extract_hidden_states": "extract_hidden_states"}
EAGLES = ("eagle", "eagle3")
HEADS = (*EAGLES, "mtp", "dflash", "dspark")
BY_NAME = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
MTP_NAMES = {f"{family}_mtp" for family in (
    "deepseek", "mimo", "glm4_moe", "ernie", "qwen3_next", "qwen3_5", "longcat_flash", "mtp", "exaone_moe", "pangu",
    "step3p5", "nemotron_h")}
HASH_KEYS = ("disable_eagle_block_drop", "disable_lookahead_block_hashes")
TREE_DEPTH = 24             # of suffix decoding: most drafts of a step, if not given
ASYNC = {*HEADS, "ngram_gpu", "draft_model"}


def resolve_speculation(work: Work, checkpoint: Checkpoint) -> None:
    """Resolve the speculative configuration; without one nothing is set.

    Raises
    ------
    Refused
        No method or model, a method that the model has no layers for, bounds that contradict each other.
    """
    asked = _asked(work)
    if asked is None:
        return
    method, model = _method(asked), asked.get("model")
    if model is None:
        model = _model_of(method, asked, work)
    method = _found(method, str(model), checkpoint)
    tokens = asked.get("num_speculative_tokens")
    if tokens is None:
        depth = asked.get("suffix_decoding_max_tree_depth", TREE_DEPTH)
        tokens = {"mtp": checkpoint.num_mtp_layers, "suffix": depth}.get(method)
    if tokens is None:
        raise Refused("config", "no number of drafts", "num_speculative_tokens is missing")
    if tokens <= 0:
        raise Refused("config", "bad number", f"num_speculative_tokens {tokens}: expected 1 or more")
    if method == "mtp" and (modules := checkpoint.num_mtp_layers) < tokens and tokens % modules:
        raise Refused("config", "bad number", f"num_speculative_tokens {tokens}: expected a multiple of {modules}, the "
                      "model's MTP modules")
    most, least = _lookup(asked) if method in LOOKUPS else (0, 0)
    for key, value in {"method": method, "num_speculative_tokens": tokens, "model": model, "prompt_lookup_max": most,
                       "prompt_lookup_min": least, "draft_tensor_parallel_size": _tensor(asked, method, work),
                       "disable_padded_drafter_batch": asked.get("disable_padded_drafter_batch", False),
                       "parallel_drafting": asked.get("parallel_drafting", method in ("dflash", "dspark")),
                       "rejection_sample_method": asked.get("rejection_sample_method", "standard"),
                       "num_speculative_tokens_per_batch_size": asked.get("num_speculative_tokens_per_batch_size"),
                       **{key: True for key in HASH_KEYS if asked.get(key)}}.items():
        work.set(f"speculative.{key}", value, *(("flag", "--speculative-config") if key in asked else ()))


def _asked(work: Work) -> dict[str, Any] | None:
    asked = work.flag("speculative_config")
    asked = {key.replace("-", "_"): value for key, value in asked.items()} if asked is not None else None
    for flag, key in SHORT.items():
        value = work.flag(flag)
        if value is None:
            continue
        asked = asked or {}
        if key in asked:
            raise Refused("config", "two places for one value", f"--{flag.replace('_', '-')} and --speculative-config")
        asked[key] = value
    return asked


def _method(asked: dict[str, Any]) -> str:
    method = asked.get("method") or ("ngram" if asked.get("model") in ("ngram", "[ngram]") else "draft_model")
    if method in MTP_NAMES:
        return "mtp"
    return "ngram" if method == "[ngram]" else method


def _model_of(method: str, asked: dict[str, Any], work: Work) -> str | None:
    if method in ("mtp", "dspark"):
        return work.get("model.model")
    if method in WITHOUT_MODEL:
        return WITHOUT_MODEL[method]
    if "num_speculative_tokens" not in asked:
        return None
    raise Refused("config", "drafts without model", f"method {method} needs a draft model")


def _found(method: str, model: str, checkpoint: Checkpoint) -> str:
    """Return the method of the drafts: as asked, or by the name of their model."""
    if method in WITHOUT_MODEL or method in ("eagle", "eagle3", "dflash", "dspark", "custom_class"):
        return method
    if (named := next((method for part, method in BY_NAME if part in model.lower()), None)) is not None:
        return named
    if method == "mtp" and checkpoint.num_mtp_layers == 0:
        raise Refused("config", "unsupported drafts", "Unsupported speculative method: the model has no MTP layers")
    if method == "mtp" and (why := why_not_loaded(checkpoint.architecture)):
        raise Refused("config", "unsupported drafts", f"Unsupported speculative method: {why}")
    return method


def _lookup(asked: dict[str, Any]) -> tuple[int, int]:
    most, least = asked.get("prompt_lookup_max"), asked.get("prompt_lookup_min")
    if most is None and least is None:
        most = least = 5
    most, least = (least if most is None else most), (most if least is None else least)
    if least > most:
        raise Refused("config", "lookup bounds", f"prompt_lookup_min {least} is above prompt_lookup_max {most}")
    return most, least


def _tensor(asked: dict[str, Any], method: str, work: Work) -> int | None:
    size, whole = asked.get("draft_tensor_parallel_size"), work.get("parallel.tensor_parallel_size")
    if method in WITHOUT_MODEL:
        return size
    if size not in (None, 1, whole):
        raise Refused("config", "ranks of the drafts", f"draft_tensor_parallel_size {size}: expected 1 or {whole}")
    return size or whole


def num_drafts(work: Work) -> int:
    """Return the drafts of a step; 0 without speculation."""
    return work.values.get("speculative", {}).get("num_speculative_tokens", 0)


def shorten_to_draft(work: Work) -> None:
    """Cut the length to an independent draft model's: 0.33, second model runner."""
    drafts = work.values.get("speculative")
    if not drafts or drafts["method"] != "draft_model" or not runs_v2(work) or not (
            rules_of(work.question.version).cuts_to_draft):
        return
    try:
        draft = work.question.checkpoint_of(drafts["model"])
    except InputErrors:
        work.notes.append(f"the length of {drafts['model']} is not known: it may shorten max_model_len")
        return
    if draft.max_len < work.get("model.max_model_len"):
        work.set("model.max_model_len", draft.max_len, "checkpoint", f"the longest text of {drafts['model']}")


def runs_v2(work: Work) -> bool:
    """Return whether the second model runner runs the model."""
    asked = work.question.environment.get("VLLM_USE_V2_MODEL_RUNNER")
    if asked is not None:
        return asked not in ("0", "false", "False", "")
    drafts, ranks = work.values.get("speculative"), work.values["parallel"]
    older = {"medusa", "mlp_speculator"} if rules_of(work.question.version).has_medusa else set()
    gone = {"suffix", "custom_class"} | older
    if drafts and (drafts["method"] in gone
                   or (drafts["parallel_drafting"] and drafts["method"] not in ("dflash", "dspark"))):
        return False
    return not (ranks["enable_dbo"] or ranks["ubatch_size"] > 1)


def async_fault(work: Work) -> str | None:
    """Return why drafts or stages rule out async scheduling; None: they do not.

    0.33 asks this under the first model runner alone, 0.32 of drafts always.
    """
    drafts, v2 = work.values.get("speculative"), runs_v2(work)
    if rules_of(work.question.version).judges_all_runners or not v2:
        if drafts and drafts["method"] not in ASYNC:
            return f"drafts by {drafts['method']}"
        if drafts and drafts["disable_padded_drafter_batch"]:
            return "drafts without padding"
    if not v2 and work.get("parallel.pipeline_parallel_size") > 1:
        return "pipeline stages"
    return None
