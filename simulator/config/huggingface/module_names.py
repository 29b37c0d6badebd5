"""Names of modules, as checkpoints' quantisation tables list them, and as vLLM matches them.

Sources: vLLM 0.33, vllm/model_executor/layers/quantization: utils/quant_utils.py (is_layer_skipped:
exact names, parts of names for AWQ), utils/config_utils.py (`re:` expressions), modelopt.py (globs, parts of names,
quantized_layers by shard, child and parent, `language_model.` on either side of `model.`), utils/gptq_utils.py
(dynamic).
"""
import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from functools import lru_cache

# Before "layers.0..." checkpoints, vLLM's classes and tables of quantisation have different names.
ROOTS = ("language_model.model.", "model.language_model.", "language_model.backbone.", "language_model.",
         "thinker.model.", "backbone.", "transformer.", "model.", "")
# Modules that vLLM runs as one product, and their shards.
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj"), "w13": ("w1", "w3"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"), "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
}
FUSED_OF = {shard: fused for fused, shards in FUSED.items() for shard in shards}
EXPERT_PROJECTIONS = ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
HEADS = ("lm_head", "embed_out", "output_layer")
EMBEDDINGS = ("embed_tokens", "embed_tokens_per_layer", "word_embeddings", "tok_embeddings", "wte")
ROUTERS = ("gate", "router", "shared_expert_gate", "wg", "e_score_correction_bias")
# Matrices of attention's indexers and compressors that vLLM holds in 16 bit beside quantised ones.
PLAIN = ("conv1d", "weights_proj", "indexers_proj", "A_log", "dt_bias")
END = ""                        # of a name in a tree of names: no component is empty
TOWERS = frozenset(("visual", "vision_tower", "vision_model", "vit_large_projector"))


@lru_cache(maxsize=2**15)
def bare(module: str) -> str:
    """Return a module's name from "layers." on, without `.weight`."""
    name = module.removesuffix(".weight")
    return next(name[len(root):] for root in ROOTS if name.startswith(root))


@lru_cache(maxsize=2**15)
def kind_of(module: str) -> str:
    """Return the kind of a module.

    embedding, head, expert, router, linear, or plain, which is never quantised.
    """
    parts = bare(module).split(".")
    last = parts[-1]
    if last in HEADS or parts == ["head"]:
        return "head"
    if last.startswith("embedding") or last in EMBEDDINGS or parts == ["embed"]:
        return "embedding"
    if "experts" in parts:
        return "expert"
    if last in ROUTERS or "router" in parts:
        return "router"
    if last in PLAIN or last.endswith("norm") or "compressor" in parts or last == "bias":
        return "plain"
    return "linear"


@lru_cache(maxsize=2**15)
def is_tower(module: str) -> bool:
    """Return whether a module belongs to a tower, which ModelOpt never quantises."""
    return not TOWERS.isdisjoint(module.split("."))


def aliases(module: str) -> Iterator[str]:
    """Yield the names under which lists have a module: its own, and its product's."""
    yield module
    parent, _, last = module.rpartition(".")
    if last in FUSED_OF:
        yield f"{parent}.{FUSED_OF[last]}" if parent else FUSED_OF[last]


class Patterns:
    """A list of modules: names and parts of names, globs, and expressions after "re:".

    anywhere : any text inside a name counts, also across dots, as AWQ has it.
    """

    def __init__(self, patterns: Iterable[str], anywhere: bool = False):
        patterns = list(patterns)
        texts = [each for each in patterns if each.startswith("re:")]
        globs = [each for each in patterns if re.search(r"[*?\[]", each) and each not in texts]
        trees = [each for each in globs if re.fullmatch(r"[^*?\[]*\*", each)]       # one "*", at the end
        self._names = {bare(each) for each in patterns} - {bare(each) for each in globs + texts}
        self._tree = _tree(self._names)
        self._texts = tuple(self._names) if anywhere else ()
        self._starts = {bare(each)[:-1] for each in trees}
        self._lengths = sorted({len(start) for start in self._starts})
        self._expressions = [re.compile(translate(each + tail)) for each in globs if each not in trees
                             for tail in ("", ".*")] + [re.compile(each[3:]) for each in texts]
        self._roots = roots_in(globs + texts)
        self._is_numbered = any(map(re.compile(r"\d").search, globs + texts + list(self._texts)))

    def __bool__(self) -> bool:
        return bool(self._names or self._starts or self._expressions)

    def has(self, module: str) -> bool:
        """Return whether the list has a module, or a parent of it."""
        name = bare(module)
        if self._has(name):
            return True
        parent, dot, last = name.rpartition(".")
        return last in FUSED_OF and self._has(parent + dot + FUSED_OF[last])

    def of_layer(self, number: int) -> tuple | None:
        """Return a value that is equal for layers with equal modules; None: unknown."""
        layers = self._tree.get("layers", {})
        return None if self._is_numbered else (layers.get(str(number)), self._tree.get(str(number)))

    def _has(self, name: str) -> bool:
        if self._has_part(name):
            return True
        unit = re.sub(r"\.experts\..*", ".experts", name) if self._texts else ""      # vLLM asks for experts at once
        return bool((self._starts and any(name[:length] in self._starts for length in self._lengths))
                    or (unit and any(text in unit for text in self._texts))
                    or (self._expressions and any(each.match(root + name) for root in self._roots
                                                 for each in self._expressions)))

    def _has_part(self, name: str) -> bool:
        """Return whether the list has the name or a parent, from any component on."""
        parts = name.split(".")
        for first, part in enumerate(parts):
            if part in self._tree:
                node = self._tree
                for each in parts[first:]:
                    node = node.get(each)
                    if node is None:
                        break
                    if END in node:
                        return True
        return False


def _tree(names: Iterable[str]) -> dict:
    """Return names by their components, a dict within a dict; END is in that of a whole name."""
    tree: dict = {}
    for name in names:
        node = tree
        for part in name.split("."):
            node = node.setdefault(part, {})
        node[END] = END
    return tree


def roots_in(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the roots to try: the usual ones, and those with a word of an expression."""
    text = " ".join(patterns)
    return tuple(root for root in ROOTS if root in ("model.", "")
                 or any(word in text for word in root.split(".") if word not in ("model", "")))


def starts_of(name: str) -> Iterator[str]:
    """Yield the name, and the names of its parents."""
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def without_equal_experts(rows: dict) -> dict:
    """Return the rows without experts that are as the first one of their layer.

    A table with rows for all experts of a layer at once stays as it is.
    """
    found, get, part = {}, rows.get, ".experts."
    width = len(part)
    for name, row in rows.items():
        at = name.find(part)
        if at >= 0:
            at += width                         # of the expert's number
            if name[at:at + 1] not in "0*" and get(f"{name[:at]}0{name[name.find('.', at):]}") == row:
                continue
        elif name.endswith(".experts"):
            return rows
        found[name] = row
    return found


class Rows:
    """A table by names of modules, of their parents or children: `quantized_layers`.

    rows : may leave out experts that `without_equal_experts` leaves out.
    """

    def __init__(self, rows: dict):
        self._rows = {bare(name): value for name, value in rows.items()}
        self._parents: dict = {}
        self._layers: dict[str, dict] = {}          # number -> rows, by the rest of their names
        for name, value in self._rows.items():
            root, _, rest = name.partition(".")
            if root == "layers":
                number, _, rest = rest.partition(".")
                self._layers.setdefault(number, {})[rest] = value
            for start in starts_of(name):
                if start != name:
                    self._parents.setdefault(start, value)

    def of_layer(self, number: int) -> dict:
        """Return a value that is equal for layers with equal rows."""
        return self._layers.get(str(number), {})

    def get(self, module: str):
        """Return the value of a module: of its row, its product's, its parent's; or None."""
        name = bare(module)
        if name in self._rows:
            return self._rows[name]
        rows, start = self._rows, name
        parent, dot, last = name.rpartition(".")
        found = rows.get(parent + dot + FUSED_OF[last]) if last in FUSED_OF else None
        while found is None and start:
            start = start.rpartition(".")[0]
            found = rows.get(start)
        if found is None and "experts" in name.split("."):
            found = self._of_experts(name)
        return found

    def _of_experts(self, name: str):
        # Experts of a layer are alike: tables are often cut to the first, and Step-3.5's name "moe.gate_proj" for all.
        head, _, tail = name.partition(".experts")
        projection = re.sub(r"^\.\d+", "", tail)
        names = [f"{head}.experts.0{projection}", f"{head}.experts.*{projection}", f"{head}{projection}"]
        if not projection:
            names += [f"{head}.{each}" for each in EXPERT_PROJECTIONS]
        found = next((self._rows[each] for each in names if each in self._rows), None)
        return self._parents.get(f"{head}.experts") if found is None else found
