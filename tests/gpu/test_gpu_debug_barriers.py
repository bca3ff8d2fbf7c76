"""A debug build's barriers on the GPU: a wait for nobody ends, and says who waits for what."""

import re
import subprocess
from pathlib import Path

import pytest
import torch

from ffpa_build.errors import BuildError
from ffpa_build.flags import DEBUG_BARRIERS, gencode
from ffpa_build.nvcc import find_nvcc

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).with_name("hang.cu")
CSRC = Path(__file__).parents[2] / "csrc"
LIMIT_S = 60  # for what ends after about a second


def test_a_hang_says_who_waits(tmp_path):
    try:
        nvcc = find_nvcc()
    except BuildError as error:
        pytest.skip(f"needs a CUDA compiler: {error}")
    major, minor = torch.cuda.get_device_capability()
    program = tmp_path / "hang"
    command = [
        str(nvcc.path),
        "-std=c++20",
        DEBUG_BARRIERS,
        f"-I{CSRC}",
        *gencode((f"{major}{minor}",)),
    ]
    subprocess.run([*command, str(SOURCE), "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=LIMIT_S)
    assert re.search(r"^CTA [01] thread 7 hangs: consumer for K, parity 0$", done.stdout, re.M)
    assert done.returncode == 1 and done.stdout.splitlines()[-1].startswith("cudaError")
