"""Builds ffpa._C with nvcc and ninja; everything that decides how is in src/ffpa_build."""

import sys
from pathlib import Path

from setuptools import Extension, setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

from ffpa_build.extension import commands

setup(ext_modules=[Extension("ffpa._C", sources=[])], cmdclass=commands())
