"""How the keys of few queries are split: as many splits as fill the device, and their memory."""

from functools import lru_cache
from math import ceil

import torch
from torch import Tensor

from ffpa.extension import Instance
from ffpa.inputs import device_limits
from ffpa.problem import Problem

KERNEL = "split_kv-sm80"
MIN_KEYS = 64  # of a split: with fewer, merging costs more than it saves
MIN_KEYS_OF_WIDE_TILES = 256  # of a split of other kernels
MERGE_KEYS = 512  # that a tile of theirs gets through while splits are merged
ROW_TILE = 16  # the smallest tile of rows of KERNEL


@lru_cache(maxsize=4096)
def count_splits(tiles: int, seqlen_k: int, slots: int, min_keys: int = MIN_KEYS) -> int:
    """The fewest splits that leave at most a twentieth of `slots` CTAs idle, as far as keys go.

    `tiles` are the CTAs that one split takes.
    """
    most = max(1, min(ceil(seqlen_k / min_keys), slots))
    used = [tiles * n / (ceil(tiles * n / slots) * slots) for n in range(1, most + 1)]
    return 1 + next(n for n, share in enumerate(used) if share >= 0.95 * max(used))


def ctas_per_sm(headdim: int) -> int:
    """How many of KERNEL keep enough copies in flight: a CTA has a warp for each 64 columns.

    It takes eight warps, in two CTAs where they are small enough, so that one copies while the
    other adds up S.
    """
    warps = ceil(headdim / 64)
    return max(2, ceil(8 / warps)) if warps <= 8 else 1


def packed_tiles(
    instance: Instance, batch: int, nheads_q: int, nheads_kv: int, queries: int
) -> int:
    """The tiles of one split where rows of the heads over a key head share tiles."""
    group = nheads_q // nheads_kv
    of_head = min(queries, instance["Br"])
    heads = min(group, instance["Br"] // of_head)
    return batch * nheads_kv * ceil(queries / of_head) * ceil(group / heads)


def splits_of(instance: Instance, query: Tensor, key: Tensor, diagonal: int) -> int:
    """How many parts the keys of each row are cut into; 1 for kernels that do not cut them."""
    batch, nheads_q, seqlen_q, headdim = query.shape
    nheads_kv, seqlen_k = key.shape[1:3]
    seqlen_k = _visible_keys(seqlen_q, seqlen_k, diagonal)
    multiprocessors = device_limits(query.device.index).multiprocessors
    if instance["id"] == KERNEL:
        rows = nheads_q // nheads_kv * seqlen_q
        tiles = batch * nheads_kv * (1 if rows <= ROW_TILE else ceil(rows / instance["Br"]))
        return count_splits(tiles, seqlen_k, ctas_per_sm(headdim) * multiprocessors)
    if instance["splits"]:
        tiles = packed_tiles(instance, batch, nheads_q, nheads_kv, seqlen_q)
        return _fewest_splits(instance, tiles, seqlen_k, multiprocessors)
    return 1


def _visible_keys(seqlen_q: int, seqlen_k: int, diagonal: int) -> int:
    """How many the last query sees."""
    return max(0, min(seqlen_k, seqlen_q + diagonal))


def _fewest_splits(instance: Instance, tiles: int, seqlen_k: int, multiprocessors: int) -> int:
    workers = multiprocessors // instance["ctas"]
    return count_splits(tiles, seqlen_k, workers, MIN_KEYS_OF_WIDE_TILES)


def splits_pay(
    splitting: Instance, other: Instance, problem: Problem, multiprocessors: int
) -> bool:
    """Whether an instance that splits the keys is faster than `other`, which auto would take.

    KERNEL reads the keys again for every few rows: it is for those that fit in one tile. Others
    have to leave a quarter more to do for the multiprocessor with the most, for each of the keys.
    """
    if problem.empty:
        return False
    batch, nheads_q, nheads_kv = problem.batch, problem.nheads_q, problem.nheads_kv
    queries = problem.seqlen_q
    if other["id"] == KERNEL:
        return nheads_q // nheads_kv * queries > ROW_TILE
    if multiprocessors == 0:
        return False

    def work(instance: Instance, tiles: int, splits: int) -> float:
        workers = multiprocessors // instance["ctas"]
        keys = seqlen_k / splits + (MERGE_KEYS if splits > 1 else 0)
        rows = ceil(tiles * splits / workers) * instance["Br"]
        return rows * keys * instance["headdim"] / instance["ctas"]

    seqlen_k = _visible_keys(queries, problem.seqlen_k, problem.diagonal)
    packed = packed_tiles(splitting, batch, nheads_q, nheads_kv, queries)
    splits = _fewest_splits(splitting, packed, seqlen_k, multiprocessors)
    tiles = batch * nheads_q * ceil(queries / other["Br"])
    return 4 * work(splitting, packed, splits) <= 3 * work(other, tiles, 1)


def workspace(out: Tensor, splits: int) -> tuple[Tensor | None, Tensor | None]:
    """Memory for each split's F32 sums (B, Hq, Nq, splits, Dv), and its base and sum per row."""
    if splits == 1:
        return None, None
    shape = (*out.shape[:3], splits)
    return tuple(out.new_empty((*shape, last), dtype=torch.float32) for last in (out.shape[3], 2))
