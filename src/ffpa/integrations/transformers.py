"""The attention implementation "ffpa" of Hugging Face transformers.

from ffpa.integrations.transformers import register

register()
model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="ffpa")
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ffpa.errors import UnsupportedError, UnsupportedFeatureError
from ffpa.sdpa import sdpa
from ffpa.trace import fell_back

NAME = "ffpa"


def register() -> None:
    """Make "ffpa" a choice of attn_implementation, with the masks of "sdpa"; again is no error.

    With them a plain causal mask, or one that hides nothing, is no mask at all but the flag
    is_causal, which the fastest kernels take. Padding, sliding windows within the sequence and
    static caches make a mask, which fewer kernels do. What none takes, torch runs as for "sdpa",
    with a FallbackWarning.
    """
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: query (B, Hq, Nq, D), key and value (B, Hkv, Nk, D), unexpanded.

    Returns (B, Nq, Hq, D), contiguous, and no weights. Raises UnsupportedFeatureError for a logit
    softcap, which torch's attention cannot do either.
    """
    if kwargs.get("softcap") is not None:
        raise UnsupportedFeatureError(
            f"softcap is {kwargs['softcap']} and no kernel caps logits: "
            f"load the model with attn_implementation='eager'"
        )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    # One query comes last, after all keys: for it upper-left causal would mean the first key alone.
    # A mask says all by itself.
    causal = causal and query.shape[2] > 1 and attention_mask is None
    try:
        if kwargs.get("position_bias") is not None:
            raise UnsupportedFeatureError(
                "the model passes a position bias and no kernel takes one beside the mask: "
                "add it to the mask"
            )
        # A compiled graph cannot come back here to choose: there the op of sdpa falls back itself.
        strict = not torch.compiler.is_compiling()
        out = sdpa(query, key, value, attention_mask, dropout, causal, scaling, True, strict=strict)
    except UnsupportedError as error:
        reason = error.args[0]  # torch 2.10 cannot compile str(error)
    else:
        return out.transpose(1, 2).contiguous(), None
    fell_back(reason, stacklevel=2)
    return sdpa_attention_forward(
        module, query, key, value, attention_mask,
        dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs,
    )  # fmt: skip
