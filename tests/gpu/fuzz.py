"""Random calls for a while: `python tests/gpu/fuzz.py --seconds 600 [--seed N] [--record FILE]`.

Each call is either right, compared with float64, or refused by one clean sentence, the same that
`ffpa.supports` gives. Poison lies around every input; each call is made a second time, with other
poison around boolean masks and with NaN around output and log-sum-exp, and has to give the same
bits. The seed is printed; a failing call is printed with its number, and `--seed N --only NUMBER`
runs it alone, in the same build. Exit code 1 when any call was wrong. tests/gpu/sanitize.py runs a
part under compute-sanitizer: `--tight` leaves out the poison there, so that what is read outside a
tensor is outside its allocation.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import torch
from harness import DEVICE, DTYPES, INSTANCES, run_guarded, surrounded

import ffpa
from ffpa.attention import empty_output
from ffpa.errors import UnsupportedError
from ffpa.inputs import positive_scale
from ffpa.numerics import error_bound
from ffpa.problem import mask_diagonal
from ffpa.reference import attention_reference
from ffpa.support import ONE_HEADDIM
from ffpa_build.sources import checks_hash

LENGTHS = [1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 257, 500]
ACCS = ["f32"] * 5 + ["f16", "qk32_pv16", "qk16_pv32", "f16f32"]
MASKS = ["bool", "F32", "element", "keys"]
FAULTS = [
    "dtype", "mixed", "headdim", "heads", "lengths", "strides", "address", "mask", "device", "rank",
    "empty", "scale",
]  # fmt: skip


class WrongError(Exception):
    """A call whose result or refusal is not as promised."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--calls", type=int, help="stop after so many")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", type=int, help="the number of one call")
    parser.add_argument("--tight", action="store_true", help="no poison around the inputs")
    parser.add_argument("--record", type=Path, help="write the counts as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no CUDA device visible")
    print(f"seed {options.seed}", flush=True)

    counts: Counter[str] = Counter()
    failures = []
    reached: set[str] = set()
    started = time.monotonic()
    end = started + options.seconds
    number = options.only or 0
    while time.monotonic() < end and (options.calls is None or number < options.calls):
        call = Call(random.Random(f"{options.seed} {number}"), options.tight)
        try:
            counts[call.run(reached)] += 1
        except Exception as error:  # whatever it is, it is a finding
            failures.append(f"call {number}: {type(error).__name__}: {error}; {call}")
            print(failures[-1], flush=True)
            if "CUDA error" in str(error):
                break  # the context is lost
        number += 1
        if options.only is not None:
            break

    result = {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "source_hash": ffpa.build_info()["source_hash"],
        "tests_hash": checks_hash(Path(__file__).parents[2], "gpu_fuzz"),
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
        "calls": number,
        "counts": counts,
        "instances": len(reached),
        "failures": failures,
    }
    print(json.dumps({key: value for key, value in result.items() if key != "failures"}))
    if options.record:
        options.record.write_text(json.dumps(result, indent=1) + "\n")
    if not failures:
        print(f"{number} calls: all right")
    return 1 if failures else 0


class Call:
    """One random call.

    A quarter break a rule. Of the others three quarters are drawn to suit an instance of the build
    and have to run; the rest are drawn blindly, and kernels drawn by name refuse most of those:
    they have no such D, accumulator or mask.
    """

    def __init__(self, rng: random.Random, tight: bool) -> None:
        self.rng, self.tight = rng, tight
        self.dtype = rng.choice(list(DTYPES))
        self.batch, self.nheads_kv = rng.randint(1, 3), rng.randint(1, 3)
        self.nheads_q = self.nheads_kv * rng.choice([1, 1, 2, 3, 5, 8])
        self.seqlen_q, self.seqlen_k = rng.choice(LENGTHS), rng.choice(LENGTHS)
        self.headdim = 8 * rng.randint(1, 128)
        self.headdim_v = min(self.headdim, rng.choice([1024] * 3 + [8 * rng.randint(1, 128)]))
        self.align = rng.choice([None, "upper_left", "lower_right"])
        self.acc = rng.choice(ACCS)
        self.kernel = rng.choice(["auto"] * 4 + sorted({i["id"] for i in INSTANCES}))
        self.scale = rng.choice([None] * 4 + [0.1, -0.1, 0.0])
        self.mask = rng.choice([None] * 3 + MASKS)
        self.fault = rng.choice([None] * 32 + FAULTS)
        self.values = rng.randrange(2**31)
        self.blind = rng.random() < 0.25
        if not self.blind:
            self.suit(rng.choice(INSTANCES))

    def suit(self, instance) -> None:
        """Make it a call that this instance takes: by its name, its kernel's, or unnamed."""
        self.dtype, self.acc = instance["dtype"], instance["acc"]
        most = instance["headdim"] // 8
        self.headdim = 8 * self.rng.randint(self.rng.choice([most, max(1, most - 7), 1]), most)
        self.headdim_v = min(self.headdim, self.headdim_v)
        if instance["id"].startswith(ONE_HEADDIM):
            self.headdim_v = self.headdim
        if not instance["masks"]:
            self.mask = None
        self.kernel = self.rng.choice(["auto", instance["id"], instance["name"]])

    def __str__(self) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if key != "rng")

    def run(self, reached: set[str]) -> str:
        """Make the call and judge it; returns what it was, and adds the instance that ran."""
        q, k, v = self.tensors()
        options = {
            "is_causal": self.align is not None,
            "causal_align": self.align or "upper_left",
            "scale": float("nan") if self.fault == "scale" else self.scale,
            "enable_gqa": True,
            "acc": self.acc,
            "kernel": self.kernel,
            "attn_mask": self.make_mask(q, k, outside=True),
        }
        support = ffpa.supports(q, k, v, **options)
        if not support:
            self.expect_refusal(support.reason, q, k, v, options)
            return "refused"
        out, lse = ffpa.attention(q, k, v, return_lse=True, **options)
        self.judge(out, lse, q, k, v, options)
        if not (q.numel() and k.numel()):
            return "right, and empty"
        reached.add(support.instance["name"])
        diagonal = mask_diagonal(self.seqlen_q, self.seqlen_k, self.align is not None, self.align)
        positive, scale = positive_scale(q, self.scale)
        guarded, guarded_lse = run_guarded(
            support.instance, positive, k, v, diagonal,
            attn_mask=self.make_mask(q, k, outside=False), scale=scale,
        )  # fmt: skip
        if not (guarded.equal(out) and guarded_lse.equal(lse)):
            raise WrongError("the same call gave other bits")
        return "right"

    def tensors(self) -> list[torch.Tensor]:
        generator = torch.Generator(DEVICE).manual_seed(self.values)
        odd = 4 if self.fault == "headdim" else 0
        headdims = [self.headdim + odd, self.headdim + odd, self.headdim_v + odd]
        lengths = [self.seqlen_q, self.seqlen_k, self.seqlen_k]
        heads = [self.nheads_q, self.nheads_kv, self.nheads_kv]
        if self.fault == "heads":
            heads = [self.nheads_kv * 2 + 1, self.nheads_kv * 2, self.nheads_kv * 2]
        if self.fault == "lengths":
            lengths[2] += 1
        if self.fault == "empty":
            lengths[self.rng.choice([0, 1])] = 0
            lengths[2] = lengths[1]
        made = []
        for count, length, headdim in zip(heads, lengths, headdims, strict=True):
            shape = (self.batch, count, length, headdim)
            tensor = torch.randn(shape, generator=generator, device=DEVICE).to(DTYPES[self.dtype])
            columns = 8 * self.rng.choice([0, 1, 3])
            if self.rng.random() < 0.5:
                tensor = self.poisoned(tensor, torch.nan, 64, columns)
            else:  # heads lie within a position
                turned = self.poisoned(tensor.transpose(1, 2), torch.nan, 1, columns)
                tensor = turned.transpose(1, 2)
            made.append(tensor)
        turn = self.rng.randrange(3)
        made[turn] = self.spoil(made[turn])
        return made

    def poisoned(self, tensor: torch.Tensor, fill: float, rows: int, columns: int) -> torch.Tensor:
        return tensor.contiguous() if self.tight else surrounded(tensor, fill, rows, columns)

    def spoil(self, tensor: torch.Tensor) -> torch.Tensor:
        batch, heads, seqlen, headdim = tensor.shape
        if self.fault == "dtype":
            return tensor.short()
        if self.fault == "mixed":
            return tensor.float()
        if self.fault == "device":
            return tensor.cpu()
        if self.fault == "rank":
            return tensor[0]
        if self.fault == "strides":
            return tensor.new_zeros(batch, heads, headdim, seqlen + 1)[..., :seqlen].mT
        if self.fault == "address":
            return tensor.new_zeros(batch, heads, seqlen, headdim + 8)[..., 4:-4]
        return tensor

    def make_mask(self, q: torch.Tensor, k: torch.Tensor, outside: bool) -> torch.Tensor | None:
        """The call's mask, the same each time; `outside` lies around a boolean one, else NaN."""
        if self.mask is None or q.dim() != 4 or k.dim() != 4:
            return None
        shape = (self.batch, q.shape[1], q.shape[2], k.shape[2])
        if self.fault == "mask":
            return torch.zeros(*shape[:3], shape[3] + 2, device=DEVICE)
        generator = torch.Generator(DEVICE).manual_seed(self.values)
        values = torch.randn(shape, generator=generator, device=DEVICE)
        values.masked_fill_(values > 0.7, -torch.inf)
        columns = self.values % 4  # so that rows begin at any address
        if self.mask in ("bool", "keys"):
            seen = values > -torch.inf
            seen = seen[:1, :1, :1] if self.mask == "keys" else seen
            return self.poisoned(seen, outside, 64, columns)
        if self.mask == "element":  # not that of q, which may be spoiled
            values = values.to(DTYPES[self.dtype])
        return self.poisoned(values, torch.nan, 64, columns)

    def expect_refusal(self, reason, q, k, v, options) -> None:
        if not reason or "\n" in reason:
            raise WrongError(f"the reason is no sentence: {reason!r}")
        try:
            ffpa.attention(q, k, v, **options)
        except UnsupportedError as error:
            if str(error) != reason:
                raise WrongError(f"supports said {reason!r}, the call {error!r}") from None
        else:
            raise WrongError(f"ran, though supports said {reason!r}")
        if self.valid:
            raise WrongError(f"refused: {reason}")

    @property
    def valid(self) -> bool:
        """Whether some kernel has to take it."""
        plain = self.acc == "f32" and self.kernel == "auto"
        return (plain or not self.blind) and self.fault in (None, "empty")

    def judge(self, out, lse, q, k, v, options) -> None:
        exact, exact_lse = attention_reference(
            q, k, v, return_lse=True,
            **{key: options[key] for key in ("is_causal", "causal_align", "scale", "attn_mask")},
        )  # fmt: skip
        if out.shape != exact.shape or out.stride() != empty_output(q, v).stride():
            raise WrongError(f"shape {out.shape} or strides {out.stride()}")
        if not out.numel():
            return
        error = ((out.double() - exact).norm() / exact.norm().clamp(min=1e-30)).item()
        # The model's bound is for the usual scale; what F16 scores lose grows with theirs.
        spread = max(1.0, abs(self.scale or 0.0) * q.shape[3] ** 0.5)
        bound = 2 * spread * error_bound(self.acc, self.dtype, max(self.seqlen_k, 1), q.shape[3])
        if not error <= bound:
            raise WrongError(f"relative error {error:.2e} is above {bound:.2e}")
        unseen = exact_lse == -torch.inf
        if not lse[unseen].eq(-torch.inf).all() or out[unseen].any():
            raise WrongError("a row that sees no key is not zero with lse -inf")
        tolerance = 1e-3 if self.acc in ("f32", "qk32_pv16") else 5e-2 * spread
        if not (lse - exact_lse)[~unseen].abs().lt(tolerance).all():
            raise WrongError("the log-sum-exp is off")


if __name__ == "__main__":
    sys.exit(main())
