"""A model of Gemma 4's kind, built from a config, with attention by FFPA: prefill and decode.

    python examples/gemma.py            # on a GPU
    python examples/gemma.py --recorded # the recorded speeds of such layers, no GPU

The weights are random, so the tokens mean nothing: what counts is that both implementations choose
the same ones, and which kernels ran. Needs `pip install ffpa[integrations,report]`.
"""

import argparse
import logging
import time

import torch
from recorded import table
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

from ffpa.integrations.transformers import register

SHAPES = (
    "gemma4-8-4", "gemma4-32-4", "gemma4-16-1", "gemma4-2-1", "chunk-64", "decode", "decode-long",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", action="store_true", help="print the recorded speeds only")
    parser.add_argument("--length", type=int, default=4096, help="tokens of the prompt")
    options = parser.parse_args()
    if options.recorded:
        print(table(*SHAPES))
        return
    if not torch.cuda.is_available():
        parser.error("no CUDA device visible: --recorded needs none")
    register()
    prompt = torch.randint(1, 256, (1, options.length), device="cuda")
    kernels = Kernels()
    chosen = {}
    for implementation in ("sdpa", "ffpa"):
        model = build(implementation)
        model.generate(prompt, max_new_tokens=2, do_sample=False)  # warm up
        kernels.names.clear()
        torch.cuda.synchronize()
        start = time.perf_counter()
        tokens = model.generate(prompt, max_new_tokens=16, do_sample=False)
        torch.cuda.synchronize()
        print(f"{implementation}: {time.perf_counter() - start:.2f} s for 16 tokens")
        chosen[implementation] = tokens[0, options.length :].tolist()
    same = sum(a == b for a, b in zip(*chosen.values(), strict=True))
    print(f"{same} of 16 tokens are the same; kernels of ffpa: {', '.join(sorted(kernels.names))}")


def build(implementation: str) -> Gemma4ForCausalLM:
    """Six layers, five with a sliding window and D = 256, the last global with D = 512."""
    config = Gemma4TextConfig(
        vocab_size=256, vocab_size_per_layer_input=256, hidden_size=1024, intermediate_size=2048,
        num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
        global_head_dim=512, num_global_key_value_heads=4, hidden_size_per_layer_input=64,
        layer_types=["sliding_attention"] * 5 + ["full_attention"], sliding_window=1024,
        num_kv_shared_layers=0, pad_token_id=0, attn_implementation=implementation,
    )  # fmt: skip
    torch.manual_seed(0)
    return Gemma4ForCausalLM(config).bfloat16().cuda().eval()


class Kernels(logging.Handler):
    """Collects the kernels that the log names."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        logger = logging.getLogger("ffpa")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.names.add(record.getMessage().removeprefix("ran "))


if __name__ == "__main__":
    main()
