"""How ffpa._C is built. Standard library only, apart from setuptools and pybind11 at build time.

The extension gets pointers, strides and a stream, and links the CUDA runtime statically; it sees no
torch header and no torch library. So neither nvcc and torch nor their CUDA versions have to match,
and one binary serves every torch of the same Python.
"""
