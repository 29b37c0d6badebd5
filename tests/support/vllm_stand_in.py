"""Modules in place of vLLM: functions with its signatures (0.11 to 0.27), on the processor, by PyTorch.

Each checks shapes and formats as vLLM's kernels need them, and notes its name in `calls`.
"""
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

VERSION = "0.27.1+stand.in"
FUSED_MOE = "vllm.model_executor.layers.fused_moe"
KEPT = []                       # libraries, which end with their object


def install(monkeypatch, torch, fa_version=3, without=()):
    """Put the modules into sys.modules; return the list of calls. `without`: names of functions that are not there."""
    calls = []
    functions = {
        "vllm._custom_ops": _ops(torch, calls), "vllm.vllm_flash_attn": _attention(torch, calls),
        "vllm.v1.attention.backends.fa_utils": {"get_flash_attn_version": lambda **given: fa_version},
        f"{FUSED_MOE}.fused_moe": _experts(torch, calls),
        f"{FUSED_MOE}.config": {"fp8_w8a8_moe_quant_config": _moe_config}}
    names = {"vllm", *functions}
    for name in functions:
        names |= {name.rsplit(".", i)[0] for i in range(1, name.count(".") + 1)}
    for name in names:
        module = ModuleType(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None, is_package=True), []
        vars(module).update({key: each for key, each in functions.get(name, {}).items() if key not in without})
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["vllm"].__version__ = VERSION
    if not hasattr(torch.ops._C, "silu_and_mul"):
        _register(torch)
    return calls


def _register(torch):
    library = torch.library.Library("_C", "FRAGMENT")
    library.define("silu_and_mul(Tensor(a!) result, Tensor input) -> ()")

    def silu_and_mul(result, input):
        width = result.shape[-1]
        assert input.shape == (*result.shape[:-1], 2 * width)
        result.copy_(torch.nn.functional.silu(input[..., :width]) * input[..., width:])
    library.impl("silu_and_mul", silu_and_mul, "CPU")
    KEPT.append(library)


def _ops(torch, calls):
    def rms_norm(out, input, weight, epsilon):
        calls.append("rms_norm")
        assert out.shape == input.shape and input.is_contiguous() and weight.shape == input.shape[-1:]
        out.copy_(torch.nn.functional.rms_norm(input, weight.shape, weight, epsilon))

    def fused_add_rms_norm(input, residual, weight, epsilon):
        calls.append("fused_add_rms_norm")
        residual.add_(input)
        rms_norm(input, residual, weight, epsilon)

    def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox, rope_dim_offset=0, inverse=False):
        calls.append("rotary_embedding")
        assert positions.dtype == torch.int64 and positions.max() < len(cos_sin_cache)
        assert cos_sin_cache.shape[1] == head_size and query.shape[1] % head_size == key.shape[1] % head_size == 0
        assert cos_sin_cache.dtype == query.dtype == key.dtype

    def reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
        calls.append("reshape_and_cache_flash")
        assert slot_mapping.dtype == torch.int64 and len(slot_mapping) == len(key) == len(value)
        assert len(slot_mapping.unique()) == len(slot_mapping) and kv_cache_dtype == "auto"
        for cache, values in ((key_cache, key), (value_cache, value)):
            cache.view(-1, *cache.shape[2:])[slot_mapping] = values

    def cutlass_scaled_mm(a, b, scale_a, scale_b, out_dtype, bias=None):
        calls.append("cutlass_scaled_mm")
        assert a.dtype == b.dtype == torch.float8_e4m3fn and b.stride(0) == 1
        assert b.shape[0] % 16 == 0 and b.shape[1] % 16 == 0
        assert scale_a.numel() in (1, a.shape[0]) and scale_b.numel() in (1, b.shape[1])
        return ((a.float() * scale_a) @ (b.float() * scale_b)).to(out_dtype)

    def scaled_fp8_quant(input, scale=None, num_token_padding=None, scale_ub=None, use_per_token_if_dynamic=False,
                         output=None):
        calls.append("scaled_fp8_quant")
        assert input.ndim == 2 and scale is None and use_per_token_if_dynamic
        scale = input.float().abs().amax(-1, keepdim=True) / 448.0
        return (input / scale).to(torch.float8_e4m3fn), scale

    return {each.__name__: each for each in (rms_norm, fused_add_rms_norm, rotary_embedding, reshape_and_cache_flash,
                                             cutlass_scaled_mm, scaled_fp8_quant)}


def _attention(torch, calls):
    def flash_attn_varlen_func(
            q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None, q_v=None,
            dropout_p=0.0, softmax_scale=None, causal=False, window_size=None, softcap=0.0, alibi_slopes=None,
            deterministic=False, return_attn_probs=False, block_table=None, return_softmax_lse=False, out=None,
            scheduler_metadata=None, q_descale=None, k_descale=None, v_descale=None, num_splits=0, output_scale=None,
            fa_version=2, s_aux=None):
        calls.append(f"flash_attn_varlen_func {fa_version} {tuple(window_size)}")
        assert all(each.dtype == torch.int32 for each in (cu_seqlens_q, seqused_k, block_table))
        assert sorted(block_table.flatten().tolist()) == list(range(len(k)))        # each block once
        assert block_table.shape[1] == -(-max_seqlen_k // k.shape[1])
        assert cu_seqlens_q[-1] == len(q) and len(cu_seqlens_q) == len(seqused_k) + 1
        if q.dtype == torch.float8_e4m3fn:
            assert fa_version == 3 and k_descale.shape == (len(seqused_k), k.shape[2])
        groups = q.shape[1] // k.shape[2]
        for i, kept in enumerate(seqused_k.tolist()):
            rows = slice(int(cu_seqlens_q[i]), int(cu_seqlens_q[i + 1]))
            keys, values = (each[block_table[i].long()].flatten(0, 1)[:kept].float().repeat_interleave(groups, 1)
                            for each in (k, v))
            last = torch.arange(kept)[None, :]
            first = kept - (rows.stop - rows.start) + torch.arange(rows.stop - rows.start)[:, None]
            mask = last <= first
            if window_size[0] >= 0:
                mask &= last >= first - window_size[0]
            out[rows] = torch.nn.functional.scaled_dot_product_attention(
                q[rows].float().transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), mask,
                scale=softmax_scale).transpose(0, 1).to(out.dtype)
        return out

    return {"flash_attn_varlen_func": flash_attn_varlen_func}


def _moe_config(w1_scale, w2_scale, a1_scale=None, a2_scale=None, per_act_token_quant=False, block_shape=None):
    return w1_scale, w2_scale


def _experts(torch, calls):
    def fused_experts(hidden_states, w1, w2, topk_weights, topk_ids, inplace=False, activation="silu",
                      apply_router_weight_on_input=False, global_num_experts=-1, expert_map=None, quant_config=None):
        calls.append(f"fused_experts {w1.dtype}".replace("torch.", ""))
        assert topk_ids.dtype == torch.int32 and topk_ids.max() < global_num_experts
        assert (w1.dtype == torch.bfloat16) == (quant_config is None)
        assert all(len(row.unique()) == len(row) for row in topk_ids)               # a token chooses an expert once
        places = topk_ids if expert_map is None else expert_map[topk_ids.long()]
        out = torch.zeros_like(hidden_states)
        for token, choice in (places >= 0).nonzero().tolist():
            expert = int(places[token, choice])
            gate, value = (hidden_states[token] @ w1[expert].to(out.dtype).t()).chunk(2)
            out[token] += topk_weights[token, choice].to(out.dtype) * (
                (torch.nn.functional.silu(gate) * value) @ w2[expert].to(out.dtype).t())
        return out

    return {"fused_experts": fused_experts}
