"""Builds one project of the folder consumers, as a user of the CMake package would."""

import os
import subprocess
from pathlib import Path

E = os.environ
HERE = Path(__file__).parent / "consumers"

# What a user's machine does not have: our library at hand, or another one already in front of everything.
CLEAN = {name: value for name, value in E.items() if not name.startswith(("LD_PRELOAD", "HV_", "CMAKE_"))}


def run(*command, cwd=None, fails=False, messages=False):
    """What a command printed; with `messages`, or where it must fail, what it said on standard error too."""
    done = subprocess.run(
        [str(part) for part in command], env=CLEAN, cwd=cwd, capture_output=True, text=True, timeout=500
    )
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, f"{command}\n{text}"
    return text if fails or messages else done.stdout


def configure(source, build, *options, fails=False):
    halide = Path(E["HV_HALIDE_CMAKE"])
    return run(
        E["HV_CMAKE"], "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Debug",
        f"-DHalide_DIR={halide / 'Halide'}", f"-DHalideHelpers_DIR={halide / 'HalideHelpers'}",
        *options, fails=fails,
    )


def build(name, folder, *options):
    """Configures and builds consumers/NAME in `folder`, which is returned."""
    configure(HERE / name, folder, *options)
    run(E["HV_CMAKE"], "--build", folder, "--parallel", "2")
    return folder


INSTALLED = f"-DCMAKE_PREFIX_PATH={E['HV_PREFIX']}"
# The library is built from its source here; how well its bitcode is optimised makes no difference to how it is linked.
FROM_SOURCE = [f"-DHALIDE_VULKAN_SOURCE={E['HV_SOURCE']}", "-DHV_BITCODE_OPTIMIZATION=-O0"]
