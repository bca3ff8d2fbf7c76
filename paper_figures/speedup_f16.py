"""Headline figure 1: how much faster F16 accumulation is than SDPA's efficient attention."""

from .headdim import speedup_figure
from .sheet import Sheet

SHEET = Sheet(
    name="headdim_speedup_f16",
    title="Speed-up over SDPA efficient attention, F16 accumulation",
    experiment="headdim",
    build=speedup_figure("headdim_speedup_f16", acc="f16"),
)
