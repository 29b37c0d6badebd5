"""SGLang's attention backend and page size. Source: sglang 0.5.23, srt/arg_groups/overrides.py."""
from simulator.domain.server_defaults.sglang import PAGES, Shapes, backend_of
from simulator.server_line.facts.answers import Work
from simulator.server_line.facts.checkpoints import Checkpoint

DEEPSEEK = ("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration")


def resolve_attention(work: Work, checkpoint: Checkpoint) -> None:
    """Set the backend, if none is given, and the pages that it takes."""
    if work.get("attention_backend") is None:
        work.set("attention_backend", _default(work, checkpoint), "engine",
                 f"compute capability {work.question.card.major}.x")
    backend = work.get("attention_backend")
    if checkpoint.is_sparse:
        work.set("page_size", 64, "engine", "sparse latent attention")
        if work.get("kv_cache_dtype") == "auto":
            work.set("kv_cache_dtype", "fp8_e4m3" if work.question.card.major == 10 else "bfloat16", "engine",
                     "sparse latent attention")
    if backend == "trtllm_mla" and checkpoint.architecture == "DeepseekV3ForCausalLM" and (
            work.flag("cuda_graph_backend_prefill") is None and not work.get("disable_cuda_graph")):
        work.set("cuda_graph_config.prefill.backend", "disabled", "engine", "DeepSeek-V3 with trtllm_mla")
    page = work.get("page_size")
    if backend in PAGES and page not in PAGES[backend][1]:
        page = PAGES[backend][0]
        work.set("page_size", page, "engine", f"{backend} takes pages of {page}")
    if page is None:
        work.set("page_size", 1)


def _default(work: Work, checkpoint: Checkpoint) -> str:
    return backend_of(work.question.card, Shapes(
        is_sparse=checkpoint.is_sparse, is_latent=checkpoint.is_latent,
        is_gpt_oss=checkpoint.architecture == "GptOssForCausalLM", is_deepseek_v3=checkpoint.architecture in DEEPSEEK))
