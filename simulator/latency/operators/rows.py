"""Rows of tables of operators: selection of rows, values of missing columns, and formats."""
import numpy as np

GEMM_BITS = {"bfloat16": 16, "fp8": 8, "fp8_block": 8, "nvfp4": 4.5, "int4_wo": 4.5, "w4a16_mxfp4": 4.25,
             "w4a8_mxfp4_mxfp8": 4.25}
MATMUL_FORMATS = {"bfloat16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "int4_wo": "int4",
                  "w4a16_mxfp4": "int4", "w4a8_mxfp4_mxfp8": "fp8"}


def rows_where(columns: dict, kept: np.ndarray) -> dict:
    """Return the selected rows."""
    return {name: values[kept] for name, values in columns.items()}


def default(columns: dict, name: str, value) -> np.ndarray:
    """Return a column; if it is missing, all rows hold `value`."""
    return columns[name] if name in columns else np.full(len(columns["latency_ms"]), value)


def formats(columns: dict, name: str) -> np.ndarray:
    """Return a column of formats; if it is missing, the usual format."""
    return default(columns, name, "half" if name == "nccl_dtype" else "bfloat16")


def measured_ranges(columns: dict) -> dict[str, list[float]]:
    """Return the minimum and maximum of each axis."""
    return {name: [float(values.min()), float(values.max())] for name, values in sorted(columns.items())
            if values.dtype.kind == "f" and len(values) and not name.endswith(("_ms", "_us"))}
