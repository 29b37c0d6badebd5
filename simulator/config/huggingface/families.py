"""Rules of each model family on the Hugging Face hub for its config.json, used by `read_config`.

A family names the key that holds a fact, and its default; a plain value is a fact that no key holds. Defaults are
from the configuration classes, huggingface/transformers src/transformers/models/<family>/configuration_<family>.py,
or the model's own repository; structure is from the modeling file beside it, checked by exact parameter counts.
"""
from simulator.config.huggingface.rows_dense import DENSE
from simulator.config.huggingface.rows_experts import EXPERTS
from simulator.config.huggingface.rows_hybrid import HYBRID

FAMILIES = dict(sorted((DENSE | EXPERTS | HYBRID).items()))
