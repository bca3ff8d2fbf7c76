"""What GPU tests share: which kernels to run, poisoned memory, and what error is allowed."""

from typing import NamedTuple

import pytest
import torch

from ffpa import extension
from ffpa.attention import launch
from ffpa.inputs import device_limits
from ffpa.numerics import error_bound
from ffpa.problem import mask_diagonal
from ffpa.reference import attention_reference
from ffpa.support import Problem, find

DEVICE = torch.device("cuda", 0)
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def runnable():
    """The instances of this build that the device can run; none without a device."""
    if not torch.cuda.is_available():
        return []
    limits = device_limits(DEVICE.index)

    def runs(instance):
        problem = Problem(
            dtype=instance["dtype"],
            acc=instance["acc"],
            headdim=instance["headdim"],
            batch=1,
            nheads_q=1,
            nheads_kv=1,
            seqlen_q=1,
            seqlen_k=1,
        )
        return bool(find(problem, limits, instance["name"]))

    return [instance for instance in extension.kernels() if runs(instance)]


INSTANCES = runnable()


def over(instances):
    """Parametrise a test over instances, by name."""
    names = [instance["name"] for instance in instances]
    return pytest.mark.parametrize("instance", instances, ids=names)


def sample(*headdims, acc=None):
    """One instance per kernel, dtype and accumulator at each of these head dimensions.

    A kernel compiled for other sizes gives the narrowest that holds them.
    """
    chosen = {}
    for wanted in headdims:
        for instance in sorted(INSTANCES, key=lambda i: i["headdim"]):
            key = (instance["id"], instance["dtype"], instance["acc"], wanted)
            fits = instance["headdim"] >= wanted and not instance["variant"]
            if fits and (acc is None or instance["acc"] in acc):
                chosen.setdefault(key, instance)
    return list({instance["name"]: instance for instance in chosen.values()}.values())


def stand_ins():
    """The variants that a call may get without naming them: for masks, few rows or memory."""
    reasons = ("masks", "narrow", "fallback", "splits")
    return [i for i in INSTANCES if i["variant"] and any(i[reason] for reason in reasons)]


class Case(NamedTuple):
    """Sizes off the tile grid, a mask, and how many heads share a key head."""

    seqlen_q: int
    seqlen_k: int
    nheads_q: int = 2
    nheads_kv: int = 2
    mask: str = "full"
    batch: int = 1

    def __str__(self):
        heads = f"{self.nheads_q}over{self.nheads_kv}"
        return f"{self.batch}x{heads}-{self.seqlen_q}x{self.seqlen_k}-{self.mask}"

    @property
    def diagonal(self):
        return mask_diagonal(self.seqlen_q, self.seqlen_k, self.mask != "full", self.mask)


def normal(*shape, dtype="fp16", seed=0):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=DEVICE).to(DTYPES[dtype])


def poisoned(tensor, rows=64, columns=8):
    """The same tensor as a view, with NaN around it."""
    return surrounded(tensor, torch.nan, rows, columns)


def surrounded(tensor, fill, rows=64, columns=8):
    """The same tensor as a view; `fill` lies around each row, and around the rows of each head."""
    batch, heads, seqlen, last = tensor.shape
    memory = tensor.new_full((batch, heads, seqlen + 2 * rows, last + 2 * columns), fill)
    view = memory[:, :, rows : rows + seqlen, columns : columns + last]
    view.copy_(tensor)
    return view


def run_guarded(instance, q, k, v, diagonal, splits=None, attn_mask=None, scale=None):
    """Launch into NaN; every element has to be written, and none beside them."""
    batch, heads, seqlen, headdim = q.shape
    memory = q.new_full((batch, heads, seqlen + 2, v.shape[3] + 8), torch.nan)
    out = memory[:, :, 1:-1, :-8]
    lse_memory = torch.full((batch * heads * seqlen + 128,), torch.nan, device=q.device)
    lse = lse_memory[64:-64].view(batch, heads, seqlen)
    scale = headdim**-0.5 if scale is None else scale
    launch(instance, q, k, v, out, lse, scale, diagonal, attn_mask, splits)
    assert not out.isnan().any() and not lse.isnan().any()
    for whole, part in ((memory, out), (lse_memory, lse)):
        assert whole.isnan().sum() == whole.numel() - part.numel()
    return out, lse


def in_half_precision(q, k, v, diagonal):
    """Textbook attention in torch, each intermediate result stored in the input dtype."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    rows, keys = (torch.arange(t.shape[2], device=q.device) for t in (q, k))
    scores = (q @ k.mT) * q.shape[3] ** -0.5
    scores.masked_fill_(keys > rows[:, None] + diagonal, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v  # NaN: a row without keys


def relative_rms(out, exact):
    return ((out.double() - exact).norm() / exact.norm().clamp(min=1e-30)).item()


def assert_accurate(instance, out, lse, q, k, v, diagonal):
    """F32: at most twice the error of half precision. All: within the bound of the CPU model."""
    exact, exact_lse = attention_reference(q, k, v, diagonal=diagonal, return_lse=True)
    acc, dtype = instance["acc"], instance["dtype"]
    assert relative_rms(out, exact) < error_bound(acc, dtype, k.shape[2], q.shape[3])
    if acc == "f32":
        usual = (in_half_precision(q, k, v, diagonal).double() - exact).abs().max()
        floor = torch.finfo(DTYPES[dtype]).eps * exact.abs().max()  # one unit in the last place
        assert (out.double() - exact).abs().max() <= 2 * usual + floor
    unseen = exact_lse == -torch.inf
    assert lse[unseen].eq(-torch.inf).all() and not out[unseen].any()
    tolerance = 1e-4 if acc in ("f32", "qk32_pv16") else 2e-2
    assert (lse - exact_lse)[~unseen].abs().lt(tolerance).all()
