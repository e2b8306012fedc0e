"""The library: where it lies, whether it is in front of libHalide, and loading it there.

Facts come from the dynamic linker's own list of loaded objects, which is in the order of loading. Linux only: other
systems bind symbols in other ways.
"""

import ctypes
import importlib.metadata
import os
import pathlib
import sys
from typing import List, Optional

NAME = "libHalideVulkan.so"
REGISTRY = "halide_vulkan_registry"
# The symbol by which libHalide finds its Vulkan runtime on 64-bit machines other than Windows.
BITCODE = "halide_internal_initmod_vulkan_64"
# Names another libHalideVulkan.so than the package's own: that of a build tree, say.
OVERRIDE = "HALIDE_VULKAN_LIBRARY"


def version() -> str:
    try:
        return importlib.metadata.version("halide-vulkan")
    except importlib.metadata.PackageNotFoundError:  # used from a source tree
        return "0+unknown"


def path() -> pathlib.Path:
    """The libHalideVulkan.so that this package loads."""
    named = os.environ.get(OVERRIDE)
    return pathlib.Path(named) if named else pathlib.Path(__file__).with_name(NAME)


def missing() -> str:
    """What to say of the library that would be loaded where it is not there; empty: it is."""
    named = f", which {OVERRIDE} names," if os.environ.get(OVERRIDE) else ""
    return "" if path().is_file() else f"{path()}{named} is not there"


class _Object(ctypes.Structure):
    """dl_phdr_info of <link.h>, as far as it is read here."""

    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Object), ctypes.c_size_t, ctypes.c_void_p)


def loaded() -> List[str]:
    """Every shared object of this process, first loaded first."""
    names: List[str] = []

    def visit(found, _size, _data):  # type: ignore[no-untyped-def]
        names.append(os.fsdecode(found.contents.name or b""))
        return 0

    try:
        ctypes.CDLL(None).dl_iterate_phdr(_Visit(visit), None)
    except (AttributeError, TypeError) as error:
        raise ImportError(f"halide_vulkan needs Linux, this is {sys.platform}") from error
    return names


def is_ours(name: str) -> bool:
    return os.path.basename(name) == NAME


def is_halide(name: str) -> bool:
    return os.path.basename(name).startswith("libHalide.so")


def _first(names: List[str], wanted) -> Optional[int]:  # type: ignore[no-untyped-def]
    return next((place for place, name in enumerate(names) if wanted(name)), None)


def is_global() -> bool:
    """Whether a library that is loaded from now on would find our symbols."""
    try:
        ctypes.c_uint32.in_dll(ctypes.CDLL(None), REGISTRY)
        return True
    except ValueError:
        return False


def halide_is_loaded() -> bool:
    return _first(loaded(), is_halide) is not None


def is_in_front() -> bool:
    """Whether libHalide, if it is loaded, was loaded after us."""
    names = loaded()
    ours, halide = _first(names, is_ours), _first(names, is_halide)
    return ours is not None and is_global() and (halide is None or ours < halide)


def in_use() -> Optional[pathlib.Path]:
    """The libHalideVulkan.so of this process: LD_PRELOAD may have brought another than the package's."""
    names = loaded()
    ours = _first(names, is_ours)
    return None if ours is None else pathlib.Path(names[ours])


TOO_LATE = """\
halide_vulkan was imported after libHalide was loaded, so Halide runs on its own Vulkan runtime and nothing can change
that in this process. Do one of these:
  - move `import halide_vulkan` before the first `import halide`, also before imports of modules that import halide;
  - run the program unchanged with `python -m halide_vulkan run program.py ...`."""


def is_the_command() -> bool:
    """Whether this process is `halide-vulkan`, or `python -m halide_vulkan`, and no program that imports the package."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return name == "halide-vulkan" or (name == "-m" and "halide_vulkan" in getattr(sys, "orig_argv", ()))


def load() -> None:
    """Loads the library where libHalide will look. ImportError if that is impossible."""
    if halide_is_loaded():
        if not is_in_front():
            raise ImportError(TOO_LATE)
        return
    if is_global():  # LD_PRELOAD, or a program that is linked with it
        return
    library = path()
    if missing():
        raise ImportError(f"halide_vulkan: {missing()}; install the package halide-vulkan again")
    try:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(f"halide_vulkan: {library} cannot be loaded: {error}") from error
