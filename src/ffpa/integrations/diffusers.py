"""An attention processor of Hugging Face diffusers, for the mid-blocks of VAEs above all.

from ffpa.integrations.diffusers import use_in

use_in(pipeline.vae)
"""

import torch
from diffusers.models.attention_processor import Attention
from torch import Tensor

from ffpa.sdpa import sdpa


def use_in(model: torch.nn.Module, *, strict: bool = False) -> int:
    """Give every `Attention` of a model the processor; returns how many there were."""
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    for layer in layers:
        layer.set_processor(AttnProcessor(strict=strict))
    return len(layers)


class AttnProcessor:
    """What `Attention` calls to attend, with `ffpa.sdpa` in the middle.

    `strict=True` raises where torch would run the attention. A layer that is not made of one
    projection each for query, key and value raises too, whatever `strict` is.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
    ) -> Tensor:
        """hidden_states (B, C, H, W) or (B, N, C); the result has the same shape."""
        if attn.added_kv_proj_dim is not None:
            raise NotImplementedError(
                "the layer has added key and value projections: keep its own processor"
            )
        x = hidden_states if attn.spatial_norm is None else attn.spatial_norm(hidden_states, temb)
        tokens = x.flatten(2).transpose(1, 2) if x.dim() == 4 else x
        if attn.group_norm is not None:
            tokens = attn.group_norm(tokens.transpose(1, 2)).transpose(1, 2)

        source = tokens if encoder_hidden_states is None else encoder_hidden_states
        if encoder_hidden_states is not None and attn.norm_cross:
            source = attn.norm_encoder_hidden_states(source)
        query, key, value = (
            projection(states).unflatten(-1, (attn.heads, -1)).transpose(1, 2)
            for projection, states in (
                (attn.to_q, tokens), (attn.to_k, source), (attn.to_v, source)
            )
        )  # fmt: skip
        if attn.norm_q is not None:
            query = attn.norm_q(query)
        if attn.norm_k is not None:
            key = attn.norm_k(key)

        mask = None
        if attention_mask is not None:  # one row for all queries, or one each
            mask = attn.prepare_attention_mask(attention_mask, source.shape[1], len(tokens))
            mask = mask.unflatten(0, (len(tokens), attn.heads))
        out = sdpa(query, key, value, mask, scale=attn.scale, strict=self.strict)

        out = out.transpose(1, 2).flatten(2).to(query.dtype)
        for layer in attn.to_out:  # the projection, then dropout
            out = layer(out)
        if hidden_states.dim() == 4:
            out = out.transpose(1, 2).reshape(hidden_states.shape)
        if attn.residual_connection:
            out = out + hidden_states
        return out / attn.rescale_output_factor
