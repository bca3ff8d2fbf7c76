"""Models of the libraries, built from a config, with our attention against the library's own."""

import warnings

import pytest
import torch

import ffpa
from ffpa import FallbackWarning

pytestmark = pytest.mark.usefixtures("emulator")

LENGTH = 72  # 576 rows in all: above what goes to the kernel for few queries


class TestTransformers:
    @pytest.fixture(autouse=True)
    def registered(self):
        pytest.importorskip("transformers", reason="needs the extra ffpa[integrations]")
        from ffpa.integrations.transformers import register

        register()
        register()

    def model(self, implementation, **options):
        """Gemma 4's kind: sliding and global layers, grouped heads, wide global heads."""
        from transformers import Gemma4ForCausalLM, Gemma4TextConfig

        config = Gemma4TextConfig(
            vocab_size=96, vocab_size_per_layer_input=96, hidden_size=32, intermediate_size=64,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
            global_head_dim=128, num_global_key_value_heads=1, hidden_size_per_layer_input=8,
            layer_types=["sliding_attention", "full_attention"], sliding_window=512,
            num_kv_shared_layers=0, pad_token_id=0, attn_implementation=implementation, **options,
        )  # fmt: skip
        torch.manual_seed(0)
        return Gemma4ForCausalLM(config).half().eval()

    @pytest.fixture
    def prompt(self):
        return torch.randint(1, 96, (2, LENGTH), generator=torch.Generator().manual_seed(1))

    @torch.no_grad()
    def test_prefill_runs_on_our_kernels(self, emulator, prompt):
        with warnings.catch_warnings():
            warnings.simplefilter("error", FallbackWarning)
            logits = self.model("ffpa")(prompt).logits
        torch.testing.assert_close(logits, self.model("eager")(prompt).logits, rtol=2e-2, atol=2e-2)
        assert [name.split("/")[0] for name, *_ in emulator.launches] == ["split_d-sm90"] * 2

    @torch.no_grad()
    def test_generation_decodes_on_the_kernel_for_few_queries(self, emulator, prompt):
        options = {"max_new_tokens": 4, "do_sample": False}
        tokens = self.model("ffpa").generate(prompt, **options)
        assert tokens.equal(self.model("sdpa").generate(prompt, **options))
        kernels = [name.split("/")[0] for name, *_ in emulator.launches]
        assert kernels == ["split_d-sm90"] * 2 + ["split_kv-sm80"] * 6  # three more tokens

    @torch.no_grad()
    @pytest.mark.filterwarnings("error::ffpa.FallbackWarning")
    def test_padding_is_a_mask_for_the_kernel(self, emulator, prompt):
        mask = torch.ones_like(prompt)
        mask[0, :5] = 0
        logits = self.model("ffpa")(prompt, attention_mask=mask).logits
        expected = self.model("eager")(prompt, attention_mask=mask).logits
        torch.testing.assert_close(logits[:, 5:], expected[:, 5:], rtol=2e-2, atol=2e-2)
        assert [name.split("/")[0] for name, *_ in emulator.launches] == ["split_d-sm90"] * 2

    @torch.no_grad()
    @pytest.mark.filterwarnings("error::ffpa.FallbackWarning")
    def test_a_window_within_the_sequence_is_a_mask(self, emulator, prompt):
        models = [self.model(name) for name in ("ffpa", "eager")]
        for model in models:
            model.config.sliding_window = 8
        logits, expected = (model(prompt).logits for model in models)
        torch.testing.assert_close(logits, expected, rtol=2e-2, atol=2e-2)
        variants = [name.rpartition("/")[2] for name, *_ in emulator.launches]
        assert variants == ["masked", "f32"]  # the window, then the global layer

    def test_a_position_bias_goes_to_torch(self, emulator):
        from ffpa.integrations.transformers import attention_forward

        q, bias = torch.randn(1, 2, LENGTH, 64).half(), torch.randn(1, 2, LENGTH, LENGTH).half()
        with pytest.warns(FallbackWarning, match="position bias"):
            out, _ = attention_forward(torch.nn.Module(), q, q, q, None, position_bias=bias)
        assert out.shape == (1, LENGTH, 2, 64) and not emulator.launches

    def test_training_goes_to_torch_and_gets_gradients(self, prompt):
        model = self.model("ffpa").float().train()
        with pytest.warns(FallbackWarning, match="forward only"):
            model(prompt, labels=prompt).loss.backward()
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        other = self.model("sdpa").float().train()
        other(prompt, labels=prompt).loss.backward()
        for name, parameter in other.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(grads[name], parameter.grad)

    @staticmethod
    def compiled(call, **options):
        """`call`(attention of a causal layer, *tensors), plain and compiled without a break."""
        from ffpa.integrations.transformers import attention_forward

        layer = torch.nn.Module()
        layer.is_causal = True

        def attend(*arguments, **options):
            return attention_forward(layer, *arguments, **options)[0]

        def plain(*tensors):
            return call(attend, *tensors)

        torch._dynamo.reset()
        return plain, torch.compile(plain, fullgraph=True, backend="aot_eager", **options)

    @torch.no_grad()
    def test_compiled_in_one_graph(self, emulator):
        plain, compiled = self.compiled(
            lambda attend, *qkv: attend(*qkv, None, scaling=0.5), dynamic=True
        )
        for length in (LENGTH, LENGTH + 9, 1):
            q, k = torch.randn(2, 4, length, 64).half(), torch.randn(2, 2, length, 64).half()
            expected = plain(q, k, k)
            assert compiled(q, k, k).equal(expected)
        assert len(emulator.launches) == 6

    @torch.no_grad()
    def test_compiled_a_position_bias_goes_to_torch(self, emulator):
        plain, compiled = self.compiled(
            lambda attend, q, bias: attend(q, q, q, None, position_bias=bias)
        )
        q, bias = torch.randn(1, 2, LENGTH, 64).half(), torch.randn(1, 2, LENGTH, LENGTH).half()
        with pytest.warns(FallbackWarning, match="position bias"):
            out = compiled(q, bias)
        with pytest.warns(FallbackWarning, match="position bias"):
            expected = plain(q, bias)
        assert out.equal(expected) and not emulator.launches

    def test_a_softcap_raises(self):  # N14
        from ffpa.integrations.transformers import attention_forward

        q = torch.randn(1, 2, LENGTH, 64).half()
        with pytest.raises(NotImplementedError, match="softcap is 50"):
            attention_forward(torch.nn.Module(), q, q, q, None, softcap=50)


class TestDiffusers:
    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("diffusers", reason="needs the extra ffpa[integrations]")

    def vae(self):
        from diffusers import AutoencoderKL

        torch.manual_seed(0)
        return AutoencoderKL(
            block_out_channels=(32, 64),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=4,
        ).eval()

    @torch.no_grad()
    def test_the_mid_blocks_of_a_vae(self, emulator):
        from ffpa.integrations.diffusers import use_in

        vae, image = self.vae().half(), torch.randn(2, 3, 16, 16).half()
        expected = vae(image).sample
        assert use_in(vae, strict=True) == 2  # of the encoder and of the decoder
        torch.testing.assert_close(vae(image).sample, expected, rtol=1e-2, atol=1e-2)
        assert len(emulator.launches) == 2

    @torch.no_grad()
    def test_in_float32_torch_runs_it(self, emulator):
        from ffpa.integrations.diffusers import use_in

        vae, image = self.vae(), torch.randn(1, 3, 16, 16)
        expected = vae(image).sample
        use_in(vae)
        with pytest.warns(FallbackWarning, match="float32"):
            found = vae(image).sample
        torch.testing.assert_close(found, expected)
        assert ffpa.last_kernel() == "torch" and not emulator.launches

    @torch.no_grad()
    @pytest.mark.filterwarnings("ignore::ffpa.FallbackWarning")
    def test_cross_attention_with_a_mask(self):
        from diffusers.models.attention_processor import Attention

        from ffpa.integrations.diffusers import use_in

        torch.manual_seed(0)
        layer = Attention(
            32, cross_attention_dim=24, heads=2, dim_head=16, qk_norm="layer_norm",
            residual_connection=True, rescale_output_factor=2.0,
        )  # fmt: skip
        x, source = torch.randn(3, 7, 32), torch.randn(3, 5, 24)
        mask = torch.zeros(3, 1, 5).masked_fill_(torch.rand(3, 1, 5) > 0.7, -1e4)
        expected = layer(x, encoder_hidden_states=source, attention_mask=mask)
        assert use_in(layer) == 1
        found = layer(x, encoder_hidden_states=source, attention_mask=mask)
        torch.testing.assert_close(found, expected)

    def test_added_projections_are_refused(self):
        from diffusers.models.attention_processor import Attention

        from ffpa.integrations.diffusers import AttnProcessor

        layer = Attention(32, heads=2, dim_head=16, added_kv_proj_dim=32)
        with pytest.raises(NotImplementedError, match="added key and value"):
            AttnProcessor()(layer, torch.randn(1, 4, 32))
