"""Values narrower than keys, in every kernel: into guarded memory, against float64."""

import pytest
from harness import INSTANCES, Case, assert_accurate, normal, over, poisoned, run_guarded

from ffpa.support import ONE_HEADDIM

pytestmark = pytest.mark.gpu

CASES = [Case(1, 300, 8, 1), Case(130, 200, 4, 2, "upper_left"), Case(70, 129, 2, 2, "lower_right")]


def headdims_v(headdim):
    """One chunk, off the boxes and panels, whole boxes, and one chunk less than all."""
    some = {8, headdim // 3 // 8 * 8 + 8, headdim * 2 // 3 // 64 * 64, headdim - 64, headdim - 8}
    return sorted(size for size in some if size > 0)


@pytest.mark.parametrize("case", CASES, ids=str)
@over([i for i in INSTANCES if not i["id"].startswith(ONE_HEADDIM)])
@pytest.mark.usefixtures("poisoned_workspace")
def test_a_narrower_value(instance, case):  # S23
    for headdim in (instance["headdim"], instance["headdim"] - 8):
        q = normal(1, case.nheads_q, case.seqlen_q, headdim, dtype=instance["dtype"])
        shape = (1, case.nheads_kv, case.seqlen_k)
        k, wide = (normal(*shape, headdim, dtype=instance["dtype"], seed=s) for s in (1, 2))
        for headdim_v in headdims_v(headdim):
            v = wide[..., :headdim_v]
            splits = 3 if instance["splits"] or instance["id"] == "split_kv-sm80" else None
            views = [poisoned(t) for t in (q, k, v)]
            out, lse = run_guarded(instance, *views, case.diagonal, splits)
            assert_accurate(instance, out, lse, q, k, v, case.diagonal)
