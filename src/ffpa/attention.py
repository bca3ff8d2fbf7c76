"""The public call, and the custom op that torch.compile and CUDA graphs see."""

from typing import Literal, overload

import torch
from torch import Tensor

from ffpa import extension
from ffpa.inputs import positive_scale, prepare, problem_of
from ffpa.split_kv import splits_of, workspace
from ffpa.support import resolve
from ffpa.trace import ran


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = ...,
    scale: float | None = ...,
    enable_gqa: bool = ...,
    acc: str = ...,
    kernel: str = ...,
    causal_align: str = ...,
    attn_mask: Tensor | None = ...,
    return_lse: Literal[False] = ...,
) -> Tensor: ...


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = ...,
    scale: float | None = ...,
    enable_gqa: bool = ...,
    acc: str = ...,
    kernel: str = ...,
    causal_align: str = ...,
    attn_mask: Tensor | None = ...,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    acc: str = "f32",
    kernel: str = "auto",
    causal_align: str = "upper_left",
    attn_mask: Tensor | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(query @ key^T * scale) @ value, exactly, for head dimensions up to 1024.

    query is (B, Hq, Nq, D), key (B, Hkv, Nk, D) and value (B, Hkv, Nk, Dv), fp16 or bf16 on one
    GPU; D and Dv <= D are multiples of 8, their stride 1, and the other strides multiples of 8. The
    output is (B, Hq, Nq, Dv), with the dtype and stride order of query. Forward only.

    is_causal     row i sees the keys j <= i, or with causal_align="lower_right"
                  j <= i + Nk - Nq; a row that sees none gives zeros and lse -inf
    scale         1/sqrt(D) by default; any finite number
    enable_gqa    allows Hq to be a multiple of Hkv; key and value are never copied
    acc           where sums are rounded: "f32"; for fp16 also "f16", "qk32_pv16", "qk16_pv32",
                  "f16f32", as far as the kernel has them. F16 sums have limits that inputs have
                  to keep, or the output is infinite or NaN, without an error: scaled scores up to
                  65504 where QK^T is in F16; |value| up to 1023 where PV is (a chain of 64 keys
                  then sums to 65504), on split_d-sm90 up to 63 if 8192 keys weigh as the heaviest.
                  Lengths at which PV would stall are refused: above 16384 keys on split_d-sm90,
                  above 65536 or 131072 on split_d-sm80. docs/accumulation.md derives them
    kernel        "auto", or a kernel id or instance name of `ffpa.kernels()`
    attn_mask     of bool (True: seen), F32 or the dtype of query (added to the scaled scores),
                  broadcast to (B, Hq, Nq, Nk), any strides; together with is_causal both apply
    return_lse    also return the natural log of the softmax denominator, F32 (B, Hq, Nq)

    NaN or infinity in a key or value may reach all rows of its tile, also those that the mask hides
    it from. What cannot run raises TypeError, ValueError, NotImplementedError or RuntimeError
    before any launch, with the reason that `ffpa.supports` gives.
    """
    query, key, value, attn_mask = prepare(query, key, value, attn_mask)
    out, lse = torch.ops.ffpa.forward(
        query, key, value, is_causal, scale, enable_gqa, acc, kernel, causal_align, attn_mask,
        return_lse,
    )  # fmt: skip
    return (out, lse) if return_lse else out


@torch.library.custom_op(
    "ffpa::forward",
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, bool is_causal, float? scale, "
    "bool enable_gqa, str acc, str kernel, str causal_align, Tensor? attn_mask, bool return_lse) "
    "-> (Tensor, Tensor)",
)
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    acc: str,
    kernel: str,
    causal_align: str,
    attn_mask: Tensor | None,
    return_lse: bool,
) -> tuple[Tensor, Tensor]:
    problem, instance = resolve(
        query, key, value, is_causal, scale, enable_gqa, acc, kernel, causal_align, attn_mask
    )
    out, lse = _outputs(query, value, return_lse)
    if problem.empty:
        ran(None)
        return out.zero_(), lse.fill_(-torch.inf)
    query, scale = positive_scale(query, scale)
    launch(
        instance,
        query,
        key,
        value,
        out,
        lse if return_lse else None,
        scale,
        problem.diagonal,
        attn_mask,
    )
    ran(instance["name"])
    return out, lse


@_forward.register_fake
def _forward_fake(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    acc: str,
    kernel: str,
    causal_align: str,
    attn_mask: Tensor | None,
    return_lse: bool,
) -> tuple[Tensor, Tensor]:
    problem_of(query, key, value, is_causal, scale, enable_gqa, acc, causal_align, attn_mask)
    return _outputs(query, value, return_lse)


def empty_output(query: Tensor, value: Tensor, device: torch.device | str | None = None) -> Tensor:
    """Uninitialised: the rows and the stride order of query, the columns of value."""
    return torch.empty_like(query.narrow(-1, 0, value.shape[-1]), device=device)


def _outputs(query: Tensor, value: Tensor, return_lse: bool) -> tuple[Tensor, Tensor]:
    """Uninitialised out and lse; an op returns a fixed number of tensors, so lse may be empty."""
    shape = query.shape[:3] if return_lse else (0,)
    return empty_output(query, value), query.new_empty(shape, dtype=torch.float32)


def launch(
    instance: extension.Instance,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor | None,
    scale: float,
    diagonal: int,
    attn_mask: Tensor | None = None,
    splits: int | None = None,
) -> None:
    """Run an instance on the current stream of the tensors' device, without any check.

    `splits` is for measuring; left out, it is what `split_kv.splits_of` says.
    """
    if splits is None:
        splits = splits_of(instance, query, key, diagonal)
    split_out, split_state = workspace(out, splits)
    batch, nheads_q, seqlen_q, headdim = query.shape
    extension.module().forward(
        instance["name"],
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        out.data_ptr(),
        _address(lse),
        *(_strides(tensor) for tensor in (query, key, value, out)),
        batch,
        nheads_q,
        key.shape[1],
        seqlen_q,
        key.shape[2],
        headdim,
        value.shape[3],
        scale,
        diagonal,
        *_mask_arguments(attn_mask, query, key),
        splits,
        _address(split_out),
        _address(split_state),
        query.device.index,
        torch.cuda.current_stream(query.device).cuda_stream,
    )


def _mask_arguments(
    attn_mask: Tensor | None, query: Tensor, key: Tensor
) -> tuple[int, int, tuple[int, ...]]:
    """Kind, address and strides, as csrc/params.h has them."""
    if attn_mask is None:
        return 0, 0, (0, 0, 0, 0)
    kind = {torch.bool: 1, query.dtype: 2, torch.float32: 3}[attn_mask.dtype]
    expanded = attn_mask.expand(*query.shape[:3], key.shape[2])
    return kind, attn_mask.data_ptr(), expanded.stride()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _strides(tensor: Tensor) -> extension.Strides:
    """Strides in elements; a dimension of size 1 may have any, even one that is not aligned."""
    headdim = tensor.shape[3]
    batch, head, row = (
        stride if size > 1 else headdim
        for stride, size in zip(tensor.stride()[:3], tensor.shape[:3], strict=True)
    )
    return batch, head, row
