"""Default times of vLLM's front end and host, in microseconds.

Sources, all beside accelerators:

- The front end, from a client's request to the queue of the engine and from the engine's output to the client, without
  tokens: medians 3.0 to 3.7 ms and 1.7 to 1.9 ms over 134 requests to an idle vLLM 0.32.0 server on loopback.
- A prompt token: 5 to 12 us in tokenizers 0.23.3 on one core of a busy EPYC (two public vocabularies, text and random
  tokens, prompts of 1,024 and 8,192); 6 us is taken.
- An iteration, where scheduling is synchronous: intercept and slope, over sequences, of the time that servers of
  Qwen3-32B (vLLM 0.12, TP 2, 4 and 8 on H100, 30 closed loops of 1,024-token prompts and 512 or 1,024 outputs) took
  beyond the sum of measured kernels: 0.57 ms and 49 us. The scheduler's own part, that server on loopback: 0.24 ms and
  18 us a sequence. Asynchronous scheduling overlaps it with the accelerator.

SGLang and TensorRT-LLM have front ends of the same parts (FastAPI under uvicorn, Hugging Face's tokenizers, ZeroMQ to
the engine and back: sglang 0.5.23, srt/entrypoints/http_server.py, managers/tokenizer_manager.py; TensorRT-LLM,
serve/openai_server.py, executor/ipc.py). Without an accelerator neither was measured: vLLM's is taken.
"""
FRONT_ENDS_ALIKE = ("sglang", "tensorrt_llm")       # schedulers
FRONT_END_US = {"queue_base_us": 3300.0, "queue_per_prompt_token_us": 6.0, "output_token_us": 1800.0}
SEEN_FRONT_END_MS = (5, 16)                         # of a request, see domain/host.py: no default
SYNCHRONOUS_US = {"iteration_us": 600.0, "sequence_us": 48.0}


def vllm_host_us(is_asynchronous: bool) -> dict[str, float]:
    """Return the keys of [latency.host] that vLLM's host determines."""
    return FRONT_END_US if is_asynchronous else FRONT_END_US | SYNCHRONOUS_US
