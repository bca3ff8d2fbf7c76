"""Fixtures of the tests that need a GPU."""

import sys

import pytest
import torch


@pytest.fixture
def poisoned_workspace(monkeypatch):
    """What no split writes is NaN."""
    attention = sys.modules["ffpa.attention"]
    workspace = attention.workspace

    def fill(out, splits):
        memory = workspace(out, splits)
        for tensor in memory:
            if tensor is not None:
                tensor.fill_(torch.nan)
        return memory

    monkeypatch.setattr(attention, "workspace", fill)
