"""The attention of others, each one function that prepares a launch and names what runs.

A baseline is asked in three steps: `refuse` says why it cannot run these inputs (None: it can),
`memory` how many bytes it needs beyond inputs and output, `prepare` does all that is not to be
timed and returns the launch. To add one, write the functions and a line in BASELINES.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ffpa.errors import UnsupportedError
from ffpa.measure.inputs import Inputs

Attention = Callable[[], Tensor]


@dataclass(frozen=True)
class Prepared:
    """A launch that is ready to be timed, and the backend that it runs."""

    launch: Attention
    backend: str


@dataclass(frozen=True)
class Baseline:
    """Somebody else's attention."""

    prepare: Callable[[Inputs], Prepared]
    refuse: Callable[[Inputs], str | None]
    memory: Callable[[Inputs], int] = lambda inputs: 0


def _grouped(inputs: Inputs) -> bool:
    return inputs.shape.nheads_q != inputs.shape.nheads_kv


def _repeated(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Key and value with a copy of their heads for each query head."""
    group = inputs.shape.nheads_q // inputs.shape.nheads_kv
    return inputs.key.repeat_interleave(group, 1), inputs.value.repeat_interleave(group, 1)


def _prepare_sdpa(choice: SDPBackend, name: str, native_gqa: bool, inputs: Inputs) -> Prepared:
    key, value = inputs.key, inputs.value
    backend = f"torch {name}"
    if _grouped(inputs) and not native_gqa:
        key, value = _repeated(inputs)
        backend += ", key and value repeated beforehand"
    gqa = _grouped(inputs) and native_gqa

    def launch() -> Tensor:
        # Only one backend is allowed, so torch raises instead of falling back to another.
        with sdpa_kernel(choice):
            return scaled_dot_product_attention(
                inputs.query, key, value, is_causal=inputs.shape.causal, enable_gqa=gqa
            )

    return Prepared(launch, backend)


def _refuse_sdpa(can_use: str, native_gqa: bool, inputs: Inputs) -> str | None:
    """Ask torch's own predicate, and pass on the first reason that it gives."""
    if not inputs.query.is_cuda:
        return "runs on CUDA devices only"
    key, value = inputs.key, inputs.value
    gqa = _grouped(inputs) and native_gqa
    if _grouped(inputs) and not native_gqa:
        # The predicate reads sizes and strides: repeated heads need no memory here.
        size = list(inputs.key.shape)
        size[1] = inputs.shape.nheads_q
        key, value = inputs.key[:, :1].expand(size), inputs.value[:, :1].expand(size)
    arguments = (inputs.query, key, value, None, 0.0, inputs.shape.causal, gqa)
    parameters = torch.backends.cuda.SDPAParams(*arguments)
    predicate = getattr(torch.backends.cuda, can_use)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if predicate(parameters, True):
            return None
    reasons = [str(item.message).split(" (Triggered")[0].strip() for item in caught]
    return reasons[0] if reasons else "torch refuses this shape"


def _no_math(inputs: Inputs) -> str | None:
    return None


def _math_memory(inputs: Inputs) -> int:
    """Scores and their softmax in float32, and float32 copies of the inputs."""
    group = inputs.shape.nheads_q // inputs.shape.nheads_kv
    return 3 * 4 * inputs.shape.scores + 2 * group * inputs.shape.input_bytes


def _repeat_memory(inputs: Inputs) -> int:
    return (
        2
        * inputs.query.element_size()
        * inputs.key.numel()
        * (inputs.shape.nheads_q // inputs.shape.nheads_kv)
        if _grouped(inputs)
        else 0
    )


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def _prepare_flex(inputs: Inputs) -> Prepared:
    from torch.nn.attention.flex_attention import create_block_mask

    shape = inputs.shape
    mask = None
    if shape.causal:
        mask = create_block_mask(
            lambda b, h, row, column: row >= column,
            None,
            None,
            shape.seqlen_q,
            shape.seqlen_k,
            device=str(inputs.query.device),
        )
    call = partial(
        _compiled_flex(),
        inputs.query,
        inputs.key,
        inputs.value,
        block_mask=mask,
        enable_gqa=_grouped(inputs),
    )
    return Prepared(call, "torch FlexAttention, compiled")


def _refuse_flex(inputs: Inputs) -> str | None:
    if not inputs.query.is_cuda:
        return "runs on CUDA devices only"
    return None if importlib.util.find_spec("triton") else "triton is not installed"


def _refuse_package(module: str, package: str, inputs: Inputs) -> str | None:
    """What the two installable peers have in common."""
    if not inputs.query.is_cuda:
        return "runs on CUDA devices only"
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        return f"{package} is not installed"
    if inputs.shape.causal and inputs.shape.seqlen_q != inputs.shape.seqlen_k:
        return f"{package} aligns causal masks to the lower right, this run to the upper left"
    return None


def _refuse_ffpa_attn(inputs: Inputs) -> str | None:
    if inputs.shape.headdim <= 256:
        return "ffpa-attn hands head dimensions up to 256 on to torch"
    return _refuse_package("ffpa_attn", "ffpa-attn", inputs)


def _prepare_ffpa_attn(inputs: Inputs) -> Prepared:
    """The fastest of its backends here; the slower ones are tried and left."""
    peer: Any = importlib.import_module("ffpa_attn")
    meta: Any = importlib.import_module("ffpa_attn.functional").FFPAAttnMeta
    tensors = inputs.query, inputs.key, inputs.value
    ready = {}
    for name, backend in _ffpa_attn_backends(peer, inputs).items():
        # The package's own predicate: such a call would be torch's, under the peer's name.
        if not meta.from_kwargs(forward_backend=backend).fallback(*tensors[:2], None, 0.0):
            options = {"is_causal": inputs.shape.causal, "enable_gqa": _grouped(inputs)}
            ready[name] = partial(peer.ffpa_attn_func, *tensors, forward_backend=backend, **options)
    if not ready:
        raise UnsupportedError("ffpa-attn hands this shape on to torch")
    name, call = fastest(ready, inputs.query.device)
    return Prepared(call, f"ffpa-attn {name}")


def _ffpa_attn_backends(peer: Any, inputs: Inputs) -> dict[str, Any]:
    """CuTe-DSL has kernels up to 512 columns; of Triton both kernels, as the package tuned them.

    Its search at run time (autotune) compiles for minutes and is left out: on an H200, at D = 576,
    704 and 1024, it ended with what "Triton, TMA" has by default.
    """
    if torch.cuda.get_device_capability(inputs.query.device)[0] != 9:
        return {"Triton": peer.TritonBackend(forward=True)}
    backends = {"Triton, TMA": peer.TritonBackend(forward=True, enable_tma=True)}
    if inputs.shape.headdim <= 512:
        return {"CuTe-DSL": peer.CuTeDSLBackend(forward=True), **backends}
    return {"Triton": peer.TritonBackend(forward=True), **backends}


def fastest(
    calls: Mapping[str, Attention], device: torch.device, rounds: int = 3
) -> tuple[str, Attention]:
    """The call with the lowest of a few times, by name; raises what one raised if none runs."""
    times: dict[str, float] = {}
    failure: Exception | None = None
    for name, call in calls.items():
        try:
            call()  # which may compile
            torch.cuda.synchronize(device)
            times[name] = min(_seconds(call, device) for _ in range(rounds))
        except Exception as error:  # somebody else's: another of its backends may do
            failure = error
    if not times:
        assert failure is not None
        raise failure
    name = min(times, key=lambda one: times[one])
    return name, calls[name]


def _seconds(call: Attention, device: torch.device) -> float:
    started = time.monotonic()
    call()
    torch.cuda.synchronize(device)
    return time.monotonic() - started


def _prepare_flash_attn_4(inputs: Inputs) -> Prepared:
    peer: Any = importlib.import_module("flash_attn.cute")
    # Its layout is (batch, seqlen, heads, headdim); views of ours serve, as any stride does.
    query, key, value = (
        tensor.transpose(1, 2) for tensor in (inputs.query, inputs.key, inputs.value)
    )

    def launch() -> Tensor:
        output: Any = peer.flash_attn_func(query, key, value, causal=inputs.shape.causal)
        tensor: Tensor = output[0] if isinstance(output, tuple) else output
        return tensor.transpose(1, 2)

    return Prepared(launch, "flash-attn-4 CuTe-DSL")


def _sdpa(choice: SDPBackend, name: str, can_use: str, *, native_gqa: bool) -> Baseline:
    return Baseline(
        prepare=partial(_prepare_sdpa, choice, name, native_gqa),
        refuse=partial(_refuse_sdpa, can_use, native_gqa),
        memory=(lambda inputs: 0) if native_gqa else _repeat_memory,
    )


BASELINES: dict[str, Baseline] = {
    "sdpa-efficient": _sdpa(
        SDPBackend.EFFICIENT_ATTENTION,
        "efficient attention",
        "can_use_efficient_attention",
        native_gqa=False,
    ),
    "sdpa-flash": _sdpa(
        SDPBackend.FLASH_ATTENTION, "flash attention", "can_use_flash_attention", native_gqa=True
    ),
    "sdpa-cudnn": _sdpa(
        SDPBackend.CUDNN_ATTENTION, "cuDNN attention", "can_use_cudnn_attention", native_gqa=True
    ),
    "sdpa-math": Baseline(
        partial(_prepare_sdpa, SDPBackend.MATH, "math", False), _no_math, _math_memory
    ),
    "flex": Baseline(_prepare_flex, _refuse_flex),
    "ffpa-attn": Baseline(_prepare_ffpa_attn, _refuse_ffpa_attn),
    "flash-attn-4": Baseline(
        _prepare_flash_attn_4, partial(_refuse_package, "flash_attn.cute", "flash-attn-4")
    ),
}
