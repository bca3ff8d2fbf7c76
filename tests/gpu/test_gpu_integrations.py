"""Models of the libraries on the GPU, built from a config, and the examples that show them.

The libraries are the extra ffpa[integrations], pure Python but for what they need themselves:
transformers, diffusers (with importlib_metadata), tokenizers, safetensors, huggingface-hub, regex.
"""

import copy
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from harness import DEVICE, DTYPES, normal, relative_rms

import ffpa
from ffpa import FallbackWarning

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LENGTH = 600
WIDTHS = (256, 512)  # of the sliding and of the global layers
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@pytest.fixture(autouse=True)
def no_fallback():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield


@pytest.fixture
def kernels(caplog):
    """Returns the instances that ran since the last time it was asked, each once, in order."""
    caplog.set_level("DEBUG", logger="ffpa")

    def ran():
        told = [r.getMessage() for r in caplog.records if r.name == "ffpa"]
        caplog.clear()
        return list(dict.fromkeys(text.removeprefix("ran ") for text in told))

    return ran


def chosen(headdim, seqlen_q=LENGTH, dtype="fp16", masked=False):
    """The instance that a layer of these sizes has to run on."""
    q, k = normal(2, 4, seqlen_q, headdim, dtype=dtype), normal(2, 4, LENGTH, headdim, dtype=dtype)
    mask = torch.ones(LENGTH, dtype=torch.bool, device=DEVICE) if masked else None
    return ffpa.supports(q, k, k, attn_mask=mask).instance["name"]


def assert_no_worse(ours, theirs, exact):
    """Than torch's attention in the same model, by the distance from the model in more digits."""
    exact = exact.double()
    assert relative_rms(ours, exact) <= 1.25 * relative_rms(theirs, exact) + 1e-4


class TestTransformers:
    @pytest.fixture(autouse=True)
    def registered(self):
        pytest.importorskip("transformers", reason="needs the extra ffpa[integrations]")
        from ffpa.integrations.transformers import register

        register()

    def model(self, implementation, dtype=torch.float16):
        """Gemma 4's kind: sliding and global layers, grouped heads, wide global heads."""
        from transformers import Gemma4ForCausalLM, Gemma4TextConfig

        config = Gemma4TextConfig(
            vocab_size=96, vocab_size_per_layer_input=96, hidden_size=128, intermediate_size=256,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=WIDTHS[0],
            global_head_dim=WIDTHS[1], num_global_key_value_heads=1, hidden_size_per_layer_input=8,
            layer_types=["sliding_attention", "full_attention"], sliding_window=1024,
            num_kv_shared_layers=0, pad_token_id=0, attn_implementation=implementation,
        )  # fmt: skip
        torch.manual_seed(0)
        return Gemma4ForCausalLM(config).half().to(dtype).to(DEVICE).eval()

    @pytest.fixture
    def prompt(self):
        generator = torch.Generator().manual_seed(1)
        return torch.randint(1, 96, (2, LENGTH), generator=generator).to(DEVICE)

    @torch.no_grad()
    @pytest.mark.parametrize("padded", [False, True])
    def test_prefill(self, prompt, kernels, padded):
        mask = torch.ones_like(prompt)
        mask[0, : 5 * padded] = 0
        logits = {
            (name, dtype): self.model(name, dtype)(prompt, attention_mask=mask).logits[:, 5:]
            for name, dtype in (("sdpa", torch.float16), ("eager", torch.float32))
        }
        assert not kernels()
        ours = self.model("ffpa")(prompt, attention_mask=mask).logits[:, 5:]
        assert kernels() == [chosen(width, masked=padded) for width in WIDTHS]
        assert_no_worse(ours, *logits.values())

    @torch.no_grad()
    def test_generation_decodes_on_the_kernel_for_few_queries(self, prompt, kernels):
        options = {"max_new_tokens": 4, "do_sample": False}
        model = self.model("ffpa")
        tokens = model.generate(prompt, **options)
        few = [chosen(width, seqlen_q=1) for width in WIDTHS]
        assert all(name.startswith("split_kv") for name in few)
        expected = [*(chosen(width) for width in WIDTHS), *few]
        assert kernels() == list(dict.fromkeys(expected))  # both widths decode on one instance
        # What was generated with a cache is what prefill, seeing all at once, would choose.
        logits = model(tokens[:, :-1]).logits[:, LENGTH - 1 :]
        best, taken = logits.max(-1).values, logits.gather(-1, tokens[:, LENGTH:, None])[..., 0]
        torch.testing.assert_close(taken, best, rtol=0, atol=2e-2)

    @torch.no_grad()
    def test_compiled_in_one_graph(self, kernels):
        from ffpa.integrations.transformers import attention_forward

        layer = torch.nn.Module()
        layer.is_causal = True

        def attend(q, k, v):
            return attention_forward(layer, q, k, v, None, scaling=0.05)[0]

        compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend="aot_eager")
        for length in (LENGTH, LENGTH + 9, 1):
            q = normal(2, 4, length, 512)
            k, v = (normal(2, 2, length, 512, seed=seed) for seed in (1, 2))
            assert compiled(q, k, v).equal(attend(q, k, v))
        assert len(kernels()) == 2


class TestDiffusers:
    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("diffusers", reason="needs the extra ffpa[integrations]")

    @torch.no_grad()
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_the_mid_blocks_of_a_vae(self, kernels, dtype):
        from diffusers import AutoencoderKL

        from ffpa.integrations.diffusers import use_in

        torch.manual_seed(0)
        vae = AutoencoderKL(
            block_out_channels=(64, 512),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=4,
        )
        vae = vae.to(DEVICE, dtype).eval()
        image = torch.randn(1, 3, 64, 64, device=DEVICE).to(dtype)
        theirs, exact = vae(image).sample, copy.deepcopy(vae).double()(image.double()).sample
        assert not kernels()
        assert use_in(vae, strict=True) == 2  # of the encoder and of the decoder
        ours = vae(image).sample
        (name,) = kernels()
        assert name.split("/")[1:4] == ["d512", NAMES[dtype], "f32"]
        assert_no_worse(ours, theirs, exact)


@pytest.mark.parametrize(
    "name, library, arguments, told",
    [
        (
            "gemma",
            "transformers",
            ("--length", "1024"),
            r"(\d+) of 16 tokens are the same; kernels of ffpa: .*\bsplit_d-\S+/d512/bf16/f32",
        ),
        ("vae", "diffusers", ("--size", "64"), r"split_d-\S+/d512/fp16/f32: the image differs"),
    ],
)
def test_the_examples_run(name, library, arguments, told):
    for needed in (library, "pandas", "pydantic"):
        pytest.importorskip(needed, reason="needs the extras ffpa[integrations,report]")
    command = [sys.executable, f"{name}.py", *arguments]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.search(told, done.stdout), done.stdout
