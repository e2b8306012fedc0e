"""What an error does to a Python program: in a pipeline it is an exception; in a call on a buffer outside of a pipeline
Halide's default handler ends the process. That is Halide's doing: its own runtime is seen to do the same."""

import signal

import pytest

PIPELINE = """
import halide as hl
target = hl.Target("host-vulkan")
x, xi = hl.Var("x"), hl.Var("xi")
f = hl.Func("f")
f[x] = x
f.gpu_tile(x, xi, 16)
"""
AFTER_RELEASE = """
result = f.realize([64], target)
result.set_device_dirty()
halide_vulkan.release()
result.copy_to_host()
print("still there")
"""
BOTH_DIRTY = """
result = f.realize([64], target)
result.set_host_dirty()
result.set_device_dirty()
result.copy_to_host()
print("still there")
"""
REALIZE = "f.realize([64], target)"
CALLABLE = "f.compile_to_callable([], target)(hl.Buffer(hl.Int(32), [64]))"
IN_A_PIPELINE = """
try:
    {call}
except hl.HalideError as error:
    print("HalideError:", str(error).strip())
print("still there")
"""


@pytest.mark.parametrize("call", [REALIZE, CALLABLE], ids=["realize", "callable"])
def test_in_a_pipeline_it_is_an_exception(either, call):
    done = either.code("import halide_vulkan" + PIPELINE + IN_A_PIPELINE.format(call=call), HL_VK_DEVICE="no-such-device")
    assert done.returncode == 0, done.stderr
    assert "HalideError:" in done.stdout and "no-such-device" in done.stdout
    assert done.stdout.splitlines()[-1] == "still there"


@pytest.mark.parametrize(
    "runtime, call, words",
    [
        ("ours", AFTER_RELEASE, "its device was released"),
        ("ours", BOTH_DIRTY, "both host and device dirty"),
        ("stock", BOTH_DIRTY, "both host and device dirty"),
    ],
    ids=["ours", "ours-dirty", "stock-dirty"],
)
def test_outside_of_a_pipeline_it_ends_the_process(either, lavapipe, runtime, call, words):
    done = either.code(("import halide_vulkan" if runtime == "ours" else "") + PIPELINE + call, **lavapipe)
    assert done.returncode == -signal.SIGABRT and "still there" not in done.stdout
    assert words in done.stdout + done.stderr, done.stdout + done.stderr
