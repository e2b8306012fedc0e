"""Calls into the running runtime, through the registry of libHalideVulkan.so.

In JIT the runtime is a module that only libHalide knows. When it starts it enters its functions into the page that
libHalideVulkan.so exports as `halide_vulkan_registry`; see src/interpose/README.md.
"""

import ctypes
import dataclasses
import json
from typing import Any, Dict, List, Optional

from . import _library

# Places in the registry.
_GET_STATS, _INTERFACE, _DESCRIBE = 0, 1, 2
_ENTRIES = 16


class _Registry(ctypes.Structure):
    _fields_ = [
        ("abi_version", ctypes.c_uint32),
        ("entry_count", ctypes.c_uint32),
        ("entries", ctypes.c_void_p * _ENTRIES),
    ]


class _Stats(ctypes.Structure):
    """struct halide_vulkan_stats of src/runtime/halide_vulkan_stats.h; a test compares the two."""

    _fields_ = [
        ("submissions", ctypes.c_uint64),
        ("in_flight", ctypes.c_uint64),
        ("barriers", ctypes.c_uint64),
        ("waits", ctypes.c_uint64),
        ("reserved_bytes", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
        ("staging_bytes", ctypes.c_uint64),
        ("device_name", ctypes.c_char * 256),
        ("pipelines", ctypes.c_uint64),
        ("pipeline_ns", ctypes.c_uint64),
        ("cache_read_bytes", ctypes.c_uint64),
        ("cache_written_bytes", ctypes.c_uint64),
        ("cache_writes", ctypes.c_uint64),
        ("cache_note", ctypes.c_char * 256),
        ("version", ctypes.c_uint64),
        ("struct_bytes", ctypes.c_uint64),
        ("commands", ctypes.c_uint64),
        ("batches", ctypes.c_uint64),
        ("submissions_by_flusher", ctypes.c_uint64),
        ("submissions_refused", ctypes.c_uint64),
        ("barriers_spared", ctypes.c_uint64),
        ("wait_ns", ctypes.c_uint64),
        ("waits_blocked", ctypes.c_uint64),
        ("staging_reserved_bytes", ctypes.c_uint64),
        ("memory_blocks", ctypes.c_uint64),
    ]


class _Interface(ctypes.Structure):
    """The head of halide_device_interface_t (HalideRuntime.h)."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("malloc", "free", "sync", "release")]


@dataclasses.dataclass(frozen=True)
class Stats:
    """Counts since the device was made."""

    submissions: int  #: vkQueueSubmit calls that succeeded
    in_flight: int  #: of them, not known to be done
    barriers: int  #: between commands, because they conflict
    waits: int  #: times a call waited for the GPU
    reserved_bytes: int  #: device memory held in blocks
    used_bytes: int  #: of it, in buffers
    staging_bytes: int  #: staging memory in flight
    device_name: str
    pipelines: int  #: made, from the pipeline cache or anew
    pipeline_ns: int  #: what that took, added up over threads
    cache_read_bytes: int  #: of the pipeline cache on disk: what this device began with
    cache_written_bytes: int  #: what it wrote
    cache_writes: int
    cache_note: str  #: what last went wrong with the pipeline cache on disk; empty: nothing
    version: int  #: of this struct that the runtime fills
    struct_bytes: int  #: its size as the runtime knows it
    commands: int  #: kernels and copies in all submissions
    batches: int  #: submissions of two commands or more
    submissions_by_flusher: int  #: by the thread that submits what a quiet caller left open
    submissions_refused: int  #: the driver refused them; what they were to write is lost
    barriers_spared: int  #: commands that needed no barrier before them
    wait_ns: int  #: time that calls spent waiting for the GPU, added up over threads
    waits_blocked: int  #: waits that slept in the driver; the others ended while they polled
    staging_reserved_bytes: int  #: memory held for staging
    memory_blocks: int  #: blocks of device memory


@dataclasses.dataclass(frozen=True)
class Device:
    """One device of the machine. `describe()` has its limits, memory and plan."""

    index: int  #: its place in the loader's list, as HL_VK_DEVICE takes it
    name: str
    type: str  #: discrete-gpu, integrated-gpu, virtual-gpu, cpu or other
    uuid: str  #: empty on devices of Vulkan 1.0
    api_version: str
    driver: str  #: name and version, as far as the driver tells
    chosen_by: Optional[str]  #: what made the runtime choose this one; None: it did not
    in_use: bool  #: the runtime has opened it


def _function(place: int, result: Any, *arguments: Any) -> Any:
    """The runtime's function at that place; None while no runtime has started."""
    if not _library.is_global():
        return None
    registry = _Registry.in_dll(ctypes.CDLL(None), _library.REGISTRY)
    if registry.abi_version == 0 or registry.entry_count <= place:
        return None
    return ctypes.CFUNCTYPE(result, *arguments)(registry.entries[place])


def _start() -> None:
    """Makes Halide load its Vulkan runtime, by compiling a kernel that is never run. No device is touched."""
    import halide as hl

    x, xi = hl.Var("x"), hl.Var("xi")
    f = hl.Func("halide_vulkan_start")
    f[x] = x
    f.gpu_tile(x, xi, 16)
    f.compile_jit(hl.Target("host-vulkan"))


def started() -> bool:
    """Whether our runtime has started in this process: Halide has compiled for Vulkan, and found ours."""
    return _function(_GET_STATS, ctypes.c_int) is not None


def active() -> bool:
    """Whether Halide's Vulkan pipelines run on this runtime, in this process.

    Certain once a pipeline was compiled for Vulkan. Before, it says that our library is in front of libHalide.
    """
    return started() or _library.is_in_front()


def stats() -> Optional[Stats]:
    """What the runtime has done so far; None while it has no device."""
    get = _function(_GET_STATS, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    raw = _Stats()
    if get is None or get(None, ctypes.byref(raw), ctypes.sizeof(raw)) != 0:
        return None
    values = {name: getattr(raw, name) for name, *_ in _Stats._fields_}
    for name in ("device_name", "cache_note"):
        values[name] = values[name].decode("utf-8", "replace")
    return Stats(**values)


def describe() -> Dict[str, Any]:
    """Everything the runtime tells of the machine and of its plan: what `halide-vulkan info --json` prints.

    Imports halide and compiles a kernel if that was not done yet; opens no device. The names in it are those of
    src/runtime/vulkan_describe.h. With "error" in it, "stage" says how far it came.
    """
    signature = (ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    call = _function(_DESCRIBE, *signature)
    if call is None:
        _start()
        call = _function(_DESCRIBE, *signature)
    if call is None:
        raise RuntimeError("this process runs on the Vulkan runtime that Halide carries; see `halide-vulkan doctor`")
    room = 16384
    while True:
        text = ctypes.create_string_buffer(room)
        needed = call(None, text, room)
        if needed <= room:
            facts: Dict[str, Any] = json.loads(text.value.decode("utf-8", "replace"))
            return facts
        room = needed  # a device may have come in between: look again


def version_text(number: int) -> str:
    return f"{number >> 22 & 127}.{number >> 12 & 1023}.{number & 4095}"


def devices_in(facts: Dict[str, Any]) -> List[Device]:
    found = []
    for index, one in enumerate(facts.get("devices", [])):
        found.append(
            Device(
                index=index,
                name=one["name"],
                type=one["type"],
                uuid=one["uuid"],
                api_version=version_text(one["api_version"]),
                driver=" ".join(filter(None, (one.get("driver_name"), one.get("driver_info")))),
                chosen_by=facts.get("chosen_by") if facts.get("chosen") == index else None,
                in_use=facts.get("in_use") == index,
            )
        )
    return found


def devices() -> List[Device]:
    """Every device of the machine, in the loader's order."""
    return devices_in(describe())


def device() -> Device:
    """The device in use; before there is one, the device that would be chosen now.

    RuntimeError with the runtime's own message when there is none, or none that was asked for.
    """
    facts = describe()
    found = [one for one in devices_in(facts) if one.chosen_by]
    if not found:
        raise RuntimeError(facts.get("error", "no device"))
    return found[0]


def release() -> None:
    """Waits for the device's work and gives everything on it back, memory first of all. The next pipeline starts afresh.

    Buffers that still have a copy on the device lose it: copy what is needed to the host before.
    """
    get = _function(_INTERFACE, ctypes.POINTER(_Interface))
    if get is None:
        return
    interface = get()
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(interface.contents.release)
    call(None, interface)
