"""What a child process looks at for the command; see _child.py. Run as a file: `_probe.py WHAT DESCRIPTOR`.

Each fact is sent as soon as it is known. Nothing here prints, and nothing is caught that the command can tell better.
"""

import ctypes
import json
import os
import pathlib
import struct
import sys
import time

LOADERS = ("libvulkan.so.1", "libvulkan.so")
VK_ERROR_INCOMPATIBLE_DRIVER = -9


class Sender:
    def __init__(self, descriptor):
        self.file = os.fdopen(descriptor, "w", encoding="utf-8")

    def __call__(self, **facts):
        self.file.write(json.dumps(facts) + "\n")
        self.file.flush()


def file_of(handle_name):
    """Where the dynamic linker found a library that is loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            file = line.rstrip("\n").split(None, 5)[-1]
            if os.path.basename(file).startswith(handle_name):
                return file
    return handle_name


def open_loader():
    """As the runtime does it: HL_VK_LOADER_LIB alone if it is set, else the usual names."""
    named = os.environ.get("HL_VK_LOADER_LIB")
    errors = []
    for name in (named,) if named else LOADERS:
        try:
            return ctypes.CDLL(name), name, ""
        except OSError as error:
            errors.append(str(error))
    return None, None, "; ".join(errors)


def manifests():
    """The drivers that the loader would try, and what keeps each from being opened."""
    named = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    if named:
        files = named.split(":")
    else:
        home = os.path.expanduser("~")
        folders = [os.environ.get("XDG_CONFIG_HOME") or home + "/.config"]
        folders += (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") + ["/etc"]
        folders += [os.environ.get("XDG_DATA_HOME") or home + "/.local/share"]
        folders += (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
        files = [str(f) for folder in folders for f in sorted(pathlib.Path(folder, "vulkan/icd.d").glob("*.json"))]
    found = []
    for file in files:
        one = {"file": file}
        try:
            library = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["ICD"]["library_path"]
            if "/" in library and not library.startswith("/"):
                library = str(pathlib.Path(file).parent / library)
            one["library"] = library
            ctypes.CDLL(library)
        except (OSError, ValueError, KeyError) as error:
            one["error"] = str(error)
        found.append(one)
    return found


def look_at_driver(loader):
    """Whether an instance can be made, and the number of devices, by the loader's exported functions."""
    create, enumerate_devices = loader.vkCreateInstance, loader.vkEnumeratePhysicalDevices
    enumerate_devices.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    version = ctypes.c_uint32(1 << 22)
    if hasattr(loader, "vkEnumerateInstanceVersion"):
        loader.vkEnumerateInstanceVersion(ctypes.byref(version))
    # VkInstanceCreateInfo: sType, pNext, flags, pApplicationInfo, two counts with their arrays.
    info = struct.pack("=IxxxxQIxxxxQIxxxxQIxxxxQ", 1, 0, 0, 0, 0, 0, 0, 0)
    instance = ctypes.c_void_p()
    result = create(info, None, ctypes.byref(instance))
    if result != 0:
        return {"result": result, "version": version.value, "devices": 0}
    count = ctypes.c_uint32()
    result = enumerate_devices(instance, ctypes.byref(count), None)
    return {"result": result, "version": version.value, "devices": count.value}


def loader(send):
    library, name, error = open_loader()
    if library is None:
        send(loader={"error": error})
        return
    send(loader={"file": file_of(os.path.basename(name))})
    driver = look_at_driver(library)
    send(driver=driver)
    if driver["devices"] == 0:
        send(manifests=manifests())


def package(send):
    """Imports the package as a program would, then describes the machine and runs a kernel on it."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
    import warnings

    warnings.simplefilter("ignore")
    import halide_vulkan

    send(library=str(halide_vulkan._library.in_use()))
    import halide as hl

    send(halide={"file": next(filter(halide_vulkan._library.is_halide, halide_vulkan._library.loaded()), None)})
    return halide_vulkan, hl


def describe(send):
    halide_vulkan, _ = package(send)
    send(describe=halide_vulkan.describe())


def kernel(send):
    halide_vulkan, hl = package(send)
    begin = time.monotonic()
    halide_vulkan._runtime._start()
    ours = halide_vulkan._runtime.started()
    send(started={"ours": ours, "seconds": round(time.monotonic() - begin, 3)})
    if ours:
        send(describe=halide_vulkan.describe())
    import numpy as np

    n = 10007  # no multiple of any alignment or workgroup
    begin = time.monotonic()
    source = hl.Buffer(np.arange(n, dtype=np.int32))
    x, xi = hl.Var("x"), hl.Var("xi")
    f = hl.Func("halide_vulkan_doctor")
    f[x] = source[x] * 3 + 1
    f.gpu_tile(x, xi, 64, hl.TailStrategy.GuardWithIf)
    try:
        result = f.realize([n], hl.Target("host-vulkan"))
        result.copy_to_host()
    except Exception as error:  # Halide's own exceptions derive from various bases
        send(kernel={"error": str(error).strip()})
        return
    wrong = int((np.asarray(result) != np.arange(n) * 3 + 1).sum())
    stats = halide_vulkan.stats()
    send(
        kernel={
            "wrong": wrong,
            "values": n,
            "seconds": round(time.monotonic() - begin, 3),
            "submissions": stats.submissions if stats else 0,
        }
    )


def bench(send):
    """One column of the benchmark: "stock" loads halide alone."""
    column, quick = sys.argv[3], sys.argv[4] == "quick"
    if column == "ours":
        package(send)
    import halide as hl
    import importlib.metadata
    import numpy as np

    send(halide=importlib.metadata.version("halide"))
    target = hl.Target("host-vulkan")
    x, xi = hl.Var("x"), hl.Var("xi")
    source = hl.ImageParam(hl.Int(32), 1, "source")
    f = hl.Func("bench")
    f[x] = source[x] + 1
    f.gpu_tile(x, xi, 256, hl.TailStrategy.GuardWithIf)
    source.dim(0).set_min(0)
    kernel = f.compile_to_callable([source], target)

    def buffer(n):
        made = hl.Buffer(hl.Int(32), [n])
        np.asarray(made)[:] = np.arange(n)
        made.set_host_dirty()
        made.copy_to_device(hl.DeviceAPI.Vulkan, target)
        return made

    small, out = buffer(16384), buffer(16384)
    large = buffer(12 << 20)

    def upload(one):
        one.set_host_dirty()
        one.copy_to_device(hl.DeviceAPI.Vulkan, target)

    def download(one):
        one.set_device_dirty()
        one.copy_to_host()

    def several(times, action):
        def run():
            for _ in range(times):
                action()
            out.device_sync()

        return run

    def launched():
        download(out)
        return bool((np.asarray(out) == np.arange(16384) + 1).all())

    def same(one):
        return lambda: bool((np.asarray(one) == np.arange(one.number_of_elements())).all())

    def uploaded(one):
        def check():
            np.asarray(one)[:] = 0
            download(one)
            return same(one)()

        return check

    rows = (
        # title, what is timed, operations in it, check of the result
        ("launch, back to back", several(64, lambda: kernel(small, out)), 64, launched),
        ("launch + device_sync", several(1, lambda: kernel(small, out)), 1, launched),
        ("idle device_sync", out.device_sync, 1, launched),
        ("upload 64 KiB + device_sync", several(1, lambda: upload(small)), 1, uploaded(small)),
        ("download 64 KiB", lambda: download(small), 1, same(small)),
        ("upload 48 MB + device_sync", several(1, lambda: upload(large)), 1, uploaded(large)),
        ("download 48 MB", lambda: download(large), 1, same(large)),
    )
    # The same file is in front of libHalide or is not; the registry tells after the first kernel.
    try:
        filled = ctypes.c_uint32.in_dll(ctypes.CDLL(None), "halide_vulkan_registry").value
    except ValueError:
        filled = 0
    send(runtime="ours" if filled else "stock")
    for title, action, operations, check in rows:
        send(begin=title)
        action()
        samples = []
        end = time.perf_counter() + (0.02 if quick else 1.0)
        while len(samples) < 3 or (time.perf_counter() < end and len(samples) < 2000):
            begin = time.perf_counter()
            action()
            samples.append((time.perf_counter() - begin) * 1e6 / operations)
        samples.sort()
        row = {"title": title, "median": samples[len(samples) // 2], "min": samples[0], "max": samples[-1]}
        send(row={**row, "samples": len(samples), "right": check()})
    if filled:
        halide_vulkan = sys.modules.get("halide_vulkan")
        send(device=halide_vulkan.device().name if halide_vulkan else "")


if __name__ == "__main__":
    # Run as a file, Python puts this folder first on the path; the modules here must not be found by bare names.
    sys.path.pop(0)
    {"loader": loader, "describe": describe, "kernel": kernel, "bench": bench}[sys.argv[1]](Sender(int(sys.argv[2])))
