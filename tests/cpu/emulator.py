"""A stand-in for ffpa._C on the CPU: it gets what the extension gets, addresses and strides.

With it the whole Python side (checks, choice of a kernel, custom op, layouts) runs without a GPU.
"""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from ffpa import extension, inputs, split_keys, support
from ffpa.inputs import DeviceLimits
from ffpa.reference import attention_reference

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
H200 = DeviceLimits((9, 0), 232448, 132)


def instance(
    kernel,
    headdim,
    dtype,
    acc,
    archs,
    smem_bytes=98304,
    variant="",
    fallback=False,
    narrow=False,
    max_seqlen_k=0,
    Br=64,
    ctas=1,
):
    name = f"{kernel}/d{headdim}/{dtype}/{acc}" + (f"/{variant}" if variant else "")
    return extension.Instance(
        name=name, id=kernel, dtype=dtype, acc=acc, headdim=headdim, variant=variant,
        fallback=fallback, narrow=narrow, max_seqlen_k=max_seqlen_k, Br=Br, Bc=64,
        num_threads=128, smem_bytes=smem_bytes, archs=archs, lesson="", reason="",
        masks=kernel.startswith("split_kv") or variant in ("masked", "splits"),
        splits=variant == "splits",
        ctas=ctas,
    )  # fmt: skip


def build() -> list[extension.Instance]:
    """A plausible kernels.toml: two architectures, three accumulators, variants for small memory
    and for small work."""
    types = [("fp16", "f32"), ("bf16", "f32"), ("fp16", "f16")]
    return [
        *(instance("naive", 1024, dtype, "f32", ["80", "90"]) for dtype in DTYPES),
        *(
            instance("split_d-sm80", d, *type_, ["80", "90"], **options)
            for d in range(64, 1025, 64)
            for type_ in types
            for options in (
                {"smem_bytes": 163840},
                {"smem_bytes": 98304, "variant": "stages2", "fallback": True},
                {"smem_bytes": 65536, "variant": "stages1"},
            )
        ),
        *(
            instance(
                "split_d-sm80", 576, *type_, ["80", "90"], 131072, "rows32", narrow=True, Br=32
            )
            for type_ in types
        ),
        *(
            instance(
                "split_d-sm90",
                d,
                *type_,
                ["90a"],
                230000,
                max_seqlen_k=16384 if type_[1] == "f16" else 0,
                Br=128,
                ctas=d // 256,
            )
            for d in (256, 512)
            for type_ in types
        ),
        *(
            instance("split_d-sm90", 512, dtype, "f32", ["90a"], 230000, variant, Br=128, ctas=2)
            for dtype in DTYPES
            for variant in ("masked", "splits")
        ),
        *(
            instance("split_d-sm80", d, *type_, ["80", "90"], 163840, "masked")
            for d in (256, 1024)
            for type_ in types
        ),
        *(
            instance("split_kv-sm80", d, dtype, "f32", ["80", "90"], Br=rows)
            for d, rows in ((512, 32), (1024, 16))
            for dtype in DTYPES
        ),
    ]


class Emulator:
    """Computes in float64 and notes each launch as (instance name, device, stream)."""

    def __init__(self) -> None:
        self.launches = []
        self.splits = []

    def kernels(self):
        return build()

    def forward(
        self, name, q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, q_strides, k_strides, v_strides,
        out_strides, batch, nheads_q, nheads_kv, seqlen_q, seqlen_k, headdim, headdim_v, scale,
        diagonal, mask_kind, mask_ptr, mask_strides, splits, split_out_ptr, split_state_ptr,
        device_index, stream_ptr,
    ):  # fmt: skip
        if splits > 1:  # as scratch: whatever is in it
            rows = (batch, nheads_q, seqlen_q, splits)
            for pointer, last in ((split_out_ptr, headdim_v), (split_state_ptr, 2)):
                scratch(pointer, (*rows, last)).fill_(torch.nan)
        else:
            assert not split_out_ptr and not split_state_ptr
        assert scale > 0 and min(batch, nheads_q, seqlen_q, seqlen_k) > 0
        self.launches.append((name, device_index, stream_ptr))
        self.splits.append(splits)
        dtype = DTYPES[name.split("/")[2]]

        def view(pointer, strides, nheads, seqlen, columns=headdim):
            return at(pointer, (batch, nheads, seqlen, columns), (*strides, 1), dtype)

        mask = None
        if mask_kind:
            assert name.startswith("split_kv") or name.endswith(("/masked", "/splits"))
            mask_dtype = {1: torch.bool, 2: dtype, 3: torch.float32}[mask_kind]
            mask = at(mask_ptr, (batch, nheads_q, seqlen_q, seqlen_k), mask_strides, mask_dtype)
        out, lse = attention_reference(
            view(q_ptr, q_strides, nheads_q, seqlen_q),
            view(k_ptr, k_strides, nheads_kv, seqlen_k),
            view(v_ptr, v_strides, nheads_kv, seqlen_k, headdim_v),
            scale=scale,
            diagonal=diagonal,
            attn_mask=mask,
            return_lse=True,
        )
        view(out_ptr, out_strides, nheads_q, seqlen_q, headdim_v).copy_(out)
        if lse_ptr:
            shape = (batch, nheads_q, seqlen_q)
            strides = (nheads_q * seqlen_q, seqlen_q, 1)
            at(lse_ptr, shape, strides, torch.float32).copy_(lse)


def at(pointer: int, shape, strides, dtype: torch.dtype) -> torch.Tensor:
    """A tensor over memory that someone else owns."""
    count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(pointer)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)


def scratch(pointer: int, shape) -> torch.Tensor:
    strides = torch.empty(shape, device="meta").stride()
    return at(pointer, shape, strides, torch.float32)


@pytest.fixture
def emulator(monkeypatch):
    """ffpa on CPU tensors, which it takes for tensors on an H200."""
    emulator = Emulator()
    support._fitting_built.cache_clear()
    monkeypatch.setattr(extension, "module", lambda: emulator)
    monkeypatch.setattr(inputs, "DEVICE_TYPE", "cpu")
    monkeypatch.setattr(support, "build_limits", lambda index: H200)
    monkeypatch.setattr(split_keys, "device_limits", lambda index: H200)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    yield emulator
    support._fitting_built.cache_clear()
