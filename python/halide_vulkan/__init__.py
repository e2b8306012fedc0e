"""Puts the halide-vulkan runtime in front of Halide's own. Import it before ``halide``; that is all:

    import halide_vulkan
    import halide as hl

From then on every pipeline of this process that targets Vulkan runs on it. ``active()`` says whether that is so,
``device()`` which device it is, ``stats()`` what was done, ``release()`` gives the device back. A program that cannot
be changed is run with ``python -m halide_vulkan run program.py``; ``halide-vulkan doctor`` says what is wrong.

Why the order matters: libHalide finds its Vulkan runtime by a symbol, which the dynamic linker binds when libHalide is
loaded, to the first library that has it. Too late is an ImportError here, never a silent fall back to the other one.
"""

from ._halide import TRIED_VERSIONS, UntriedHalideWarning, warn_if_untried
from ._library import is_the_command, load, version
from ._runtime import Device, Stats, active, describe, device, devices, release, stats

__all__ = [
    "Device",
    "Stats",
    "TRIED_VERSIONS",
    "UntriedHalideWarning",
    "active",
    "describe",
    "device",
    "devices",
    "release",
    "stats",
]
__version__ = version()

try:
    load()
except ImportError:
    if not is_the_command():  # which says in its own words what is wrong
        raise
warn_if_untried()
