"""Runs one kernel on Vulkan and says on whose runtime. With an argument, loads that library before halide."""

import ctypes
import sys

if len(sys.argv) > 1:
    ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)

import halide as hl
import numpy as np


def main():
    x, xi = hl.Var("x"), hl.Var("xi")
    source = hl.Buffer(np.arange(64, dtype=np.int32))
    f = hl.Func("f")
    f[x] = source[x] * 3 + 1
    f.gpu_tile(x, xi, 16)
    result = f.realize([64], hl.Target("host-vulkan"))
    result.copy_to_host()
    assert (np.array(result) == np.arange(64) * 3 + 1).all(), np.array(result)
    try:
        version = ctypes.c_uint32.in_dll(ctypes.CDLL(None), "halide_vulkan_registry").value
    except ValueError:
        version = 0
    print("runtime", "ours" if version else "stock")


main()
