"""Shows the devices, their limits and memory, and which path the plan chose for each and why."""

import argparse
import json
import sys
from typing import Any, Dict, Iterable, List

from . import _child, _runtime

HEAP_FLAGS = ((1, "device-local"),)
TYPE_FLAGS = ((1, "device-local"), (2, "host-visible"), (4, "host-coherent"), (8, "host-cached"))
QUEUE_FLAGS = ((1, "graphics"), (2, "compute"), (4, "transfer"))
COMPUTE, GRAPHICS = 2, 1
FLUSH_MODES = ("auto", "count", "always")
# Halide's names for what a device can do beyond the least, with ours.
FEATURES = (
    ("float64", "vk_float64"),
    ("float16", "vk_float16"),
    ("int8", "vk_int8"),
    ("int16", "vk_int16"),
    ("int64", "vk_int64"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true", help="limits and plans of every device, not of the chosen one only"
    )


def counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def words(number: int, names: Iterable["tuple[int, str]"], otherwise: str) -> str:
    return " ".join(word for bit, word in names if number & bit) or otherwise


def size(number: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if number >> shift and number % (1 << shift) == 0:
            return f"{number >> shift} {unit}"
    if number >> 30:
        return f"{number / (1 << 30):.1f} GiB"
    return f"{number} bytes"


def target_of(device: Dict[str, Any]) -> str:
    """What HL_JIT_TARGET may be on this device, so that Halide uses all it has."""
    major, minor = device["api_version"] >> 22 & 127, device["api_version"] >> 12 & 1023
    parts = ["host", "vulkan", f"vk_v{major}{min(minor, 3)}"]
    return "-".join(parts + [name for key, name in FEATURES if device.get("features", {}).get(key)])


def reasons(device: Dict[str, Any]) -> List["tuple[str, str]"]:
    """The plan, each line with its why."""
    plan = device["plan"]
    cpu = device["type"] == "cpu"
    types = device["types"]

    def order(key: str) -> str:
        return ", ".join(f"{i} ({words(types[i]['flags'], TYPE_FLAGS, 'plain')})" for i in plan[key][:2]) or "none"

    flags = device["families"][plan["queue_family"]]["flags"]
    lines = [
        (
            "queue",
            f"family {plan['queue_family']}: "
            + (
                "computes and also does graphics, no other computes"
                if flags & GRAPHICS
                else "computes without graphics"
            ),
        ),
        ("buffers", f"memory types {order('buffer_types')}"),
        ("staging", f"memory types {order('staging_types')}"),
        ("scalars", f"memory types {order('scalar_types')}"),
        (
            "small uploads",
            "written straight into device memory: the CPU sees all of it"
            if plan["direct_uploads"]
            else "through staging: the CPU does not see the whole device memory, or HL_VK_DIRECT=0",
        ),
        (
            "downloads",
            "read in place: device memory is cached by the CPU"
            if plan["direct_downloads"]
            else "through staging: the CPU reads device memory slowly or not at all",
        ),
        (
            "device copies",
            "large dense ones by a kernel"
            if plan["copy_kernel"]
            else "by the copy command"
            + (": a kernel gains nothing on a CPU device" if cpu else ": HL_VK_COPY_KERNEL=0"),
        ),
        (
            "waiting",
            "spins for a learnt time, then blocks"
            if plan["spin"]
            else "blocks: "
            + ("a CPU device needs the core" if cpu else "one usable core" if plan["cores"] == 1 else "HL_VK_SPIN=0"),
        ),
        (
            "large copies",
            f"shared by {counted(plan['copy_threads'], 'thread')} beside the caller; "
            + counted(plan["cores"], "usable core"),
        ),
        (
            "submission",
            f"{FLUSH_MODES[plan['flush_mode']]}; "
            + (
                "a thread submits what a quiet caller left"
                if plan["flush_thread"]
                else "no thread of ours, every command"
            ),
        ),
    ]
    if plan["storage_range"] != device["limits"]["maxStorageBufferRange"]:
        lines.append(("bindable", f"{size(plan['storage_range'])}: what the device reports is known to be too little"))
    return lines


def chosen_text(facts: Dict[str, Any]) -> str:
    request = {name: value for name, value in facts.get("request", {}).items() if value != ""}
    asked = ", ".join(f"{name}={value}" for name, value in request.items()) or "nothing was asked for"
    if "chosen" not in facts:
        return f"chosen: none ({asked})"
    by = facts["chosen_by"]
    why = f"{by}; nothing was asked for" if not request else f"by {by}; {asked}"
    return f"chosen: {facts['chosen']} ({why})"


def device_lines(index: int, facts: Dict[str, Any], full: bool) -> List[str]:
    device = facts["devices"][index]
    mark = "*" if facts.get("chosen") == index else " "
    driver = " ".join(filter(None, (device.get("driver_name"), device.get("driver_info"))))
    lines = [
        f"{mark} {index}  {device['name']} ({device['type']}), Vulkan {_runtime.version_text(device['api_version'])}",
        f"     driver {driver or device['driver_version']}, UUID {device['uuid'] or 'unknown'}",
    ]
    if not device["computes"]:
        lines.append("     cannot compute")
    if not full:
        return lines
    lines.append(f"     HL_JIT_TARGET={target_of(device)}")
    for i, heap in enumerate(device["heaps"]):
        lines.append(f"     heap {i}: {size(heap['size'])}, {words(heap['flags'], HEAP_FLAGS, 'host')}")
    for i, kind in enumerate(device["types"]):
        lines.append(f"     memory type {i}: heap {kind['heap']}, {words(kind['flags'], TYPE_FLAGS, 'plain')}")
    for i, family in enumerate(device["families"]):
        flags = words(family["flags"], QUEUE_FLAGS, "other").replace(" ", ", ")
        lines.append(f"     queue family {i}: {counted(family['queues'], 'queue')}: {flags}")
    lines.append("     limits:")
    for name, value in device["limits"].items():
        shown = " x ".join(map(str, value)) if isinstance(value, list) else str(value)
        lines.append(f"       {name} {shown}")
    if "plan" in device:
        lines.append("     plan:")
        lines += [f"       {name}: {text}" for name, text in reasons(device)]
    return lines


def text_of(facts: Dict[str, Any], every: bool) -> str:
    lines = [f"runtime {facts['version']}, {facts['flavour']}"]
    if "loader_version" in facts:
        lines[0] += f"; asks for Vulkan {_runtime.version_text(facts['loader_version'])}"
    lines.append(chosen_text(facts))
    for index in range(len(facts.get("devices", []))):
        lines += device_lines(index, facts, every or facts.get("chosen") == index)
    return "\n".join(lines)


def main(options: argparse.Namespace) -> int:
    child = _child.probe("describe", "starting Halide and looking at the devices")
    facts = child.facts.get("describe")
    if facts is None:
        error = child.ended or "no answer"
        last = child.errors.strip().splitlines()[-1:] or [""]
        facts = {"error": f"the look at the machine {error}: {last[0]}; `halide-vulkan doctor` finds out why"}
        if options.json:
            print(json.dumps(facts, indent=1))
        else:
            print(facts["error"], file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(facts, indent=1))
    else:
        print(text_of(facts, options.all))
        if "error" in facts:
            print(facts["error"], file=sys.stderr)
    return 1 if "error" in facts else 0
