"""How split_kv-sm80 cuts the keys: as many splits as fill the device, and the memory they need."""

from functools import lru_cache
from math import ceil

import torch
from torch import Tensor

from ffpa.extension import Instance
from ffpa.inputs import device_limits

KERNEL = "split_kv-sm80"
MIN_KEYS = 64  # of a split: with fewer, merging costs more than it saves
ROW_TILE = 16  # the kernel's smallest tile of rows


@lru_cache(maxsize=4096)
def count_splits(tiles: int, seqlen_k: int, slots: int) -> int:
    """The fewest splits that leave at most a twentieth of `slots` CTAs idle, as far as keys go.

    `tiles` are the CTAs that one split takes.
    """
    most = max(1, min(ceil(seqlen_k / MIN_KEYS), slots))
    used = [tiles * n / (ceil(tiles * n / slots) * slots) for n in range(1, most + 1)]
    return 1 + next(n for n, share in enumerate(used) if share >= 0.95 * max(used))


def ctas_per_sm(headdim: int) -> int:
    """How many keep enough copies in flight: a CTA has a warp for each 64 columns.

    It takes eight warps, in two CTAs where they are small enough, so that one copies while the
    other adds up S.
    """
    warps = ceil(headdim / 64)
    return max(2, ceil(8 / warps)) if warps <= 8 else 1


def splits_of(instance: Instance, query: Tensor, key: Tensor, diagonal: int) -> int:
    """How many parts the keys of each row are cut into; 1 for kernels that do not cut them."""
    if instance["id"] != KERNEL:
        return 1
    batch, nheads_q, seqlen_q, headdim = query.shape
    nheads_kv, seqlen_k = key.shape[1:3]
    rows = nheads_q // nheads_kv * seqlen_q
    tiles = batch * nheads_kv * (1 if rows <= ROW_TILE else ceil(rows / instance["Br"]))
    seqlen_k = min(seqlen_k, seqlen_q + diagonal)  # that the last query sees
    slots = ctas_per_sm(headdim) * device_limits(query.device.index).multiprocessors
    return count_splits(tiles, seqlen_k, slots)


def workspace(out: Tensor, splits: int) -> tuple[Tensor | None, Tensor | None]:
    """Memory for each split's F32 sums (B, Hq, Nq, splits, Dv), and its base and sum per row."""
    if splits == 1:
        return None, None
    shape = (*out.shape[:3], splits)
    return tuple(out.new_empty((*shape, last), dtype=torch.float32) for last in (out.shape[3], 2))
