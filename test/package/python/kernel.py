"""The same few lines in several tests: one kernel, checked. Used as text, since each test is a process of its own.

The size is a multiple of everything, so that the runtime which Halide carries computes it too.
"""

KERNEL = """
import halide as hl
import numpy as np
x, xi = hl.Var("x"), hl.Var("xi")
source = hl.Buffer(np.arange(1024, dtype=np.int32))
f = hl.Func("f")
f[x] = source[x] * 3 + 1
f.gpu_tile(x, xi, 32, hl.TailStrategy.GuardWithIf)
def right():
    result = f.realize([1024], hl.Target("host-vulkan"))
    result.copy_to_host()
    return bool((np.asarray(result) == np.arange(1024) * 3 + 1).all())
assert right()
"""

# Says on whose runtime the process is, without the package: the registry is filled by ours alone.
WHOSE = """
import ctypes
try:
    print("runtime", "ours" if ctypes.c_uint32.in_dll(ctypes.CDLL(None), "halide_vulkan_registry").value else "stock")
except ValueError:
    print("runtime stock")
"""
