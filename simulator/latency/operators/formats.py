"""Names of formats of weights in tables, and their scales."""
GEMM_FORMATS = {"float32": "bfloat16", "float16": "bfloat16", "int8": "fp8", "int4": "int4_wo", "fp4": "nvfp4"}
SCALED_TOKENS = ("compressed-tensors", "fbgemm_fp8")    # methods of quantisation, see `scales_tokens`


def gemm_format(dtype: str, quantization) -> str:
    """Return the name that tables use for products with weights stored as `dtype`."""
    if dtype == "fp8" and quantization is not None and quantization.group_size:
        return "fp8_block"
    if dtype == "fp4" and quantization is not None and quantization.method == "mxfp4":
        return "w4a16_mxfp4"
    return GEMM_FORMATS.get(dtype, dtype)


def scales_tokens(quantization) -> bool:
    """Return whether activations of fp8 products have a scale a token.

    So for fp8 of compressed-tensors, usually dynamic (FP8_DYNAMIC of llm-compressor), and of fbgemm_fp8.
    """
    return quantization is not None and not quantization.group_size and quantization.method in SCALED_TOKENS
