"""From tensors to a Problem: every check on what a caller hands in, before any launch."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ffpa.errors import UnsupportedFeatureError, UnsupportedTypeError, UnsupportedValueError
from ffpa.problem import Problem

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
MASK_DTYPES = (torch.bool, torch.float32)  # beside that of query
DEVICE_TYPE = "cuda"
NAMES = ("query", "key", "value")

# Kernels load 16 bytes at a time.
ALIGN_BYTES = 16
ALIGN_ELEMENTS = 8

# Kernels multiply the scale by log2(e), in F32; below F32's normal range it is zero to them.
MAX_SCALE = torch.finfo(torch.float32).max * math.log(2)
MIN_SCALE = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class DeviceLimits:
    """What a device can run: its compute capability, and shared memory in bytes per CTA."""

    capability: tuple[int, int]
    smem_bytes: int
    multiprocessors: int = 0  # 0: not known
    unschedulable: frozenset[str] = frozenset()  # instances whose clusters find no place

    @property
    def arch(self) -> str:
        return "sm_{}{}".format(*self.capability)


@cache
def device_limits(index: int) -> DeviceLimits:
    """The limits of CUDA device `index`."""
    properties: Any = torch.cuda.get_device_properties(index)
    return DeviceLimits(
        (properties.major, properties.minor),
        properties.shared_memory_per_block_optin,
        properties.multi_processor_count,
    )


def prepare(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """What torch's dispatcher would do to a built-in: refuse gradients, cast under autocast."""
    tensors = (query, key, value)
    given = {**dict(zip(NAMES, tensors, strict=True)), "attn_mask": attn_mask}
    if attn_mask is None:
        del given["attn_mask"]
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise UnsupportedTypeError(
                f"{name} is a {type(tensor).__name__}: pass a torch.Tensor on a GPU"
            )
        if tensor.is_nested or tensor.layout != torch.strided:
            kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
            raise UnsupportedTypeError(
                f"{name} is a {kind} tensor: pass one with strides, padded where lengths differ"
            )
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given.values()):
        raise UnsupportedFeatureError(
            "ffpa.attention is forward only and an input requires a gradient: "
            "call it under torch.no_grad(), or detach the inputs",
        )
    if torch.is_autocast_enabled(DEVICE_TYPE):
        dtype = torch.get_autocast_dtype(DEVICE_TYPE)
        query, key, value = (_autocast(tensor, dtype) for tensor in tensors)
        if attn_mask is not None and attn_mask.dtype not in MASK_DTYPES:
            attn_mask = _autocast(attn_mask, dtype)
    return query, key, value, attn_mask


def _autocast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Autocast's own rule: floating point on the GPU, but never float64."""
    eligible = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(dtype) if eligible and tensor.device.type == DEVICE_TYPE else tensor


def problem_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    acc: str,
    causal_align: str,
    attn_mask: Tensor | None,
) -> Problem:
    """The problem that the tensors pose; reads only what fakes have. Raises UnsupportedError."""
    _check_kinds(query, key, value)
    _check_shapes(query, key, value, enable_gqa)
    if attn_mask is not None:
        _check_mask(attn_mask, query, key)
    if scale is not None and not abs(scale) <= MAX_SCALE:  # so that NaN is refused too
        raise UnsupportedValueError(
            f"scale={scale} is not a finite F32: leave it out for 1/sqrt(headdim)"
        )
    batch, nheads_q, seqlen_q, headdim = query.shape
    problem = Problem(
        dtype=DTYPES[query.dtype],
        batch=batch,
        nheads_q=nheads_q,
        nheads_kv=key.shape[1],
        seqlen_q=seqlen_q,
        seqlen_k=key.shape[2],
        headdim=headdim,
        headdim_v=value.shape[3],
        causal=is_causal,
        causal_align=causal_align,
        acc=acc,
        masked=attn_mask is not None,
    )
    problem.check()
    return problem


def _check_kinds(*tensors: Tensor) -> None:
    """Ranks, data types and devices."""
    for name, tensor in zip(NAMES, tensors, strict=True):
        if tensor.dim() != 4:
            fix = "flatten the leading dimensions into the batch"
            if tensor.dim() < 4:
                fix = "add the missing leading dimensions with unsqueeze(0)"
            raise UnsupportedValueError(
                f"{name} has shape {_shape(tensor)}, not (batch, heads, seqlen, headdim): {fix}",
            )
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
    if len(set(dtypes)) > 1:
        raise UnsupportedTypeError(
            "query is {}, key {} and value {}: cast them to one of float16, bfloat16".format(
                *dtypes
            ),
        )
    if tensors[0].dtype not in DTYPES:
        raise UnsupportedTypeError(
            f"dtype {dtypes[0]} is not one of float16, bfloat16: cast to one"
        )
    devices = [tensor.device for tensor in tensors]
    if len(set(devices)) > 1:
        raise UnsupportedValueError(
            "query is on {}, key on {} and value on {}: move them to one GPU".format(*devices),
        )
    if devices[0].type != DEVICE_TYPE:
        raise UnsupportedValueError(
            f"the tensors are on {devices[0]}: ffpa runs on CUDA devices, move them"
        )


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    """Which sizes have to be equal."""
    same_kv = key.shape[:3] == value.shape[:3]
    if not same_kv or key.shape[0] != query.shape[0] or key.shape[3] != query.shape[3]:
        raise UnsupportedValueError(
            f"query {_shape(query)}, key {_shape(key)} and value {_shape(value)} do not fit: "
            f"batch and headdim have to be equal, of value all sizes but headdim (see expand)",
        )
    if key.shape[1] != query.shape[1] and not enable_gqa:
        raise UnsupportedValueError(
            f"query has {query.shape[1]} heads, key and value {key.shape[1]}: "
            f"pass enable_gqa=True for grouped-query attention",
        )


def _check_mask(attn_mask: Tensor, query: Tensor, key: Tensor) -> None:
    """That it is a mask, of these scores."""
    if attn_mask.dtype not in (*MASK_DTYPES, query.dtype):
        found, dtype = (str(t.dtype).removeprefix("torch.") for t in (attn_mask, query))
        raise UnsupportedTypeError(
            f"attn_mask is {found} and query {dtype}: make it bool, float32 or {dtype}"
        )
    if attn_mask.device != query.device:
        raise UnsupportedValueError(
            f"attn_mask is on {attn_mask.device} and query on {query.device}: move it there"
        )
    scores = (*query.shape[:3], key.shape[2])
    missing = len(scores) - attn_mask.dim()
    sizes = (1,) * missing + tuple(attn_mask.shape)
    if missing < 0 or any(n not in (1, m) for n, m in zip(sizes, scores, strict=True)):
        raise UnsupportedValueError(
            f"attn_mask has shape {_shape(attn_mask)}, which does not broadcast to "
            f"(batch, nheads_q, seqlen_q, seqlen_k) = {scores}"
        )


def check_layout(*tensors: Tensor) -> None:
    """Strides and addresses that kernels can load from, or UnsupportedValueError."""
    for name, tensor in zip(NAMES, tensors, strict=True):
        if not tensor.numel():
            continue
        if tensor.stride(3) != 1:
            raise UnsupportedValueError(
                f"{name} has stride {tensor.stride(3)} along headdim, which has to be 1: "
                f"call .contiguous() on it",
            )
        strides = tensor.stride()[:3]
        if any(s % ALIGN_ELEMENTS and n > 1 for s, n in zip(strides, tensor.shape, strict=False)):
            raise UnsupportedValueError(
                f"{name} has strides {strides} along (batch, heads, seqlen), which have to be "
                f"multiples of {ALIGN_ELEMENTS} elements: call .contiguous() on it",
            )
        if tensor.data_ptr() % ALIGN_BYTES:
            raise UnsupportedValueError(
                f"{name} starts {tensor.data_ptr() % ALIGN_BYTES} bytes past a multiple of "
                f"{ALIGN_BYTES} bytes, where it has to start: call .clone() on it",
            )


def positive_scale(query: Tensor, scale: float | None) -> tuple[Tensor, float]:
    """An equal problem with a scale above zero, which is all that kernels take; exact."""
    if scale is None:
        return query, 1 / math.sqrt(query.shape[3])
    if abs(scale) < MIN_SCALE:
        return torch.zeros_like(query), 1.0
    return (query, scale) if scale > 0 else (-query, -scale)


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
