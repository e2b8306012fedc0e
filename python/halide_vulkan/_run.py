"""Runs any program, unchanged, with this runtime in front of Halide's own.

    halide-vulkan run -- ./program arguments ...
    halide-vulkan run program.py arguments ...         (the same as: python -m halide_vulkan run program.py ...)

A file that ends in .py is run with this Python. The program takes the place of this command: its exit code, its input
and its output are its own. Programs that it starts get the runtime too.
"""

import argparse
import json
import os
import re
import shutil
import sys
from typing import Dict, List

from . import _library

NOT_FOUND, CANNOT_RUN = 127, 126  # as a shell says it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments, after --")


def environment() -> Dict[str, str]:
    """The environment in which every program gets the library first. ValueError where LD_PRELOAD cannot name it."""
    library = str(_library.path().resolve())
    if _library.missing():  # the dynamic linker would say so too, and go on without it
        raise ValueError(_library.missing())
    if re.search(r"[:\s]", library):
        raise ValueError(
            f"LD_PRELOAD cannot name a path with spaces or colons in it: {library}; install the package elsewhere, or "
            f"name a copy of the library with {_library.OVERRIDE}"
        )
    others = [one for one in re.split(r"[:\s]+", os.environ.get("LD_PRELOAD", "")) if one and one != library]
    return {**os.environ, "LD_PRELOAD": ":".join([library, *others])}


def command_of(program: List[str]) -> List[str]:
    if program and program[0] == "--":
        program = program[1:]
    if program and program[0].endswith(".py"):
        return [sys.executable, *program]
    return program


def main(options: argparse.Namespace) -> int:
    command = command_of(options.program)
    if not command:
        print("halide-vulkan run: which program? halide-vulkan run -- program arguments ...", file=sys.stderr)
        return 2
    try:
        env = environment()
    except ValueError as error:
        print(f"halide-vulkan run: {error}", file=sys.stderr)
        return 2
    if shutil.which(command[0]) is None:
        print(f"halide-vulkan run: no such program: {command[0]}", file=sys.stderr)
        return NOT_FOUND
    if options.json:  # to standard error: standard output is the program's
        print(json.dumps({"command": command, "LD_PRELOAD": env["LD_PRELOAD"]}), file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:  # it is there, and the system cannot start it
        print(f"halide-vulkan run: {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
    return CANNOT_RUN
