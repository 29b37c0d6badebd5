"""Published acceptance of drafts, by model, drafter and data set: `acceptance.measured` names one.

All drafts are chains, verified by exact or by lossless sampling; trees of drafts are left out.
"""
from typing import NamedTuple

from simulator.errors import did_you_mean, number_of


class Measured(NamedTuple):
    """A measurement.

    num_tokens : drafts a step; 0: more than are ever accepted. length : mean tokens a step; None: `shares` are known.
    shares : of first, second, ... drafts that are accepted. source : of the figures, with the setting.
    """

    num_tokens: int
    length: float | None
    shares: tuple[float, ...] | None
    source: str

    @property
    def mean_length(self) -> float:
        """Mean tokens a step, the one behind the drafts included."""
        return self.length if self.shares is None else 1 + sum(self.shares)


VLLM = ("vLLM's tests, tests/v1/spec_decode/test_acceptance_length.py at 029ba375 and in August 2026: 80 prompts, 256 "
        "tokens each, greedy")
REDHAT = ("model card of RedHatAI/Llama4-Maverick-17B-128E-Instruct-speculator.eagle3, mean lengths with one to seven "
          "drafts: vLLM 0.11.0, temperature 0.6")
ANGELSLIM = ("Tencent/AngelSlim at 5774f961, docs/source/performance/speculative_decoding/benchmarks.md and README.md: "
             "vLLM 0.11.2, one sequence, 1,024 tokens")
NVIDIA = "model card of nvidia/Kimi-K2.6-Eagle3"
LIGHTSEEK_26 = "model card of lightseekorg/kimi-k2.6-eagle3.1-mla: nvidia/Kimi-K2.6-NVFP4 in vLLM"
LIGHTSEEK_27 = "model card of lightseekorg/kimi-k2.7-coder-eagle3.1-mla: SGLang 0.5.14, top-k 1"
MEDAI_26 = "model card of AQ-MedAI/Kimi-K26-eagle3: SGLang, top-k 1"
MEDAI_27 = "model card of AQ-MedAI/Kimi-K2.7-Code-eagle3: SGLang, top-k 1"
NEBIUS_LLAMA = "model card of nebius/EAGLE3-Llama-3.3-70B-Instruct: temperature 1"
NEBIUS_QWEN = "model card of nebius/EAGLE3-Qwen3-235B-A22B-Instruct-2507: temperature 1"
SPEC_BENCH = "hemingkx/Spec-Bench at 09244ff3, Leaderboard.md: six tasks, greedy, one sequence on an A100"
EAGLE = "vLLM pull request 16035, comment of 9 April 2025"

FORMATS = ("fp8", "nvfp4")      # a model stored in another format accepts about as much

_SHARES = {                 # (model and drafter, source): data: shares by position
    ("llama-3.1-8b/eagle3-redhat", VLLM): {"mt-bench": (0.7296, 0.5208, 0.3545)},
    ("qwen3-8b/eagle3-redhat", VLLM): {"mt-bench": (0.6541, 0.3993, 0.2020)},
    ("gpt-oss-20b/eagle3-redhat", VLLM): {"mt-bench": (0.7165, 0.5120, 0.3337)},
    ("qwen3-vl-30b-a3b/eagle3-nm-testing", VLLM): {"mt-bench": (0.2900, 0.0620, 0.0115)},
    ("llama-4-maverick/eagle3-nvidia", REDHAT): {       # differences of the lengths: 1.83, 2.45, 2.94, ...
        "humaneval": (0.83, 0.62, 0.49, 0.32, 0.21, 0.10, 0.05),
        "gsm8k": (0.86, 0.70, 0.52, 0.45, 0.20, 0.18, 0.11),
        "cnn-dailymail": (0.69, 0.43, 0.25, 0.15, 0.08, 0.03, 0.0)},
}
_LENGTHS = {                # (model and drafter, source, drafts a step): data: mean tokens a step
    ("deepseek-v3/mtp", VLLM, 1): {"mt-bench": 1.882},
    ("deepseek-v4-flash/mtp", VLLM, 1): {"mt-bench": 1.70},
    ("qwen3-1.7b/eagle3-angelslim", ANGELSLIM, 2): {"gsm8k": 2.13, "alpaca": 2.19, "humaneval": 2.2, "mt-bench": 2.17},
    ("qwen3-4b/eagle3-angelslim", ANGELSLIM, 2): {"gsm8k": 2.07, "alpaca": 2.1, "humaneval": 2.08, "mt-bench": 2.07},
    ("qwen3-8b/eagle3-angelslim", ANGELSLIM, 2): {"gsm8k": 2.0, "alpaca": 2.02, "humaneval": 1.97, "mt-bench": 1.97},
    ("qwen3-14b/eagle3-angelslim", ANGELSLIM, 2): {
        "gsm8k": 1.87, "alpaca": 1.78, "humaneval": 1.76, "mt-bench": 1.74},
    ("qwen3-32b/eagle3-angelslim", ANGELSLIM, 2): {"gsm8k": 2.01, "alpaca": 1.9, "humaneval": 1.86, "mt-bench": 1.86},
    ("qwen3-30b-a3b/eagle3-angelslim", ANGELSLIM, 2): {
        "gsm8k": 2.1, "alpaca": 2.04, "humaneval": 2.02, "mt-bench": 2.01},
    ("kimi-k2.6/eagle3-nvidia", NVIDIA, 3): {"mt-bench": 2.62, "speed-bench": 2.67},
    ("kimi-k2.6/eagle3-lightseek", LIGHTSEEK_26, 3): {
        "gsm8k": 3.195, "ceval": 2.836, "humaneval": 3.134, "math500": 3.130, "aime24": 2.966, "mt-bench": 2.611,
        "speed-bench-coding": 3.013, "speed-bench-math": 3.403, "speed-bench-multilingual": 2.800,
        "speed-bench-qa": 2.580, "speed-bench-rag": 3.045},
    ("kimi-k2.6/eagle3-aq-medai", MEDAI_26, 3): {
        "humaneval": 3.217, "swe-bench-verified": 2.553, "gsm8k": 3.172, "math500": 3.134},
    ("kimi-k2.7-code/eagle3-lightseek", LIGHTSEEK_27, 3): {
        "mt-bench": 2.345209, "ceval": 2.051672, "gsm8k": 2.946559, "humaneval": 2.544423, "math500": 2.664324,
        "aime": 2.431353, "mmstar": 2.305465},
    ("kimi-k2.7-code/eagle3-aq-medai", MEDAI_27, 3): {
        "humaneval": 2.91, "gsm8k": 3.23, "math500": 2.92, "mt-bench": 2.66},
    ("llama-3.3-70b/eagle3-nebius", NEBIUS_LLAMA, 7): {"mt-bench": 3.89, "humaneval": 5.08, "gsm8k": 5.01},
    ("llama-3.3-70b/eagle3-redhat", NEBIUS_LLAMA, 7): {"mt-bench": 2.88, "humaneval": 3.62, "gsm8k": 3.29},
    ("qwen3-235b-a22b/eagle3-nebius", NEBIUS_QWEN, 7): {"mt-bench": 3.18, "humaneval": 4.42, "gsm8k": 4.65},
    ("qwen3-235b-a22b/eagle3-redhat", NEBIUS_QWEN, 7): {"mt-bench": 2.56, "humaneval": 3.52, "gsm8k": 3.78},
    ("llama-3-8b/eagle", EAGLE, 4): {"mt-bench": 2.08},
    ("vicuna-7b/draft_model", SPEC_BENCH, 0): {"spec-bench": 2.28},
    ("vicuna-13b/draft_model", SPEC_BENCH, 0): {"spec-bench": 2.18},
    ("vicuna-33b/draft_model", SPEC_BENCH, 0): {"spec-bench": 2.01},
    ("vicuna-7b/ngram", SPEC_BENCH, 0): {"spec-bench": 1.73},
    ("vicuna-13b/ngram", SPEC_BENCH, 0): {"spec-bench": 1.68},
    ("vicuna-33b/ngram", SPEC_BENCH, 0): {"spec-bench": 1.55},
}
MEASURED: dict[str, Measured] = {
    f"{drafter}/{data}": Measured(len(shares), None, shares, source)
    for (drafter, source), by_data in _SHARES.items() for data, shares in by_data.items()} | {
    f"{drafter}/{data}": Measured(count, length, None, source)
    for (drafter, source, count), by_data in _LENGTHS.items() for data, length in by_data.items()}


def fault(name: str) -> str:
    """Return the fault of a name, or ""."""
    return "" if name in MEASURED else f"no measurement {name!r}{did_you_mean(name, MEASURED)}"


def method_of(name: str) -> str:
    """Return the method of drafting: of eagle3-redhat it is eagle3."""
    return name.split("/")[1].partition("-")[0]


def published(model: str, method: str, head: str) -> str | None:
    """Return the name of a measurement of a model with a drafter; None: there is none.

    One of MT-Bench is preferred.

    model : name in models/; stored in another format it is the same one. head : the drafter's repository on the hub,
    of which the organisation counts.
    """
    found = [(not name.endswith("/mt-bench"), name) for name in of_model(model, method)
             if head.lower().startswith(name.split("/")[1].partition("-")[2])]
    return min(found)[1] if found else None


def of_model(model: str, method: str) -> list[str]:
    """Return the names of measurements of a model, in any format, with a method."""
    own = {model, *(model.removesuffix(f"-{form}") for form in FORMATS)}
    return [name for name in MEASURED if name.split("/")[0] in own and method_of(name) == method]


def text_of(name: str) -> str:
    """Return figures and source of a measurement, a line each."""
    measured = MEASURED[name]
    shares = f"accepted shares, by position: {', '.join(map(str, measured.shares))}\n" if measured.shares else ""
    return (f"acceptance {name}\n{measured.mean_length:.4g} tokens a step with {_drafts(measured)}\n{shares}source: "
            f"{measured.source}")


def note(name: str, num_tokens: int) -> str:
    """Return a note for a run that takes over a measurement, with `num_tokens` drafts."""
    measured, why = MEASURED[name], ""
    if 0 < measured.num_tokens < num_tokens:
        why = "; the drafts behind these are taken to be accepted alike"
    elif measured.shares is None and measured.num_tokens != num_tokens:
        why = f"; all drafts are taken to be accepted alike, and here {num_tokens} are made"
    return (f"speculative: acceptance {name}, measured: {measured.mean_length:.4g} tokens a step with "
            f"{_drafts(measured)}{why} ({measured.source})")


def _drafts(measured: Measured) -> str:
    return number_of(measured.num_tokens, "draft") if measured.num_tokens else "more drafts than are ever accepted"
