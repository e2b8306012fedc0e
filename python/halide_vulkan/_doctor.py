"""Says whether Halide runs on this runtime here, and if not, what is missing and how to get it.

    halide-vulkan doctor                            is everything there, and does a kernel run?
    halide-vulkan doctor -- program arguments ...   also runs that program and says which runtime it got

A program built ahead of time has its runtime inside; its file is read to find which.

Verdicts: ours, untried (ours, with a Halide that was not tried), stock (the program runs on Halide's own runtime),
unknown (its file does not tell), no-halide, no-loader, no-driver, no-device (none, or not the one that was asked for),
failed. The exit code is 0 for the first two.
"""

import argparse
import ctypes
import hashlib
import json
import os
import re
import shutil
from typing import Any, Dict, List, NamedTuple, Optional

from . import _child, _elf, _halide, _info, _library, _run, _runtime

GOOD = ("ours", "untried")


class Check(NamedTuple):
    name: str
    state: str  # ok, warn, fail
    text: str
    fix: str = ""  # what to do about it


class Report:
    def __init__(self) -> None:
        self.checks: List[Check] = []
        self.verdict = "ours"

    def add(self, name: str, state: str, text: str, fix: str = "", verdict: str = "") -> bool:
        """The first bad verdict stays, a good one gives way to it. Returns whether the check is no failure."""
        self.checks.append(Check(name, state, text, fix))
        if verdict and self.verdict in GOOD:
            self.verdict = verdict
        return state != "fail"

    def as_json(self) -> Dict[str, Any]:
        return {
            "verdict": self.verdict,
            "good": self.verdict in GOOD,
            "version": _library.version(),
            "checks": [check._asdict() for check in self.checks],
        }

    def as_text(self) -> str:
        lines = [f"halide-vulkan {_library.version()}"]
        for check in self.checks:
            lines.append(f"  {check.state:<5} {check.name:<9} {check.text}")
            lines += [f"{'':>18}{'-> ' if i == 0 else '   '}{line}" for i, line in enumerate(check.fix.splitlines())]
        lines.append(f"verdict: {self.verdict}: {VERDICTS[self.verdict]}")
        return "\n".join(lines)


VERDICTS = {
    "ours": "Halide runs on this runtime",
    "untried": "Halide runs on this runtime, but nobody tried this version of Halide with it before",
    "stock": "the program runs on the Vulkan runtime that Halide carries",
    "unknown": "the program may have a Vulkan runtime inside that cannot be told from here",
    "no-halide": "there is no Halide, or none that could take this runtime",
    "no-loader": "there is no Vulkan loader",
    "no-driver": "there is a Vulkan loader, but no driver",
    "no-device": "there is no device, or not the one that was asked for",
    "failed": "something is there that does not work",
}

GET_HALIDE = "pip install halide==" + _halide.TRIED_VERSIONS[-1]
GET_LOADER = """\
apt install libvulkan1             (Debian, Ubuntu)
dnf install vulkan-loader          (Fedora)
pacman -S vulkan-icd-loader        (Arch)"""
GET_DRIVER = """\
NVIDIA: the vendor's driver; in a container, NVIDIA_DRIVER_CAPABILITIES must hold `graphics`
AMD, Intel, or no GPU at all: apt install mesa-vulkan-drivers"""
FRONT = """\
Python: `import halide_vulkan` before `import halide`
any program, unchanged: halide-vulkan run -- program ...
C++: link libHalideVulkan.so before libHalide.so, with -Wl,--no-as-needed"""

AHEAD_OF_TIME = """\
built ahead of time: put libHalideVulkan.so in front of the generator, and build again
a Halide that is a part of the program: link libHalide.so instead, or build Halide with this runtime (tools/overlay)"""
NOT_TOLD = "name the program itself, by its whole path and as it was before it was stripped or packed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", nargs=argparse.REMAINDER, help="a program to look into, after --")


def bitcode_of(library: str) -> str:
    """The bitcode in a libHalideVulkan.so, as its size and the head of its SHA-256."""
    opened = ctypes.CDLL(library)
    length = ctypes.c_int.in_dll(opened, _library.BITCODE + "_length").value
    content = bytes((ctypes.c_char * length).in_dll(opened, _library.BITCODE))
    return f"{length} bytes, sha256 {hashlib.sha256(content).hexdigest()[:12]}"


def check_package(report: Report) -> None:
    library = str(_library.path())
    try:
        report.add("package", "ok", f"{_library.version()}: {library}, bitcode of {bitcode_of(library)}")
    except (OSError, ValueError) as error:
        report.add(
            "package", "fail", f"{library} is no {_library.NAME}: {error}", "install the package again", "failed"
        )
    for named in filter(None, re.split(r"[:\s]+", os.environ.get("LD_PRELOAD", ""))):
        if os.path.basename(named) == _library.NAME and not os.path.exists(named):
            report.add("preload", "warn", f"LD_PRELOAD names {named}, which is not there: it has no effect")


def check_halide(report: Report, needed: bool) -> bool:
    version = _halide.installed_version()
    if version is None and not needed:
        report.add("Halide", "warn", "not installed for this Python, so no kernel is tried here", GET_HALIDE)
        return False
    if version is None:
        return report.add("Halide", "fail", "not installed for this Python", GET_HALIDE, "no-halide")
    text = _halide.untried(version)
    if text:
        return report.add("Halide", "warn", text, verdict="untried")
    return report.add("Halide", "ok", version)


def check_vulkan(report: Report) -> bool:
    child = _child.probe("loader", "looking for the Vulkan loader and drivers")
    loader, driver = child.facts.get("loader"), child.facts.get("driver")
    if loader and "error" in loader:
        fix = GET_LOADER
        if os.environ.get("HL_VK_LOADER_LIB"):
            fix = "HL_VK_LOADER_LIB is set, so no other file is tried: correct it or unset it"
        return report.add("loader", "fail", f"no Vulkan loader: {loader['error']}", fix, "no-loader")
    if loader:
        report.add(
            "loader", "ok", loader["file"] + (f", Vulkan {_runtime.version_text(driver['version'])}" if driver else "")
        )
    if driver is None:
        text = f"asking the loader for devices {child.ended}: {last_line(child.errors)}"
        return report.add(
            "driver", "fail", text, "a driver is broken: VK_DRIVER_FILES=file.json leaves all others out", "failed"
        )
    if driver["devices"]:
        return report.add("driver", "ok", _info.counted(driver["devices"], "device"))
    tried = "; ".join(
        f"{one['file']}: {one.get('error', 'opened, but has no device')}" for one in child.facts["manifests"]
    )
    named = next((name for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES") if os.environ.get(name)), None)
    fix = f"{named} is set, so no other driver is tried: correct it or unset it\n{GET_DRIVER}" if named else GET_DRIVER
    return report.add(
        "driver", "fail", f"no driver with a device; tried: {tried or 'none is installed'}", fix, "no-driver"
    )


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["(it said nothing)"])[-1]


def check_device(report: Report, facts: Dict[str, Any]) -> bool:
    if "chosen" not in facts:
        verdict = "no-device" if facts["stage"] == "choice" else "failed"
        fix = "halide-vulkan info lists the devices" if verdict == "no-device" else ""
        return report.add("device", "fail", facts["error"], fix, verdict)
    device = facts["devices"][facts["chosen"]]
    text = f"{facts['chosen']} = {device['name']} ({device['type']}), chosen by: {facts['chosen_by']}"
    if device["type"] == "cpu" and not any(facts["request"].values()):
        fix = "if there is a GPU, its driver is missing: " + GET_DRIVER.splitlines()[0]
        return report.add("device", "warn", text + "; kernels run on the CPU, which is slow", fix)
    return report.add("device", "ok", text)


def check_kernel(report: Report) -> bool:
    """`import halide_vulkan`, `import halide`, one kernel."""
    child = _child.probe("kernel", "starting Halide and running a kernel")
    facts = child.facts
    if "halide" not in facts:
        # The import itself failed: the library's own words are the best there are.
        return report.add("in front", "fail", f"import {child.ended}: {last_line(child.errors)}", verdict="failed")
    if "started" not in facts:
        return report.add(
            "in front", "fail", f"starting Halide {child.ended}: {last_line(child.errors)}", verdict="failed"
        )
    if not facts["started"]["ours"]:
        text = f"{facts['halide']['file']} does not take the runtime of a library in front of it"
        return report.add("in front", "fail", text, f"this Halide is built in another way; {GET_HALIDE}", "stock")
    report.add("in front", "ok", f"{facts['library']} is in front of {facts['halide']['file']}")
    if facts["library"] != str(_library.path()):
        text = f"not the package's own library, but another, with bitcode of {bitcode_of(facts['library'])}"
        report.add("in front", "warn", text, "LD_PRELOAD brought it")
    if not check_device(report, facts.get("describe", {"stage": "process", "error": f"no description: {child.ended}"})):
        return False
    kernel = facts.get("kernel")
    if kernel is None:
        return report.add("kernel", "fail", f"running one {child.ended}: {last_line(child.errors)}", verdict="failed")
    if "error" in kernel:
        return report.add("kernel", "fail", kernel["error"], verdict="failed")
    if kernel["wrong"]:
        text = f"{kernel['wrong']} of {kernel['values']} values are wrong"
        return report.add(
            "kernel", "fail", text, "this is a fault: please report it with `halide-vulkan info --json`", "failed"
        )
    if child.ended:
        return report.add("kernel", "fail", f"right, but then the process {child.ended}", verdict="failed")
    return report.add("kernel", "ok", f"all {kernel['values']} values are right, after {kernel['seconds']} s")


def check_program(report: Report, program: List[str]) -> bool:
    command = _run.command_of(program)
    if shutil.which(command[0]) is None:
        return report.add("program", "fail", f"no such program: {command[0]}", verdict="failed")
    try:
        watched = _child.watch(command, f"running {command[0]}", quiet=False)
    except OSError as error:  # it is there, and the system cannot start it
        return report.add("program", "fail", f"{command[0]} cannot be run: {error.strerror}", verdict="failed")
    if watched.code:
        report.add("program", "warn", f"{' '.join(command)} ended with code {watched.code}")
    good = True
    for halide, owner in dict.fromkeys(watched.bindings):
        if os.path.basename(owner) == _library.NAME:
            report.add("program", "ok", f"{halide} in it takes the runtime of {owner}")
        elif _elf.held_by(owner).runtime == _elf.OURS:
            report.add("program", "ok", f"{halide} in it was built with this runtime inside")
        else:
            good = report.add("program", "fail", f"{halide} in it uses its own Vulkan runtime", FRONT, "stock")
    # What was built ahead of time, and a Halide that is part of a program, look nothing up.
    looked_up = {os.path.realpath(file) for binding in watched.bindings for file in binding}
    files = dict.fromkeys(watched.programs + watched.libraries)
    held = {file: _elf.held_by(file) for file in files if file not in looked_up and not _library.is_ours(file)}
    found = bool(watched.bindings)
    for file, one in held.items():
        if one.runtime == _elf.OURS:
            found = report.add("program", "ok", f"{file} {one.how}")
        elif one.runtime == _elf.STOCK:
            found, good = True, report.add("program", "fail", f"{file} {one.how}", AHEAD_OF_TIME, "stock")
    if found:
        return good
    # Libraries are left out: the drivers of the system, and what they load, open Vulkan too.
    unknown = {file: held[file].how for file in watched.programs if file in held and held[file].runtime == _elf.UNKNOWN}
    unknown.update((file, "was started in another folder, so its file was not found") for file in watched.lost)
    for file, how in unknown.items():
        report.add("program", "fail", f"{file} {how}", NOT_TOLD, "unknown")
    if not unknown:
        text = "loaded no libHalide.so that looks for a runtime, and nothing it loaded has one inside"
        report.add("program", "fail", text, verdict="no-halide")
    return False


def examine(program: Optional[List[str]] = None) -> Report:
    report = Report()
    check_package(report)
    halide, vulkan = check_halide(report, needed=not program), check_vulkan(report)
    if halide and vulkan:
        check_kernel(report)
    if program:
        check_program(report, program)
    return report


def main(options: argparse.Namespace) -> int:
    program = [one for one in options.program[:1] if one != "--"] + options.program[1:]
    report = examine(program or None)
    print(json.dumps(report.as_json(), indent=1) if options.json else report.as_text())
    return 0 if report.verdict in GOOD else 1
