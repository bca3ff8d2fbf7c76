"""Runs one compiler: `python -m ffpa_build.compile LOG COMMAND…`.

What ptxas reports per kernel goes to the file LOG; the terminal gets the rest. A compiler that the
kernel killed is explained, because "Killed" alone sends people the wrong way.
"""

import re
import subprocess
import sys
from pathlib import Path

from .jobs import GIB, JOB_BYTES

REPORT = re.compile(r"^ptxas info|^\s+\d+ bytes stack frame")
KILLED = re.compile(r"Killed|died due to signal 9")


def main(log: str, *command: str) -> int:
    """Run `command`; its exit code."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    Path(log).write_text(done.stdout)
    for line in done.stdout.splitlines():
        if not REPORT.match(line):
            print(line)
    if done.returncode and (done.returncode in (-9, 137) or KILLED.search(done.stdout)):
        print(
            f"ffpa: a compiler was killed, most likely because memory ran out: a job takes up to "
            f"{JOB_BYTES // GIB} GiB, so set MAX_JOBS lower (MAX_JOBS=1 is the least)"
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
