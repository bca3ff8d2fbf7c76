"""Headline figure 2: how much faster F32 accumulation is than SDPA's efficient attention."""

from .headdim import speedup_figure
from .sheet import Sheet

SHEET = Sheet(
    name="headdim_speedup_f32",
    title="Speed-up over SDPA efficient attention, F32 accumulation",
    experiment="headdim",
    build=speedup_figure("headdim_speedup_f32", acc="f32"),
)
