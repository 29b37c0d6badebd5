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


GDN = ("kernel_source,phase,batch_size,seq_len,d_conv,num_k_heads,head_k_dim,num_v_heads,head_v_dim,latency_ms")
MLA = "mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,step,latency_ms"


def gdn_rows(batches=(1, 2, 4), lengths=(1, 16, 1024)):
    """Return recurrences of support.small_models.RECURRENT: kernels of (b s) and 1000 ns; of 500 + b and 1000 ns."""
    heads = "4,2,16,4,16"
    rows = [f"conv,context,{b},{s},{heads},{b * s * 1e-6:.9g}" for b in batches for s in lengths]
    rows += [f"rule,context,{b},{s},{heads},0.001" for b in batches for s in lengths]
    rows += [f"conv_update,generation,{b},1,{heads},{5e-4 + b * 1e-6:.9g}" for b in batches]
    return rows + [f"rule_update,generation,{b},1,{heads},0.001" for b in batches]


def mla_rows(phase, batches=(1, 2, 4), lengths=(1, 15, 63)):
    """Return latent attention of 4 heads: (b s^2) ns of prompts, (1000 + b c) ns of decodes."""
    if phase == "context":
        return [f"bfloat16,bfloat16,4,{b},{s},0,{b * s * s * 1e-6:.9g}" for b in batches for s in lengths]
    return [f"bfloat16,bfloat16,4,{b},1,{s},{1e-3 + b * (s + 1) * 1e-6:.9g}" for b in batches for s in lengths]


def write_table(folder, name, header, rows):
    """Write one table beside others; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_perf.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


UNEQUAL = ("0,n<=4,sr<=40%,kvB<=1k,kp=0,0.5,4", "0,n<=4,sr>70%,kvB<=1k,kp=0,-0.125,4",
           "0,n<=2,sr<=70%,kvB<=1k,kp=0,0.25,4",
           "128,n<=4,sr<=40%,kvB<=1k,kp=0,0.75,3", "256,n<=4,sr<=40%,kvB<=1k,kp<=512,0.0,2",
           "16,n<=4,sr<=40%,kvB<=1k,kp=0,99.0,90")       # of prompts too short to count


def write_layers(folder, degree=1, experts=False, unequal=()):
    """Write a profile of DENSE in LLMServingSim's files: each layer takes its rows in us; return its folder."""
    folder = folder / f"tp{degree}"
    folder.mkdir(parents=True)
    tokens = (1, 2, 4, 8, 16)
    dense = [f"{layer},{t},{factor * t}" for factor, layer in enumerate(
        ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"), start=1) for t in tokens]
    attention = [f"0,0,{n},{c},{n * c / 100}" for n in (1, 2, 4) for c in (16, 32, 64)]
    attention += [f"{s},{x},0,0,{(s + x) ** 2 / 100}" for s in (16, 32, 64) for x in (0, 16)]
    attention += ["16,0,2,16,9.0"]
    files = {"dense": ("layer,tokens,time_us", dense),
             "per_sequence": ("layer,sequences,time_us", [f"{layer},{t},{5 * t}" for layer in ("lm_head", "sampler")
                                                          for t in tokens]),
             "attention": ("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", attention)}
    if experts:
        # 8 experts, 2 chosen: 2 for one token, 8 (1 - 0.75^4) = 5.5 for four
        files["moe"] = "tokens,activated_experts,time_us", ["1,2,10", "1,8,99", "4,2,99", "4,6,20", "4,8,99"]
    if unequal:
        files["skew_fit"] = "pc,n_label,skew_rate_label,kv_big_label,kp_label,alpha,n_samples", unequal
    for name, (header, rows) in files.items():
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder
