"""torch's `scaled_dot_product_attention`, run by a kernel of ours wherever one takes the call."""

from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ffpa.attention import attention, empty_output
from ffpa.errors import (
    UnsupportedError,
    UnsupportedFeatureError,
    UnsupportedValueError,
)
from ffpa.inputs import prepare
from ffpa.trace import fell_back

_torch_sdpa = functional.scaled_dot_product_attention


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    strict: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, with the same arguments and meaning.

    A call that `ffpa.attention` takes runs on its kernel, with F32 accumulation; any number of
    leading dimensions will do. The output has the stride order of query, as that of torch's flash
    kernel. A value narrower than query whose headdim is no multiple of 8 is padded with zeros to
    one, which copies it.

    Every other call (dropout, a gradient, a CPU tensor, ...) goes to torch, with a FallbackWarning
    that says why; `strict=True` raises that reason instead. Python shows a warning once per reason
    and place. `ffpa.last_kernel()` tells which of the two it was.
    """
    return _sdpa(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, strict, stacklevel=3
    )


class use:  # noqa: N801, called like a function
    """Put `ffpa.sdpa` in place of `torch.nn.functional.scaled_dot_product_attention`.

        with ffpa.use():
            model(inputs)

        replaced = ffpa.use(strict=True)
        model(inputs)
        replaced.undo()

    It holds for all threads of the process, from the call of `use` on until `undo` or the end of
    the block, however that ends. Uses nest: the latest that is not undone decides on `strict`. Code
    that fetched torch's function before is not reached; what it fetches inside goes to torch again
    once all uses are undone. A graph that torch.compile made inside keeps what it was made with.
    """

    _active: "list[use]" = []  # noqa: RUF012, of the class on purpose

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        use._active.append(self)
        functional.scaled_dot_product_attention = _in_place_of_torch

    def undo(self) -> None:
        """Take this use back; again is no error."""
        if self in use._active:
            use._active.remove(self)
        # Whoever replaced the function after us keeps it.
        if not use._active and functional.scaled_dot_product_attention is _in_place_of_torch:
            functional.scaled_dot_product_attention = _torch_sdpa

    def __enter__(self) -> "use":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


def _in_place_of_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    arguments = (query, key, value, attn_mask, dropout_p, is_causal)
    if not use._active:
        return _torch_sdpa(*arguments, scale=scale, enable_gqa=enable_gqa)
    strict = use._active[-1].strict
    return _sdpa(*arguments, scale, enable_gqa, strict, stacklevel=3)


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    strict: bool,
    stacklevel: int,
) -> Tensor:
    try:
        if dropout_p != 0.0:
            raise UnsupportedFeatureError(
                "dropout_p is not 0 and no kernel drops weights: set it to 0, as inference does"
            )
        tensors = prepare(query, key, value, attn_mask)
        if torch.compiler.is_compiling():  # addresses are not known yet: the op decides
            return torch.ops.ffpa.sdpa(*tensors, is_causal, scale, enable_gqa, strict)
        return _attention(*tensors, is_causal, scale, enable_gqa)
    except UnsupportedError as error:
        if strict:
            raise
        reason = error.args[0]  # torch 2.10 cannot compile str(error)
    fell_back(reason, stacklevel)
    return _torch_sdpa(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """`attention` for any number of leading dimensions, (..., heads, seqlen, headdim), and for
    narrower values of any headdim."""
    missing = -value.shape[-1] % 8
    if missing and value.shape[-1] < query.shape[-1] and query.dim() == value.dim():
        padded = functional.pad(value, (0, missing))
        out = _attention(query, key, padded, attn_mask, is_causal, scale, enable_gqa)
        return out[..., : value.shape[-1]].contiguous()
    options: dict[str, Any] = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    if query.dim() == key.dim() == value.dim() == 4:
        return attention(query, key, value, attn_mask=attn_mask, **options)
    leading = [tuple(tensor.shape[:-3]) for tensor in (query, key, value)]
    if leading[0] != leading[1] or leading[0] != leading[2]:
        raise UnsupportedValueError(
            "query, key and value have leading dimensions {}, {} and {}: "
            "expand them to the same".format(*leading)
        )
    if attn_mask is not None and query.dim() > 4:
        attn_mask = _expand(attn_mask, (*query.shape[:-1], key.shape[-2]))
    if attn_mask is not None:
        options["attn_mask"] = _four_dimensional(attn_mask)
    out = attention(*(_four_dimensional(tensor) for tensor in (query, key, value)), **options)
    return out.reshape(*query.shape[:-1], value.shape[-1])


def _expand(attn_mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    try:
        return attn_mask.expand(shape)
    except RuntimeError:
        raise UnsupportedValueError(
            f"attn_mask has shape {tuple(attn_mask.shape)}, which does not broadcast to {shape}"
        ) from None


def _four_dimensional(tensor: Tensor) -> Tensor:
    """A view where there is one: of a batch of 1, or of all leading dimensions as the batch."""
    if tensor.dim() > 4:
        return tensor.flatten(0, -4)
    while 2 <= tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor


@torch.library.custom_op(
    "ffpa::sdpa",
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, "
    "float? scale, bool enable_gqa, bool strict) -> Tensor",
)
def _op(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    strict: bool,
) -> Tensor:
    """What a compiled graph calls: decides when it runs, keeps the fake's promise on strides."""
    out = _sdpa(
        query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa, strict, stacklevel=4
    )
    promised = _promised(query, key, value, enable_gqa, "meta")
    if out.stride() == promised.stride():
        return out
    return _promised(query, key, value, enable_gqa, query.device).copy_(out)


@_op.register_fake
def _fake(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    strict: bool,
) -> Tensor:
    return _promised(query, key, value, enable_gqa, query.device)


def _promised(
    query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool, device: torch.device | str
) -> Tensor:
    """Shape and strides of the output, uninitialised; torch broadcasts leading dimensions."""
    leading = [tensor.shape[:-2] for tensor in (query, key, value)]
    if enable_gqa and query.dim() > 2:  # key and value are repeated to the heads of query
        leading = [(*lead[:-1], query.shape[-3]) for lead in leading]
    broadcast = torch.broadcast_shapes(*leading)
    if broadcast == query.shape[:-2] and value.shape[-1] <= query.shape[-1]:
        return empty_output(query, value, device)
    return query.new_empty((*broadcast, query.shape[-2], value.shape[-1]), device=device)
