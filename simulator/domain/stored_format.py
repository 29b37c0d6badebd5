"""How a checkpoint stores one weight matrix: the format of its elements, and the scales beside them."""
from msgspec.structs import replace

from simulator.domain.dtypes import DTYPE_BITS, WeightDtype
from simulator.domain.layers.base import Count, Part


class Format(Part):
    """The format of a quantised matrix of r outputs and c inputs.

    Blocks of `rows` x `columns` weights share a scale; 0: all rows or columns of the matrix. Sources: vLLM's
    model_executor/layers/quantization, one module a method, for the tensors that each method loads.
    """

    method: str                     # as the checkpoint names it: fp8, nvfp4, mxfp8, awq, ...
    weight_dtype: WeightDtype
    rows: Count = 1
    columns: Count = 0
    scale_bits: Count = 0           # of a block's scale, and of its zero point
    matrix_bytes: Count = 0         # scales of a whole matrix, beside those of the blocks
    multiplied_as: WeightDtype | None = None    # of products, where activations differ; None: as stored

    def stored_bytes(self, rows: int, columns: int) -> float:
        """Return the bytes of a matrix in the checkpoint, scales included.

        rows : its outputs. columns : its inputs.
        """
        blocks = -(-rows // (self.rows or rows)) * -(-columns // (self.columns or columns))
        return (rows * columns * DTYPE_BITS[self.weight_dtype] + blocks * self.scale_bits) / 8 + self.matrix_bytes

    @property
    def group_size(self) -> int:
        """Weights that share a scale; 0: whole rows or more, too many to count."""
        return self.rows * self.columns

    @property
    def is_block(self) -> bool:
        """Whether a scale covers several rows, which no rank may cut."""
        return self.rows > 1 and self.columns > 1


FP16_BITS, FP32_BITS = 16, 32


def per_tensor(method: str, dtype: str = "fp8") -> Format:
    """Return the format with one scale a matrix, and one of its inputs; both float32."""
    return Format(method=method, weight_dtype=dtype, rows=0, scale_bits=2 * FP32_BITS)


def per_row(method: str, dtype: str = "fp8", scale_bits: int = FP32_BITS) -> Format:
    """Return the format with a scale for each output."""
    return Format(method=method, weight_dtype=dtype, scale_bits=scale_bits)


def in_blocks(method: str, rows: int, columns: int, scale_bits: int = FP32_BITS) -> Format:
    """Return fp8 with a scale a block, as in DeepSeek-V3 (arXiv 2412.19437, 3.3.2)."""
    return Format(method=method, weight_dtype="fp8", rows=rows, columns=columns, scale_bits=scale_bits)


def in_groups(method: str, dtype: str, group: int, scale_bits: int) -> Format:
    """Return a format with a scale for `group` neighbouring inputs of an output."""
    return Format(method=method, weight_dtype=dtype, columns=group, scale_bits=scale_bits)


def nvfp4(method: str = "nvfp4", group: int = 16) -> Format:
    """Return NVFP4: 16 weights an e4m3 scale, float32 scales of matrix and inputs."""
    return Format(method=method, weight_dtype="fp4", columns=group, scale_bits=8, matrix_bytes=8)


def nvfp4_weights(method: str, group: int = 16) -> Format:
    """Return NVFP4 of weights alone, which kernels unpack to 16 bit.

    So they do with int4, by which tables and laws price it. Source: vLLM 0.33, quantization/modelopt.py (W4A16_NVFP4),
    compressed_tensors_w4a16_nvfp4.py: Marlin's kernels.
    """
    return Format(method=method, weight_dtype="int4", columns=group, scale_bits=8, matrix_bytes=8)


def by_fp8(stored: Format) -> Format:
    """Return a format of 4 bits with activations, and so products, in fp8."""
    return replace(stored, multiplied_as="fp8")


def microscaled(method: str, dtype: str) -> Format:
    """Return MXFP4 or MXFP8: 32 weights an e8m0 scale (OCP Microscaling 1.0)."""
    return in_groups(method, dtype, 32, 8)
