"""Headline figure 3: the rate of every contestant, with the ceiling measured in the same run."""

import functools

from . import headdim
from .sheet import Sheet

NAME = "headdim_tflops"
SHEET = Sheet(
    name=NAME,
    title="Rate of every contestant over the head dimension",
    experiment="headdim",
    build=functools.partial(
        headdim.build,
        name=NAME,
        quantity="tflops",
        unit="TFLOP/s",
        contestants=lambda contestant: True,
    ),
)
