"""The command: info, doctor, bench, run."""

import argparse
import sys
from typing import List, Optional

from . import _bench, _doctor, _info, _library, _run

DESCRIPTION = "A Vulkan runtime for Halide, in front of the one that Halide carries."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halide-vulkan", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=_library.version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="info|doctor|bench|run")
    for name, module in (("info", _info), ("doctor", _doctor), ("bench", _bench), ("run", _run)):
        summary = (module.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(name, help=summary, description=module.__doc__)
        sub.formatter_class = argparse.RawDescriptionHelpFormatter
        sub.add_argument("--json", action="store_true", help="print one JSON object instead of text")
        module.add_arguments(sub)
        sub.set_defaults(main=module.main)
    return parser


def main(arguments: Optional[List[str]] = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        code: int = options.main(options)
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
