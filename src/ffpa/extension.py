"""The compiled half of the package, imported on first use: figures and reports need no build."""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypedDict, cast

Strides = tuple[int, int, int]


class Instance(TypedDict):
    """One compiled kernel, as `kernels.toml` describes it."""

    name: str  # "split_d-sm80/d512/fp16/f32", then "/variant" where there is one
    id: str  # technique and architecture
    dtype: str
    acc: str
    headdim: int  # the largest D it takes
    variant: str  # "": the one to use
    fallback: bool  # stands in for variant "" on devices with less shared memory
    narrow: bool  # stands in for variant "" where that would leave multiprocessors idle
    max_seqlen_k: int  # beyond it sums lose more than the accumulator's bound; 0: any length
    Br: int
    Bc: int
    masks: bool  # takes an attn_mask
    splits: bool  # splits the keys over CTAs, in the place of variant "" where that is faster
    ctas: int  # that share a tile of Br queries
    num_threads: int
    smem_bytes: int  # dynamic shared memory of a CTA
    archs: list[str]  # "80", "90a", ...
    lesson: str  # what the kernel adds to the ladder
    reason: str  # why this configuration


@cache
def module() -> ModuleType:
    """The extension; ImportError with the build command where it was not built."""
    try:
        return import_module("ffpa._C")
    except ModuleNotFoundError as error:
        if error.name != "ffpa._C":
            raise
        raise ImportError(
            "the extension ffpa._C is not built: run `pip install -e .` "
            "or `python setup.py build_ext --inplace`"
        ) from None


def kernels() -> list[Instance]:
    """All compiled kernels, in the order of `kernels.toml`."""
    return cast(list[Instance], module().kernels())


def resident_clusters(name: str, device_index: int) -> int | None:
    """How many clusters of a kernel the device runs at once; None for one that needs none."""
    return cast(int | None, module().resident_clusters(name, device_index))


def build_info() -> dict[str, Any]:
    """How the extension was built: architectures, flags, compilers, source hash, registers."""
    return cast(dict[str, Any], module().build_info())
