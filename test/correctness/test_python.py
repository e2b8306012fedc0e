"""Python on our runtime: both wheels, the library opened before `import halide`, no preload.

Each case is a process of its own, as a user would write it: ctypes.CDLL(libHalideVulkan.so, RTLD_GLOBAL), then
`import halide`. What is checked is results, and that the runtime is ours (the stock one fails every size that is no
multiple of 64 bytes on lavapipe, and says "Failed to allocate device memory" to some).

Python reaches no symbol of a JIT module, and Buffer methods pass no user context, so an error there would abort; only
errors inside realize are exceptions.
"""

import os
import subprocess

import pytest

TARGET = "host-vulkan-vk_v13-vk_int8-vk_int16-vk_int64"

PROLOGUE = """
import ctypes, os
library = ctypes.CDLL(os.environ["HV_LIBRARY"], ctypes.RTLD_GLOBAL)
import halide as hl
import numpy as np
target = hl.get_jit_target_from_environment()
assert target.has_feature(hl.TargetFeature.Vulkan), target
x, y, xi, yi = hl.Var("x"), hl.Var("y"), hl.Var("xi"), hl.Var("yi")
"""

CASES = {
    "sizes": """
f = hl.Func("f")
f[x] = hl.u8(x % 251 + 1)
f.gpu_tile(x, xi, 32, hl.TailStrategy.GuardWithIf)
for n in (1, 3, 31, 63, 65, 96, 100, 200, 1000, 4128, 100003):
    got = np.asarray(f.realize([n]))
    assert (got == np.arange(n) % 251 + 1).all(), n
""",
    "images": """
source = np.arange(97 * 61, dtype=np.int32).reshape(61, 97)
inp = hl.Buffer(source)
f, g = hl.Func("f"), hl.Func("g")
clamped = hl.BoundaryConditions.repeat_edge(inp)
f[x, y] = clamped[x - 1, y] + clamped[x + 1, y]
g[x, y] = f[x, y - 1] + f[x, y + 1]
f.compute_root().gpu_tile(x, y, xi, yi, 8, 8, hl.TailStrategy.GuardWithIf)
g.gpu_tile(x, y, xi, yi, 8, 8, hl.TailStrategy.GuardWithIf)
got = np.asarray(g.realize([97, 61]))
edge = np.pad(source, 1, mode="edge")
rows = edge[:, :-2] + edge[:, 2:]
assert (got == rows[:-2] + rows[2:]).all()
""",
    "reupload": """
p = hl.ImageParam(hl.Int(32), 1, "p")
f = hl.Func("f")
f[x] = p[x] * 3 + 1
f.gpu_tile(x, xi, 32, hl.TailStrategy.GuardWithIf)
buffer = hl.Buffer(hl.Int(32), [1001])
p.set(buffer)
view = np.asarray(buffer)
for i in range(50):
    view[:] = np.arange(1001) + i
    buffer.set_host_dirty()
    assert (np.asarray(f.realize([1001])) == (np.arange(1001) + i) * 3 + 1).all(), i
""",
    "error": """
f = hl.Func("f")
f[x] = x
f.gpu_tile(x, xi, 8192, hl.TailStrategy.GuardWithIf)
try:
    f.realize([10000])
except Exception as error:
    assert "8192" in str(error), error
else:
    raise AssertionError("a workgroup of 8192 threads ran")
g = hl.Func("g")
g[x] = x * 2
g.gpu_tile(x, xi, 32, hl.TailStrategy.GuardWithIf)
assert (np.asarray(g.realize([100])) == np.arange(100) * 2).all()
""",
}


def run(python, code, target=TARGET):
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    environment["HL_JIT_TARGET"] = target
    return subprocess.run([python, "-B", "-c", code], env=environment, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("python", ["HV_PYTHON", "HV_PYTHON19"])
@pytest.mark.parametrize("case", CASES)
def test_case(python, case):
    assert os.path.exists(os.environ[python]), f"no Python with that Halide: {os.environ[python]}"
    done = run(os.environ[python], PROLOGUE + CASES[case])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("python", ["HV_PYTHON", "HV_PYTHON19"])
def test_capability_is_detected(python):
    """A target without vk_v1x asks the runtime what the device can do."""
    code = PROLOGUE + """
assert "vk_v13" in target.to_string(), target.to_string()
assert hl.host_supports_target_device(target)
"""
    done = run(os.environ[python], code, "host-vulkan")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
