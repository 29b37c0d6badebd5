"""Norms that one kernel computes with the all-reduce before them.

The kernel reduces, adds the residual and norms; it is TensorRT-LLM's, which vLLM runs from FlashInfer. Its time is that
of TensorRT-LLM's all-reduce in the tables, and of the norm's memory traffic without a launch: 4.1 to 5.2 us of 1 to 8
tokens by the authors of a later one, at TP 4 and 8 on Blackwell (flashinfer-ai/flashinfer pull request 5178; the table
of B200 has 4.8 to 5.6 us for the all-reduce).

- TensorRT-LLM fuses on all cards (AllReduceFusionOp.RESIDUAL_RMS_NORM, its PyTorch models);
- vLLM fuses on Blackwell servers from 0.16 on, up to MOST_BYTES (vllm/config/vllm.py, enable_allreduce_rms_fusion;
  vllm/compilation/passes/fusion/allreduce_rms_fusion.py in 0.32.0), before 0.21 without data and pipeline parallelism
  (pull request 41458). On Hopper it fuses, too, and that takes as long as two kernels: 10 us either way for 32 tokens
  at TP 2 (pull request 22086); there the tables' two kernels are kept.
"""
import numpy as np

from simulator.latency.operators.versions import is_before, is_vllm

# By compute capability, for ranks: bytes of the largest message.
MIB = float(1 << 20)
MOST_BYTES = {"Blackwell": {2: 64 * MIB, 4: 32 * MIB, 8: MIB},
              "Blackwell Ultra": {2: 64 * MIB, 4: 64 * MIB, 8: 4 * MIB}}
TABLE = "trtllm_allreduce"      # TensorRT-LLM's part of custom_allreduce, see files.py


def largest_message(deployment, parameters) -> float:
    """Return the bytes up to which an all-reduce norms its sum; 0: none does.

    parameters : OperatorsParameters
    """
    if parameters.framework == "trtllm":
        return np.inf
    ways, card = deployment.parallelism, deployment.accelerator
    is_alone = ways.data_parallel == 1 and ways.pipeline_parallel == 1
    if (not is_vllm(parameters) or not card.scaleup_bytes_per_s or is_before(parameters, "0.16")
            or (is_before(parameters, "0.21") and not is_alone)):
        return 0.0
    return MOST_BYTES.get(card.architecture, {}).get(ways.tensor_parallel, 0.0)
