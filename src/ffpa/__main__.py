"""`python -m ffpa doctor`: is this machine ready to build, run and measure?"""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ffpa", description=__doc__)
    parser.add_argument("command", choices=["doctor"])
    parser.parse_args(arguments)
    try:
        from ffpa.doctor import run
    except ModuleNotFoundError as error:
        print(f"{error.name} is not installed: pip install -e '.[report]'", file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
