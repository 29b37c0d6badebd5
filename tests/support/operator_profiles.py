"""Small databases of operator times with round numbers, in the columns of aiconfigurator."""

GEMM = "gemm_dtype,m,n,k,latency_ms"
CONTEXT = "batch_size,isl,num_heads,num_key_value_heads,head_dim,kv_cache_dtype,step,window_size,latency_ms"
GENERATION = CONTEXT
MOE = ("moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,latency_ms")
ALL_REDUCE = "allreduce_dtype,num_gpus,message_size,latency_ms,backend"
NCCL = "collective,nccl_dtype,num_gpus,message_size,latency_ms"
# Of support.small_models.DENSE: (n, k) of qkv, output, up and gate, down, head, router.
SITES = ((128, 64), (64, 64), (256, 64), (64, 128), (1024, 64), (8, 64), (64, 32))
MS = (1, 2, 4, 8, 16, 64, 1024, 32768)


def gemm_rows(dtype="bfloat16", sites=SITES, factor=1.0):
    """Return products of (1 us + m x n / 10^6 us): round numbers, linear in m."""
    return [f"{dtype},{m},{n},{k},{factor * (1e-3 + m * n * 1e-9):.9g}" for n, k in sites for m in MS]


def context_rows(heads=(4, 2, 16), batches=(1, 2, 4), lengths=(1, 16, 64, 256), window=0, dtype="bfloat16"):
    """Return prompts of (b s^2) ns: a straight line in the square root of time."""
    return [f"{b},{s},{heads[0]},{heads[1]},{heads[2]},{dtype},0,{window},{b * s * s * 1e-6:.9g}"
            for b in batches for s in lengths]


def generation_rows(heads=(4, 2, 16), batches=(1, 2, 4, 8), contexts=(2, 4, 8, 16, 1024), window=0, dtype="bfloat16"):
    """Return decodes of (1000 + b c) ns, c tokens in the cache after the step."""
    return [f"{b},1,{heads[0]},{heads[1]},{heads[2]},{dtype},{c - 1},{window},{1e-3 + b * c * 1e-6:.9g}"
            for b in batches for c in contexts]


def moe_rows(experts=(64, 32, 2, 8), ways=(1, 1), distribution="balanced", tokens=(1, 2, 4, 1024)):
    """Return experts of (1000 + 10 T) ns."""
    hidden, inter, topk, count = experts
    return [f"bfloat16,{t},{hidden},{inter},{topk},{count},{ways[0]},{ways[1]},{distribution},{1e-3 + t * 1e-5:.9g}"
            for t in tokens]


def all_reduce_rows(ranks=2, elements=(64, 128, 1024, 65536)):
    """Return all-reduces of (1 us + a ns an element), and 10 us more when launched by the host."""
    return [f"bfloat16,{ranks},{e},{extra + 1e-3 + e * 1e-6:.9g},{backend}" for e in elements
            for backend, extra in (("vllm_graph", 0), ("vllm_eager", 1e-2))]


def nccl_rows(kinds=("all_gather", "reduce_scatter"), ranks=2, elements=(64, 1 << 24)):
    """Return collectives of (2 us + a ns an element)."""
    return [f"{kind},half,{ranks},{e},{2e-3 + e * 1e-6:.9g}" for kind in kinds for e in elements]


def write_tables(folder, **changes):
    """Write all tables, `changes` in place of their rows (None: no such file); return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "gemm": (GEMM, gemm_rows()), "context_attention": (CONTEXT, context_rows()),
        "generation_attention": (GENERATION, generation_rows()), "moe": (MOE, moe_rows()),
        "custom_allreduce": (ALL_REDUCE, all_reduce_rows()), "nccl": (NCCL, nccl_rows())}
    for name, (header, rows) in tables.items():
        rows = changes.get(name, rows)
        if rows is not None:
            (folder / f"{name}_perf.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder
