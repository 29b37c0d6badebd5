"""Methods of drafting: published measurements of their acceptance, and the cost of a drafter."""
from typing import Literal, NamedTuple

from simulator.domain.deployment import Deployment
from simulator.domain.drafter_memory import medusa_head_bytes, mtp_layer
from simulator.domain.model_spec import ModelSpec
from simulator.scheduling.acceptance_table import AcceptanceTable

Method = Literal["dflash", "draft_model", "dspark", "eagle", "eagle3", "medusa", "mtp", "ngram", "suffix"]


class Drafting(NamedTuple):
    """A method of drafting.

    acceptance : measured acceptance, the default where an experiment gives none.
    measured : source and setting of the measurement.
    num_measured : drafts per step in the measurement; further drafts are assumed to follow alike. 0: any number.
    """

    acceptance: AcceptanceTable
    measured: str
    num_measured: int = 0


METHODS = {
    # Spec-Bench gives mean lengths, here over its six tasks together, with more drafts than are ever accepted: a rate
    # of 1 - 1 / length. Source: hemingkx/Spec-Bench at 09244ff3, Leaderboard.md, Vicuna-7B-v1.3 on an A100: "SpS", a
    # small draft model, 2.28; "PLD", prompt lookup, 1.73.
    "draft_model": Drafting(AcceptanceTable(rates=(1 - 1 / 2.28,)), "Spec-Bench, Vicuna-7B, a small draft model: 2.28"),
    "ngram": Drafting(AcceptanceTable(rates=(1 - 1 / 1.73,)), "Spec-Bench, Vicuna-7B, prompt lookup: 1.73"),
    # Llama-3-8B on MT-Bench: mean lengths of 1.89 with 2 drafts and 2.08 with 4. The rate is fitted to 2.08; with 2
    # drafts it gives 1.84. Source: vllm-project/vllm, pull request 16035, comment of 9 April 2025, early in vLLM V1.
    "eagle": Drafting(AcceptanceTable(rates=(0.5418,)), "vLLM pull request 16035, Llama-3-8B on MT-Bench: 2.08", 4),
    # MT-Bench, greedy. Source: vllm-project/vllm, tests/v1/spec_decode/test_acceptance_length.py: Llama-3.1-8B with
    # RedHatAI's EAGLE-3 head, three drafts, mean length 2.60. There, too: Qwen3-8B 0.6541, 0.3993, 0.2020; gpt-oss-20b
    # 0.7165, 0.5120, 0.3337.
    "eagle3": Drafting(AcceptanceTable(per_position=(0.7296, 0.5208, 0.3545)),
                       "vLLM's tests, Llama-3.1-8B on MT-Bench: 2.60", 3),
    # Spec-Bench as above, Medusa's own heads, which draft a tree; vLLM drafts a chain, of which fewer are
    # accepted.
    "medusa": Drafting(AcceptanceTable(rates=(1 - 1 / 2.32,)), "Spec-Bench, Vicuna-7B, trees of drafts: 2.32"),
    # MT-Bench, greedy, one draft: mean length 1.882. Source: the test file above, DeepSeek-V3. DeepSeek reports 85 to
    # 90 %: DeepSeek-V3 Technical Report, arXiv 2412.19437, on multi-token prediction.
    "mtp": Drafting(AcceptanceTable(per_position=(0.882,)), "vLLM's tests, DeepSeek-V3 on MT-Bench: 1.882", 1),
}
OF_THE_MODEL = ("eagle", "eagle3", "mtp")       # drafters of one layer and the output head
IN_ONE_PASS = ("dflash", "dspark")               # all drafts come from one forward pass, by a drafter of its own
MAY_BE_PARALLEL = ("draft_model", "eagle", "eagle3")    # with parallel_drafting: PARD, P-EAGLE
LOOK_UPS = ("ngram", "suffix")                  # in texts so far, on the host, without a forward pass
WITHOUT_SLOTS = (None, "medusa", *LOOK_UPS)     # methods that write no KV ahead of the text


def acceptance_of(method: str, num_tokens: int) -> AcceptanceTable | None:
    """Return the measured acceptance of a method, for `num_tokens` drafts.

    None: there is no measurement. Suffixes are looked up in texts of many requests, and are accepted as far as those
    are alike.
    """
    if method not in METHODS:
        return None
    measured = METHODS[method].acceptance
    if measured.per_position is None:
        return measured
    return AcceptanceTable(per_position=measured.per_position[:num_tokens])


def one_pass_rows(speculative) -> int:
    """Return the rows of each sequence that a drafter's only pass adds.

    0: it makes more passes. A mask for each draft but the first, which follows from the last token of the batch; a
    draft model reads the token sampled there, too (its own row), and DFlash has a block of masks alone.
    Source: vLLM 0.32.0 and 0.33.0, vllm/config/speculative.py, the slots that a step pays for: K - 1 with EAGLE and
    DSpark, K with a draft model and DFlash.
    """
    if speculative.method == "dflash":
        return speculative.num_tokens
    in_one_pass = speculative.parallel_drafting or speculative.method in IN_ONE_PASS
    return speculative.num_tokens - 1 if in_one_pass else 0


def mask_slots(speculative) -> int:
    """Return the tokens that each scheduled request pays for masks.

    They are tokens of max_num_batched_tokens. 0: the drafter makes more passes than one. Source: as `one_pass_rows`,
    and vllm/v1/core/sched/scheduler.py.
    """
    is_draft_model = speculative.method == "draft_model" and speculative.parallel_drafting
    return speculative.num_tokens if is_draft_model else one_pass_rows(speculative)


def notes_of(method: str, num_tokens: int) -> list[str]:
    """Return notes for a run that uses the measured acceptance of a method."""
    drafting = METHODS[method]
    beyond = f"; only {drafting.num_measured} drafts were measured, the others go on alike" * (
        0 < drafting.num_measured < num_tokens)
    return [f"speculative: acceptance was not given; taken over from others is that of {method} ({drafting.measured} "
            f"tokens a step){beyond}"]


def head_us(deployment: Deployment) -> float:
    """Return the time of reading one of Medusa's heads.

    A head has a linear layer as wide as the model and an unquantised output head; all heads work side by side on the
    last state of each sequence. Source: vLLM 0.32.0, vllm/model_executor/models/medusa.py, one hidden layer a head.
    """
    return 1e6 * medusa_head_bytes(deployment) / deployment.accelerator.memory_bandwidth_bytes_per_s


def layer_share(model: ModelSpec, method: str) -> float:
    """Return the time of one layer and the output head, as a share of the model's.

    Taken as the share of weights, which decoding reads. The layer of a head is assumed to be like the model's last.
    """
    layers = [model.layer_parameters(layer) for layer in range(model.num_layers)]
    head, own = model.vocab_size * model.hidden_size, layers[-1]
    if method == "mtp" and model.num_mtp_layers:
        own = mtp_layer(model).num_parameters(model.hidden_size, model.norm_parameters)
    return (own + head) / (sum(layers) + head)


def num_modules(model: ModelSpec | None, method: str, num_tokens: int) -> int:
    """Return the MTP modules that draft in turn; 1: one drafts all tokens.

    Each computes all tokens of the batch, so that its own KV is complete. Source: vLLM 0.32.0 and 0.33.0,
    vllm/config/speculative.py (use_multi_module_mtp), vllm/v1/worker/gpu/spec_decode/multi_module_mtp/speculator.py.

    Raises
    ------
    ValueError
        The drafts are no multiple of the modules.
    """
    count = model.num_mtp_layers if model is not None and method == "mtp" else 0
    if 0 < count < num_tokens and num_tokens % count:
        raise ValueError(f"speculative.num_tokens: expected at most {count}, or a multiple, found {num_tokens}: "
                         f"{model.name} has {count} MTP modules, which draft in turn; vLLM refuses it too")
    return max(min(count, num_tokens), 1)
