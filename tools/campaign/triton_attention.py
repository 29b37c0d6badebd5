"""Causal attention in Triton: any number of new tokens per sequence, keys of a sequence split over programs.

The query heads of one KV head are rows of one tile, token by token: one new token of 8 heads fills 8 of 16 rows.
Partial results of splits are merged by their log-sum-exp (Flash-Decoding, https://pytorch.org/blog/flash-decoding).
"""
import triton
import triton.language as tl

ROWS, KEYS = 16, 32                 # the smallest tile: tl.dot requires 16
MOST_SPLITS = 32
PROGRAMS_A_PROCESSOR = 2


@triton.jit
def _attend(q, keys, values, out, sums, starts, kv_starts, scale, num_tokens,
            q_token, q_head, key_token, key_head, value_token, value_head,
            heads: tl.constexpr, group: tl.constexpr, dim: tl.constexpr, rotary_dim: tl.constexpr,
            tile_rows: tl.constexpr, tile_keys: tl.constexpr):
    tile, split, num_splits = tl.program_id(0), tl.program_id(2), tl.num_programs(2)
    kv_heads: tl.constexpr = heads // group
    sequence, kv_head = tl.program_id(1) // kv_heads, tl.program_id(1) % kv_heads
    first = tl.load(starts + sequence).to(tl.int64)
    queries = tl.load(starts + sequence + 1) - first
    first_key = tl.load(kv_starts + sequence).to(tl.int64)
    context = (tl.load(kv_starts + sequence + 1) - first_key).to(tl.int32)
    if tile * tile_rows < queries * group:
        rows = tile * tile_rows + tl.arange(0, tile_rows)
        token, head = rows // group, kv_head * group + rows % group
        is_row = token < queries
        last_key = context - queries + token                    # the last key that a row attends to
        row_at = q + (first + token)[:, None] * q_token + head[:, None] * q_head
        largest = tl.full([tile_rows], -1e30, tl.float32)
        total = tl.zeros([tile_rows], tl.float32)
        result = tl.zeros([tile_rows, dim], tl.float32)
        tiles = tl.cdiv(tl.cdiv(context, tile_keys), num_splits)
        begin = split * tiles * tile_keys
        seen = context - queries + tl.minimum((tile + 1) * tile_rows - 1, queries * group - 1) // group + 1
        end = tl.minimum(tl.minimum(begin + tiles * tile_keys, context), seen)
        for place in range(begin, end, tile_keys):
            key = place + tl.arange(0, tile_keys)
            key_at = keys + (first_key + key)[:, None] * key_token + kv_head * key_head
            value_at = values + (first_key + key)[:, None] * value_token + kv_head * value_head
            is_seen = key[None, :] <= last_key[:, None]
            largest, total, result = _fold(row_at, key_at, value_at, is_row, key < end, is_seen, scale,
                                           largest, total, result, dim, rotary_dim)
        place_of_row = (split * num_tokens + first + token) * heads + head
        divisor = tl.where(total > 0, total, 1.0)
        tl.store(out + place_of_row[:, None] * dim + tl.arange(0, dim)[None, :], result / divisor[:, None],
                 mask=is_row[:, None])
        tl.store(sums + place_of_row, tl.where(total > 0, largest + tl.log(divisor), -1e30), mask=is_row)


@triton.jit
def _fold(row_at, key_at, value_at, is_row, is_key, is_seen, scale, largest, total, result,
          dim: tl.constexpr, rotary_dim: tl.constexpr):
    """Return the running maximum, sum and result of rows after one more tile of keys."""
    dims = tl.arange(0, dim)
    query = tl.load(row_at + dims[None, :], mask=is_row[:, None], other=0.0)        # from the cache, except first
    key = tl.load(key_at + dims[None, :], mask=is_key[:, None], other=0.0)
    scores = tl.dot(query, tl.trans(key))
    if rotary_dim > 0:
        rotary_dims = dim + tl.arange(0, rotary_dim)
        rotary_query = tl.load(row_at + rotary_dims[None, :], mask=is_row[:, None], other=0.0)
        rotary_key = tl.load(key_at + rotary_dims[None, :], mask=is_key[:, None], other=0.0)
        scores += tl.dot(rotary_query, tl.trans(rotary_key))
    is_seen = is_seen & is_key[None, :]
    scores = tl.where(is_seen, scores * scale, -1e30)
    larger = tl.maximum(largest, tl.max(scores, 1))
    weight = tl.where(is_seen, tl.exp(scores - larger[:, None]), 0.0)
    fading = tl.exp(largest - larger)
    value = tl.load(value_at + dims[None, :], mask=is_key[:, None], other=0.0)
    result = result * fading[:, None] + tl.dot(weight.to(value.dtype), value)
    return larger, total * fading + tl.sum(weight, 1), result


@triton.jit
def _merge(parts, sums, out, num_rows, num_splits, dim: tl.constexpr):
    row, dims = tl.program_id(0).to(tl.int64), tl.arange(0, dim)
    largest = -1e30
    for split in range(num_splits):
        largest = tl.maximum(largest, tl.load(sums + split * num_rows + row))
    total = 0.0
    result = tl.zeros([dim], tl.float32)
    for split in range(num_splits):
        place = split * num_rows + row
        weight = tl.exp(tl.load(sums + place) - largest)
        result += weight * tl.load(parts + place * dim + dims)
        total += weight
    tl.store(out + row * dim + dims, result / total)


def tile_of(queries: int, group: int, is_latent: bool) -> tuple[int, int]:
    """Return the rows and the keys of a tile."""
    rows = ROWS
    while rows < min(queries * group, 64 if is_latent else 128):
        rows *= 2
    return rows, KEYS if is_latent or rows <= ROWS * 2 else 2 * KEYS


def num_splits(torch, device: str, shape, queries: list[int], contexts: list[int]) -> int:
    """Return the number of programs that share the keys of a sequence, so that all multiprocessors have work."""
    group = shape.heads // shape.kv_heads
    rows, keys = tile_of(max(queries), group, bool(shape.rotary_dim))
    programs = sum(-(-count * group // rows) for count in queries) * shape.kv_heads
    processors = torch.cuda.get_device_properties(0).multi_processor_count if device == "cuda" else 4
    wanted = -(-PROGRAMS_A_PROCESSOR * processors // programs)
    return max(min(wanted, MOST_SPLITS, max(contexts) // (4 * keys)), 1)


def attend(torch, q, keys, values, starts, kv_starts, longest: int, splits: int):
    """Return the attention of new tokens.

    Parameters
    ----------
    q : [new tokens, heads, head_dim + rotary_dim]
    keys, values : [context tokens, KV heads, as q], [.., head_dim]; the last axis contiguous.
    starts, kv_starts : [sequences + 1] int32: where the tokens of each sequence begin in q, and in keys.
    longest : the most new tokens of a sequence.
    """
    num_tokens, heads, width = q.shape
    kv_heads, dim = values.shape[1], values.shape[2]
    group = heads // kv_heads
    rows, tile_keys = tile_of(longest, group, width > dim)
    out_dtype = q.dtype if splits == 1 else torch.float32
    parts = torch.empty((splits, num_tokens, heads, dim), dtype=out_dtype, device=q.device)
    sums = torch.empty((splits, num_tokens, heads), dtype=torch.float32, device=q.device)
    grid = (-(-longest * group // rows), (len(starts) - 1) * kv_heads, splits)
    _attend[grid](q, keys, values, parts, sums, starts, kv_starts, width ** -0.5, num_tokens,
                  q.stride(0), q.stride(1), keys.stride(0), keys.stride(1), values.stride(0), values.stride(1),
                  heads=heads, group=group, dim=dim, rotary_dim=width - dim, tile_rows=rows, tile_keys=tile_keys,
                  num_warps=8 if width > dim else 4, num_stages=1 if width > dim else 2)
    if splits == 1:
        return parts[0]
    out = torch.empty((num_tokens, heads, dim), dtype=q.dtype, device=q.device)
    _merge[(num_tokens * heads,)](parts, sums, out, num_tokens * heads, splits, dim=dim)
    return out
