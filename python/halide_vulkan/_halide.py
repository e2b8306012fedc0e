"""Which Halide is installed, and whether it was tried with this runtime.

The runtime goes into Halide through symbols and bitcode, which Halide does not promise to keep. So a version that was
never tried is told about, by a warning and not an error: it will most likely work.
"""

import importlib.metadata
import warnings
from typing import Optional

TRIED_VERSIONS = ("19.0.0", "21.0.0")
# The runtime is bitcode of LLVM 19, and Halide N has LLVM N.
OLDEST_MAJOR = 19


class UntriedHalideWarning(UserWarning):
    """The installed Halide is not one of TRIED_VERSIONS."""


def installed_version() -> Optional[str]:
    try:
        return importlib.metadata.version("halide")
    except importlib.metadata.PackageNotFoundError:
        return None


def untried(version: Optional[str]) -> Optional[str]:
    """What to say about a version; None when there is nothing to say."""
    if version is None or version in TRIED_VERSIONS:
        return None
    tried = " and ".join(TRIED_VERSIONS)
    major = version.split(".")[0]
    if major.isdigit() and int(major) < OLDEST_MAJOR:
        return f"Halide {version} cannot read this runtime, which is bitcode of LLVM {OLDEST_MAJOR}; tried are {tried}"
    return f"halide_vulkan was not tried with Halide {version}; tried are {tried}. `halide-vulkan doctor` tries it"


def warn_if_untried() -> None:
    text = untried(installed_version())
    if text:
        warnings.warn(text, UntriedHalideWarning, stacklevel=3)
