"""Fixtures of the tests that need no GPU."""

from emulator import emulator  # noqa: F401
