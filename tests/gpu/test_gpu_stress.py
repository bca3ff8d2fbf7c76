"""Random launches end, and repeated ones give the same bits, while other work comes and goes."""

import math
import os
import random
import sys
import time

import pytest
import torch
from harness import DEVICE, DTYPES, INSTANCES, normal, over, sample, stand_ins

from ffpa.attention import launch
from ffpa.problem import mask_diagonal
from ffpa.split_kv import KERNEL as SPLIT_KV
from ffpa.split_kv import splits_of

pytestmark = pytest.mark.gpu

BATCH = 50  # launches that are in flight together
LIMIT_S = 30.0  # for a batch, which takes milliseconds: beyond it a kernel hangs
LONGEST = 2048
HEADS = 8


class Load:
    """Matrix products of changing size on a stream of their own, or none."""

    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.matrix = normal(4096, 4096)

    def change(self, dice):
        size = dice.choice([0, 256, 1024, 4096])
        with torch.cuda.stream(self.stream):
            for _ in range(8 if size else 0):
                torch.mm(self.matrix[:size, :size], self.matrix[:size, :size])


def finish(launches):
    """Wait for the device; a hang ends the process, for nothing else can follow on the device."""
    done = torch.cuda.Event()
    done.record()
    deadline = time.monotonic() + LIMIT_S
    while not done.query():
        if time.monotonic() > deadline:
            print(f"no end after {LIMIT_S:g} s, one of:", *launches, sep="\n", file=sys.stderr)
            os._exit(1)
        time.sleep(1e-4)


def random_length(dice):
    return int(math.exp(dice.uniform(0.0, math.log(LONGEST))))


def random_launch(dice, instance, memory, seen):
    """Tensors of random sizes in `memory`, a random triangle, and an attn_mask out of `seen`."""
    batch = dice.choice([1, 1, 2, 3])
    group = dice.choice([1, 2, 4])
    nheads_kv = dice.randint(1, HEADS // group)
    seqlen_q, seqlen_k = random_length(dice), random_length(dice)
    headdim = dice.randrange(8, instance["headdim"] + 1, 8)
    mask = dice.choice(["full", "upper_left", "lower_right"])
    shapes = [(nheads_kv * group, seqlen_q), (nheads_kv, seqlen_k), (nheads_kv, seqlen_k)]
    q, k, v = (
        memory[i, : batch * heads * seqlen * headdim].view(batch, heads, seqlen, headdim)
        for i, (heads, seqlen) in enumerate(shapes)
    )
    attn_mask = None
    if instance["masks"]:
        rows = dice.choice([1, seqlen_q])
        attn_mask = dice.choice([None, seen[:rows, :seqlen_k]])
    return q, k, v, mask_diagonal(seqlen_q, seqlen_k, mask != "full", mask), attn_mask


@pytest.mark.parametrize("kernel", sorted({i["id"] for i in INSTANCES} - {"naive"}))
def test_random_launches_end(kernel, request):
    """--launches of them; a few run twice, one after the other, and have to agree."""
    instances = [instance for instance in INSTANCES if instance["id"] == kernel]
    dice = random.Random(0)
    load = Load()
    memory = {name: normal(3, 3 * HEADS * LONGEST * 1024, dtype=name) for name in DTYPES}
    seen = normal(LONGEST, LONGEST) > -0.5
    for _ in range(0, request.config.getoption("--launches"), BATCH):
        in_flight, pairs = [], []
        load.change(dice)
        for turn in range(BATCH):
            instance = dice.choice(instances)
            q, k, v, diagonal, attn_mask = random_launch(
                dice, instance, memory[instance["dtype"]], seen
            )
            masked = attn_mask is not None
            in_flight.append((instance["name"], tuple(q.shape), tuple(k.shape), diagonal, masked))
            outs = [torch.full_like(q, torch.nan) for _ in range(2 if turn == 0 else 1)]
            lse = torch.empty(q.shape[:3], device=DEVICE)
            for out in outs:
                launch(instance, q, k, v, out, lse, q.shape[3] ** -0.5, diagonal, attn_mask)
            pairs.append((outs[0], outs[-1]))
        right = torch.stack([first.eq(last).all() for first, last in pairs])  # NaN equals nothing
        finish(in_flight)
        wrong = [text for text, good in zip(in_flight, right.tolist(), strict=True) if not good]
        assert not wrong, wrong


def thirty_runs(instance, seqlen_q=1500, masked=False):
    """Under a load that changes; with a causal mask, and an attn_mask where one is asked for."""
    q, k, v = (
        normal(1, 4, seqlen, instance["headdim"], dtype=instance["dtype"], seed=seed)
        for seed, seqlen in enumerate((seqlen_q, 1999, 1999))
    )
    attn_mask = normal(seqlen_q, 1999, seed=3) > -0.5 if masked else None
    diagonal = 1999 - seqlen_q
    dice, load, runs = random.Random(0), Load(), []
    for _ in range(30):
        load.change(dice)
        out, lse = torch.full_like(q, torch.nan), torch.empty(q.shape[:3], device=DEVICE)
        launch(instance, q, k, v, out, lse, q.shape[3] ** -0.5, diagonal, attn_mask)
        runs.append((out, lse))
    finish([instance["name"]])
    assert not runs[0][0].isnan().any()
    assert all(out.equal(runs[0][0]) and lse.equal(runs[0][1]) for out, lse in runs)


@over([*sample(*range(64, 1025, 64)), *stand_ins()])
def test_thirty_runs_give_the_same_bits(instance):
    thirty_runs(instance)


@over([instance for instance in INSTANCES if instance["masks"]])
def test_thirty_masked_runs_give_the_same_bits(instance):
    thirty_runs(instance, masked=True)


@pytest.mark.parametrize("masked", [False, True])
@over([instance for instance in INSTANCES if instance["id"] == SPLIT_KV])
def test_thirty_runs_over_split_keys_give_the_same_bits(instance, masked):
    q, k = (normal(1, 4, n, instance["headdim"], dtype=instance["dtype"]) for n in (3, 1999))
    assert splits_of(instance, q, k, 1996) > 1
    thirty_runs(instance, seqlen_q=3, masked=masked)
