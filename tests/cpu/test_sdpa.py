"""The drop-in: torch's meaning on both paths, who ran and why, and nothing silent."""

import inspect
import threading
import warnings

import pytest
import torch
from torch.nn import functional

import ffpa
from ffpa import FallbackWarning
from ffpa.reference import attention_reference
from ffpa.sdpa import _torch_sdpa

OURS = "split_d-sm90/d256/fp16/f32"


def tensors(q=(2, 4, 72, 64), kv=None, dtype=torch.float16):
    return [torch.randn(shape, dtype=dtype) for shape in (q, kv or q, kv or q)]


def index_probe(seqlen_q, seqlen_k, dtype=torch.float32):
    """q = k = 0 and V[n] = n: each row is the mean of the key indexes that it sees."""
    q, k = torch.zeros(1, 1, seqlen_q, 8, dtype=dtype), torch.zeros(1, 1, seqlen_k, 8, dtype=dtype)
    return q, k, torch.arange(seqlen_k).to(dtype)[:, None].repeat(1, 1, 1, 8)


@pytest.fixture
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class TestOnOurKernel:
    pytestmark = pytest.mark.usefixtures("emulator", "silent")

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("seqlen_q, seqlen_k", [(20, 20), (20, 33), (33, 20), (1, 9)])
    def test_it_is_attention(self, seqlen_q, seqlen_k, causal):
        q, k, v = tensors((2, 4, seqlen_q, 64), (2, 2, seqlen_k, 64))
        out = ffpa.sdpa(q, k, v, None, 0.0, causal, 0.3, True)
        exact = attention_reference(q, k, v, is_causal=causal, scale=0.3)
        assert out.equal(exact.half()) and ffpa.last_kernel() != "torch"
        assert out.equal(
            ffpa.sdpa(query=q, key=k, value=v, is_causal=causal, scale=0.3, enable_gqa=True)
        )

    @pytest.mark.parametrize("shape", [(3, 64), (2, 3, 64), (2, 2, 2, 3, 64), (2, 1, 2, 2, 3, 64)])
    def test_any_rank(self, shape):  # S24
        q, k, v = tensors(shape)
        out = ffpa.sdpa(q, k, v, is_causal=True, strict=True)
        exact = _torch_sdpa(q.double(), k.double(), v.double(), is_causal=True)
        assert out.shape == exact.shape
        torch.testing.assert_close(out.double(), exact, rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("shape", [(1, 2, 20), (20,), (2, 1, 2, 20)])
    @pytest.mark.parametrize("headdim, value_headdim", [(576, 512), (192, 128), (64, 1)])
    def test_a_narrower_value(self, shape, headdim, value_headdim):  # S23
        q, k, v = (torch.randn(*shape, d).half() for d in (headdim, headdim, value_headdim))
        out = ffpa.sdpa(q, k, v, is_causal=True, strict=True)
        exact = _torch_sdpa(q.double(), k.double(), v.double(), is_causal=True)
        assert out.shape == exact.shape and out.is_contiguous()
        torch.testing.assert_close(out.double(), exact, rtol=1e-3, atol=1e-3)

    def test_a_narrower_value_of_whole_chunks_is_not_copied(self, monkeypatch):  # S23
        monkeypatch.delattr(functional, "pad")
        q, k, v = tensors((2, 4, 20, 192))
        assert ffpa.sdpa(q, k, v[..., :128], strict=True).equal(ffpa.sdpa(q, k, v)[..., :128])

    def test_five_dimensions_that_are_no_view(self):
        q, k, v = (t.transpose(0, 1) for t in tensors((2, 3, 2, 20, 64)))
        out = ffpa.sdpa(q, k, v, strict=True)
        assert out.equal(ffpa.sdpa(*(t.contiguous() for t in (q, k, v))))

    def test_the_output_has_the_stride_order_of_query(self):
        q, k, v = (torch.randn(2, 20, 3, 64).half().transpose(1, 2) for _ in range(3))
        assert ffpa.sdpa(q, k, v, strict=True).stride() == q.stride()

    @pytest.mark.parametrize(
        "q, kv", [((0, 2, 3, 64), None), ((1, 2, 0, 64), (1, 2, 5, 64)), ((1, 0, 3, 64), None)]
    )
    def test_empty(self, q, kv):  # S15
        out = ffpa.sdpa(*tensors(q, kv), strict=True)
        assert out.shape == q and ffpa.last_kernel() is None

    def test_no_keys(self):  # S15
        q, k, v = tensors((1, 2, 3, 64), (1, 2, 0, 64))
        out = ffpa.sdpa(q, k, v, strict=True)
        assert out.shape == q.shape and not out.any()

    def test_autocast_casts(self):  # R07
        q, k, v = (t.float() for t in tensors())
        with torch.autocast("cpu", torch.float16):
            out = ffpa.sdpa(q, k, v.half(), strict=True)
        assert out.equal(ffpa.sdpa(q.half(), k.half(), v.half()))

    def test_no_grad(self):  # R08
        q, k, v = tensors()
        with torch.no_grad():
            out = ffpa.sdpa(q.requires_grad_(), k, v, strict=True)
        assert not out.requires_grad and ffpa.last_kernel().startswith("split_d-sm90")


FALLBACKS = {
    "dropout": (tensors(), lambda *_: {"dropout_p": 1.0}, NotImplementedError, "dropout_p"),
    "float32": (tensors(dtype=torch.float32), lambda *_: {}, TypeError, "float32"),
    "a wider value": (
        [torch.randn(1, 2, 20, d).half() for d in (64, 64, 72)],
        lambda *_: {},
        NotImplementedError,
        "value has headdim 72",
    ),
    "the gradient of a mask": (
        tensors(),
        lambda *_: {"attn_mask": torch.zeros(72, 72, dtype=torch.half, requires_grad=True)},
        NotImplementedError,
        "forward only",
    ),
    "headdim 60": (tensors((1, 2, 20, 60)), lambda *_: {}, ValueError, "headdim 60"),
    "a broadcast batch": (
        tensors((2, 4, 20, 64), (1, 4, 20, 64)), lambda *_: {}, ValueError, "expand",
    ),
    "leading dimensions that differ": (
        tensors((1, 2, 2, 20, 64), (2, 1, 2, 20, 64)), lambda *_: {}, ValueError,
        "(1, 2), (2, 1) and (2, 1)",
    ),
    "strides": (  # S11
        [torch.randn(1, 2, 64, 20).half().mT for _ in range(3)], lambda *_: {}, ValueError,
        "has stride 20",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("emulator")
class TestOnTorch:
    @pytest.mark.parametrize("inputs, options, error, word", FALLBACKS.values(), ids=FALLBACKS)
    def test_one_warning_says_why_and_strict_raises_it(self, inputs, options, error, word):  # R12
        options = options(*inputs)
        with pytest.warns(FallbackWarning) as caught:
            out = ffpa.sdpa(*inputs, **options)
        assert len(caught) == 1 and caught[0].filename == __file__
        reason = str(caught[0].message)
        assert word in reason and "\n" not in reason
        assert ffpa.last_kernel() == "torch"
        expected = _torch_sdpa(*inputs, **options)
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
        with pytest.raises(error) as raised:
            ffpa.sdpa(*inputs, strict=True, **options)
        assert reason == f"torch runs this call: {raised.value}"

    def test_python_shows_the_warning_once_per_place(self):
        q, k, v = tensors()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(3):
                ffpa.sdpa(q, k, v, dropout_p=0.5)
        assert len(caught) == 1

    def test_gradients_are_torchs(self):  # R08
        q, k, v = (t.float().requires_grad_() for t in tensors())
        with pytest.warns(FallbackWarning, match="forward only"):
            out = ffpa.sdpa(q, k, v, is_causal=True)
        out.square().sum().backward()
        grads = [t.grad.clone() for t in (q, k, v)]
        for tensor in (q, k, v):
            tensor.grad = None
        _torch_sdpa(q, k, v, is_causal=True).square().sum().backward()
        assert all(t.grad.equal(g) for t, g in zip((q, k, v), grads, strict=True))

    def test_what_torch_refuses_stays_refused(self):
        q, k, v = tensors((1, 6, 20, 64), (1, 4, 20, 64))
        with pytest.warns(FallbackWarning, match="6 query heads"), pytest.raises(RuntimeError):
            ffpa.sdpa(q, k, v, enable_gqa=True)  # S05

    def test_nested_tensors(self):
        nested = torch.nested.nested_tensor([torch.randn(2, n, 64).half() for n in (3, 5)])
        with pytest.raises(TypeError, match="query is a nested tensor"):
            ffpa.sdpa(nested, nested, nested, strict=True)


@pytest.mark.usefixtures("emulator")
@pytest.mark.filterwarnings("ignore::ffpa.FallbackWarning")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=["ours", "torch's"])
class TestMasks:
    """One meaning, whoever runs the call."""

    @pytest.fixture(autouse=True)
    def path(self, dtype):
        self.dtype = dtype
        yield
        assert (ffpa.last_kernel() == "torch") == (dtype == torch.float32)

    def means(self, seqlen_q, seqlen_k, **options):
        inputs = index_probe(seqlen_q, seqlen_k, self.dtype)
        return ffpa.sdpa(*inputs, **options)[0, 0, :, 0].tolist()

    def test_a_row_that_sees_nothing(self):  # N07
        mask = torch.ones(4, 4, dtype=torch.bool)
        mask[2] = False
        assert self.means(4, 4, attn_mask=mask) == [1.5, 1.5, 0, 1.5]
        additive = torch.zeros(4, 4).masked_fill_(~mask, -torch.inf)
        assert self.means(4, 4, attn_mask=additive) == [1.5, 1.5, 0, 1.5]

    def test_a_very_negative_number_hides_nothing(self):  # N08
        mask = torch.zeros(4, 4)
        mask[2] = torch.finfo(torch.float32).min
        assert self.means(4, 4, attn_mask=mask)[2] == pytest.approx(1.5)

    def test_broadcast_masks(self):  # S13
        mask = torch.tensor([True, True, False, False, False]).expand(1, 1, 4, 5)
        assert self.means(4, 5, attn_mask=mask) == [0.5] * 4
        rows = torch.tensor([True, False, True, True])[:, None].expand(4, 4)
        assert self.means(4, 4, attn_mask=rows) == [1.5, 0, 1.5, 1.5]

    def test_causal_is_upper_left(self):  # N09, S01, S02
        assert self.means(5, 2, is_causal=True) == [0, 0.5, 0.5, 0.5, 0.5]
        assert self.means(2, 5, is_causal=True) == [0, 0.5]
        assert self.means(1, 8, is_causal=True) == [0]

    def test_a_window_counts_the_token_itself(self):  # S26
        distance = torch.arange(8)[:, None] - torch.arange(8)
        window = (distance >= 0) & (distance < 4)
        assert self.means(8, 8, attn_mask=window)[-1] == 5.5

    def test_nan_in_a_hidden_value_spreads(self):  # N11: documented, as in torch
        q, k, v = index_probe(4, 4, self.dtype)
        v[0, 0, 3] = torch.nan
        assert ffpa.sdpa(q, k, v, torch.tensor([[True, True, True, False]])).isnan().all()

    def test_a_mask_and_causal_apply_both(self):  # S14
        mask = torch.ones(4, 4, dtype=torch.bool)
        assert self.means(4, 4, attn_mask=mask, is_causal=True) == [0, 0.5, 1, 1.5]
        mask[:, 0] = False
        assert self.means(4, 4, attn_mask=mask, is_causal=True) == [0, 1, 1.5, 2]

    @pytest.mark.parametrize("shape", [(3, 64), (2, 3, 64), (2, 2, 2, 3, 64)])
    def test_with_any_rank(self, shape):  # S24
        q, k, v = (t.to(self.dtype) for t in tensors(shape))
        mask = torch.randn(*shape[:-3], 1, 3, 3).view(*shape[:-3], *(1, 3, 3)[-len(shape) :])
        out = ffpa.sdpa(q, k, v, mask)
        exact = _torch_sdpa(q.double(), k.double(), v.double(), mask.double())
        torch.testing.assert_close(out.double(), exact, rtol=2e-3, atol=2e-3)

    def test_any_row_stride_of_a_mask(self):  # S12
        mask = torch.ones(498, 500, dtype=torch.bool)[:, 1:499]
        assert self.means(498, 498, attn_mask=mask) == pytest.approx([248.5] * 498)


@pytest.mark.usefixtures("emulator")
class TestUse:
    @pytest.fixture(autouse=True)
    def undone(self):
        assert functional.scaled_dot_product_attention is _torch_sdpa
        yield
        assert functional.scaled_dot_product_attention is _torch_sdpa

    def layer(self, **options):
        ffpa.trace.ran(None)
        functional.scaled_dot_product_attention(*tensors(), **options)
        return ffpa.last_kernel()

    def test_inside_and_outside(self):
        with ffpa.use():
            assert self.layer() == OURS
            assert self.layer(scale=0.5, is_causal=True) == OURS
        assert self.layer() is None

    def test_as_a_function(self):
        replaced = ffpa.use()
        assert self.layer() == OURS
        replaced.undo()
        assert self.layer() is None
        replaced.undo()  # again is no error

    def test_an_exception_undoes_it(self):
        with pytest.raises(KeyError), ffpa.use():
            raise KeyError
        assert self.layer() is None

    def test_nested(self):
        with ffpa.use(strict=True):
            with ffpa.use():
                with pytest.warns(FallbackWarning) as caught:
                    assert self.layer(dropout_p=0.5) == "torch"
                assert caught[0].filename == __file__
            with pytest.raises(NotImplementedError, match="dropout_p"):
                self.layer(dropout_p=0.5)
            assert self.layer() == OURS
        assert self.layer() is None

    def test_undone_in_another_order(self):
        first, second = ffpa.use(), ffpa.use(strict=True)
        first.undo()
        with pytest.raises(NotImplementedError):
            self.layer(dropout_p=0.5)
        second.undo()

    def test_a_function_kept_from_inside_is_torchs_afterwards(self):
        with ffpa.use():
            kept = functional.scaled_dot_product_attention
        ffpa.trace.ran(None)
        inputs = tensors()
        assert kept(*inputs).equal(_torch_sdpa(*inputs)) and ffpa.last_kernel() is None

    def test_modules_of_torch(self):
        attention = torch.nn.MultiheadAttention(128, 2, batch_first=True).half().train()
        x = torch.randn(4, 72, 128).half()
        with ffpa.use(strict=True), torch.no_grad():
            attention(x, x, x, need_weights=False)
        assert ffpa.last_kernel() == OURS

    def test_all_threads(self):
        found = []
        ffpa.trace.ran(None)
        with ffpa.use():
            thread = threading.Thread(target=lambda: found.append(self.layer()))
            thread.start()
            thread.join()
            assert found == [OURS] and ffpa.last_kernel() is None  # each thread has its own


class TestCompiled:
    pytestmark = pytest.mark.usefixtures("emulator")

    def compiled(self, **options):
        def layer(q, k, v):
            return ffpa.sdpa(q * 2, k, v, **options) + 1

        torch._dynamo.reset()
        return layer, torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")

    def test_one_graph_for_all_lengths(self, silent):  # R06
        layer, compiled = self.compiled(is_causal=True, enable_gqa=True, strict=True)
        for batch, seqlen_q, seqlen_k in [(2, 20, 21), (3, 7, 30), (1, 1, 5), (0, 4, 4), (2, 5, 0)]:
            q, k, v = tensors((batch, 6, seqlen_q, 64), (batch, 2, seqlen_k, 64))
            out, expected = compiled(q, k, v), layer(q, k, v)
            assert out.equal(expected) and out.stride() == expected.stride()

    def test_the_kernel_runs(self):
        _, compiled = self.compiled()
        compiled(*tensors())
        assert ffpa.last_kernel() == OURS

    def test_what_no_kernel_takes(self):
        layer, compiled = self.compiled()
        inputs = tensors(dtype=torch.float32)
        with pytest.warns(FallbackWarning, match="float32"):
            out = compiled(*inputs)
        assert ffpa.last_kernel() == "torch"
        with pytest.warns(FallbackWarning):
            assert out.equal(layer(*inputs))

    def test_a_gradient(self):  # R08
        _, compiled = self.compiled(is_causal=True)
        q, k, v = (t.float().requires_grad_() for t in tensors())
        with pytest.warns(FallbackWarning, match="forward only"):
            compiled(q, k, v).square().sum().backward()
        found = q.grad.clone()
        q.grad = None
        (_torch_sdpa(q * 2, k, v, is_causal=True) + 1).square().sum().backward()
        torch.testing.assert_close(found, q.grad)

    def test_a_mask(self):
        mask = torch.ones(72, 72, dtype=torch.bool).tril_()
        _, compiled = self.compiled(attn_mask=mask)
        q, k, v = tensors()
        out = compiled(q, k, v)
        expected = _torch_sdpa(q * 2, k, v, attn_mask=mask) + 1
        torch.testing.assert_close(out, expected, rtol=2e-3, atol=2e-3)
        assert ffpa.last_kernel() == "split_d-sm90/d512/fp16/f32/masked"

    def test_dropout(self):
        _, compiled = self.compiled(dropout_p=1.0)
        with pytest.warns(FallbackWarning, match="dropout_p"):
            out = compiled(*tensors())
        assert out.eq(1).all()

    def test_a_narrower_value(self):  # S23
        layer, compiled = self.compiled(strict=True)
        q, k, v = tensors()
        out = compiled(q, k, v[..., :40])
        assert out.equal(layer(q, k, v)[..., :40]) and out.is_contiguous()

    @pytest.mark.parametrize(
        "q, k, v",
        [
            ((1, 4), (2, 4), (2, 4)),
            ((2, 4), (1, 4), (1, 4)),
            ((2, 4), (2, 1), (2, 1)),
            ((2, 1), (2, 4), (2, 4)),
            ((1, 4), (1, 4), (2, 4)),
            ((4,), (2, 4), (2, 4)),
            ((2, 4), (4,), (4,)),
            ((), (4,), (4,)),
            ((3, 1, 4), (2, 4), (2, 4)),
            ((0, 4), (1, 4), (1, 4)),
        ],
    )
    @pytest.mark.parametrize("value_headdim", [40, 64, 72])
    def test_leading_dimensions_broadcast_as_in_torch(self, q, k, v, value_headdim):
        layer, compiled = self.compiled()
        shapes = [(*q, 8, 64), (*k, 9, 64), (*v, 9, value_headdim)]
        inputs = [torch.randn(shape).half() for shape in shapes]
        with pytest.warns(FallbackWarning):
            out = compiled(*inputs)
        with pytest.warns(FallbackWarning):
            assert out.equal(layer(*inputs))
        assert out.shape == _torch_sdpa(*inputs).shape

    def test_a_batch_broadcasts_beside_grouped_heads(self):
        layer, compiled = self.compiled(enable_gqa=True)
        inputs = tensors((1, 4, 8, 64), (2, 2, 9, 64))
        with pytest.warns(FallbackWarning):
            out = compiled(*inputs)
        with pytest.warns(FallbackWarning):
            assert out.equal(layer(*inputs)) and out.shape == (2, 4, 8, 64)

    def test_what_does_not_broadcast_is_refused(self):
        _, compiled = self.compiled()
        with pytest.raises(Exception, match="broadcast"):
            compiled(*tensors((2, 4, 8, 64), (3, 4, 8, 64)))

    def test_opcheck_of_what_broadcasts(self):  # R04
        q, k, v = tensors((1, 4, 8, 64), (2, 4, 9, 64))
        with pytest.warns(FallbackWarning):
            torch.library.opcheck(
                torch.ops.ffpa.sdpa.default, (q, k, v, None, True, None, False, False)
            )

    @pytest.mark.parametrize("kv", [(2, 4, 21, 64), (2, 4, 72, 64)])
    def test_opcheck(self, kv):  # R04
        q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors(kv=kv))
        mask = torch.randn(kv[2]).expand(72, kv[2])
        torch.library.opcheck(
            torch.ops.ffpa.sdpa.default, (q, k, v, mask, True, None, False, False)
        )


def test_the_signature_is_torchs():
    ours = inspect.signature(ffpa.sdpa).parameters
    assert list(ours) == [
        "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
        "strict",
    ]  # fmt: skip
    defaults = {name: parameter.default for name, parameter in ours.items()}
    assert defaults["attn_mask"] is None and defaults["scale"] is None
    assert (defaults["dropout_p"], defaults["is_causal"], defaults["enable_gqa"]) == (
        0.0,
        False,
        False,
    )


def test_cpu_tensors_go_to_torch():  # R14
    q, k, v = tensors(dtype=torch.float32)
    with pytest.warns(FallbackWarning, match="float32"):
        assert ffpa.sdpa(q, k, v).equal(_torch_sdpa(q, k, v))
    q, k, v = tensors()
    with pytest.warns(FallbackWarning, match="on cpu"):
        assert ffpa.sdpa(q, k, v).equal(_torch_sdpa(q, k, v))


def test_the_log_names_the_kernel(emulator, caplog):
    with caplog.at_level("DEBUG", logger="ffpa"):
        ffpa.sdpa(*tensors())
    assert OURS in caplog.text
