"""Runs a probe (_probe.py) as a process of its own, and reads the facts it sends.

A driver may crash, hang, or write to standard output; none of that may take the command with it. So every look at
Vulkan happens in a child. Facts come through a pipe of their own, one JSON object a line, as soon as they are known:
what a child said before it died tells how far it came. The dynamic linker itself tells which library each symbol was
bound to, and what it loaded (LD_DEBUG=bindings,files, see ld.so(8)); that is the only witness that needs no cooperation
from the program.
"""

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

from . import _library
from ._progress import Step

TIMEOUT = 300.0  # seconds; compiling for a GPU the first time took up to 30 on a slow machine

_BINDING = re.compile(
    r"binding file (?P<user>.*?) \[\d+\] to (?P<owner>.*?) \[\d+\]: normal symbol `" + _library.BITCODE + "'"
)
_LOADED = re.compile(r"\t(?P<kind>calling init|initialize program): (?P<file>.+?)\s*$")


class Child(NamedTuple):
    facts: Dict[str, Any]  # the probe's, by the name of the step
    ended: Optional[str]  # what went wrong with the process itself; None: nothing
    errors: str  # the end of what it wrote to standard error


class Binding(NamedTuple):
    halide: str  # the library that looked the runtime up
    owner: str  # the one it was given


def _end_of(code: int) -> Optional[str]:
    if code == 0:
        return None
    if code < 0:
        try:
            return f"died of {signal.Signals(-code).name}"
        except ValueError:
            return f"died of signal {-code}"
    return f"ended with code {code}"


def probe(
    what: str,
    step: str,
    environment: Optional[Dict[str, str]] = None,
    arguments: Iterable[str] = (),
    timeout: float = TIMEOUT,
    each: Callable[[Dict[str, Any]], None] = lambda facts: None,
) -> Child:
    """Runs one of _probe.py's probes; `step` is what a waiting user is told, `each` is given the facts as they come."""
    here, there = os.pipe()
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_probe.py")
    command = [sys.executable, file, what, str(there), *arguments]
    facts: Dict[str, Any] = {}
    with tempfile.TemporaryFile() as errors, os.fdopen(here, encoding="utf-8", errors="replace") as pipe:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            pass_fds=[there],
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        os.close(there)
        too_late = threading.Event()

        def stop() -> None:
            too_late.set()
            process.kill()

        late = threading.Timer(timeout, stop)
        late.start()
        with Step(step) if step else contextlib.nullcontext():
            for line in pipe:
                try:
                    one = json.loads(line)
                except ValueError:  # cut by the child's death
                    break
                facts.update(one)
                each(one)
            code = process.wait()
        late.cancel()
        ended = f"did not end within {timeout:.0f} s" if too_late.is_set() else _end_of(code)
        errors.seek(0)
        return Child(facts, ended, errors.read().decode("utf-8", "replace")[-2000:])


class Watched(NamedTuple):
    code: int
    bindings: List[Binding]
    programs: List[str]  # that ran, as far as the dynamic linker tells
    libraries: List[str]  # that they loaded
    lost: List[str]  # programs that cannot be found by the name that they were started with


def watch(command: List[str], step: str, quiet: bool) -> Watched:
    """Runs a program and tells which library each libHalide in it, or in its children, took the runtime from."""
    with tempfile.TemporaryDirectory(prefix="halide-vulkan-") as folder:
        output = os.path.join(folder, "ld")
        env = {**os.environ, "LD_DEBUG": "bindings,files", "LD_DEBUG_OUTPUT": output}
        with Step(step):
            out = subprocess.DEVNULL if quiet else sys.stderr
            code = subprocess.run(command, env=env, stdout=out, stderr=out).returncode
        bindings = []
        # The command itself, too: the linker tells nothing of a program that is linked statically.
        programs = [shutil.which(command[0]) or command[0]]
        libraries, lost = [], []
        for name in sorted(glob.glob(glob.escape(output) + ".*")):
            with open(name, encoding="utf-8", errors="surrogateescape") as file:
                for line in file:
                    match = _BINDING.search(line)
                    if match:
                        bindings.append(Binding(match["user"], match["owner"]))
                        continue
                    match = _LOADED.search(line)
                    if match and match["kind"] == "calling init":
                        libraries.append(match["file"])
                    elif match and shutil.which(match["file"]):
                        programs.append(shutil.which(match["file"]) or "")
                    elif match:  # a name that held in the folder of its caller
                        lost.append(match["file"])

        def real(files: List[str]) -> List[str]:
            return list(dict.fromkeys(os.path.realpath(file) for file in files if os.path.isfile(file)))

        return Watched(code, bindings, real(programs), real(libraries), list(dict.fromkeys(lost)))
