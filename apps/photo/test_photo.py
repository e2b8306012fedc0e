"""The demo's pipeline on small crops: whatever the size, the GPU's picture is the CPU's to within rounding."""

import functools
import os
import pathlib
import subprocess
import sys

import halide as hl
import numpy
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import demo  # noqa: E402
import devices  # noqa: E402
import pictures  # noqa: E402
from develop import develop, device_in_use, our_runtime_is_loaded  # noqa: E402


@functools.lru_cache
def photograph():
    return pictures.load(pictures.photograph_path())


def test_runtime_is_the_one_that_was_asked_for():
    assert our_runtime_is_loaded() == (os.environ.get("VK_RUNTIME_UNDER_TEST", "ours") == "ours")


def test_there_is_a_device():
    assert devices.vulkan_devices(), "no Vulkan device: install a driver, lavapipe at least"


# The first size has only multiples of 64 bytes; the others have odd widths, heights, and levels of a few bytes.
@pytest.mark.parametrize("size", [(128, 64), (117, 83), (64, 47)], ids=lambda size: "%dx%d" % size)
def test_gpu_and_cpu_develop_the_same_picture(size):
    planes = pictures.crop(photograph(), *size)
    on_cpu = develop(planes, hl.Target("host"))[0]
    on_gpu, _, _, _, stages = develop(planes, hl.Target(demo.VULKAN), runs=2)
    assert stages >= 5
    right, words = demo.judge(on_gpu, on_cpu, planes)
    assert right, words


def test_a_wrong_picture_is_called_wrong():
    planes = pictures.crop(photograph(), 64, 47)
    good = develop(planes, hl.Target("host"))[0]
    bad = good.copy()
    bad[0, 20, 20] ^= 64
    assert demo.judge(good, good, planes)[0]
    assert not demo.judge(bad, good, planes)[0]
    assert not demo.judge(planes, planes, planes)[0], "a picture that was not developed"


# What a user may name instead of a picture, and the reason that is given.
@pytest.mark.parametrize(
    "content, reason",
    [
        (None, "No such file or directory"),
        (b"", "no picture"),
        (b"This is not what you are looking for.\n", "no picture"),
        (b"\xff\xd8\xff\xe0 a JPEG that ends here", "no picture"),
        ("folder", "Is a directory"),
    ],
    ids=["missing", "empty", "text", "cut", "folder"],
)
def test_what_is_no_picture_is_refused_in_one_line(tmp_path, content, reason):
    path = tmp_path / "my.jpg"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    command = [sys.executable, "-B", demo.HERE / "demo.py", "--picture", path, "--columns", "stock"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"{path}: ") and reason in lines[0], done.stderr


def test_a_picture_of_sixteen_bits_is_refused(tmp_path):
    path = tmp_path / "deep.png"
    pictures.imageio.imwrite(path, numpy.zeros((20, 20), numpy.uint16))
    with pytest.raises(pictures.Unreadable, match="8 bits"):
        pictures.load(path)


@pytest.mark.parametrize(
    "script, arguments, words",
    [
        ("demo.py", ["--runs", "0"], "--runs: 0 is no whole number from 1"),
        ("demo.py", ["--runs", "-1"], "--runs: -1 is no whole number from 1"),
        ("demo.py", ["--runs", "many"], "--runs: many is no whole number from 1"),
        ("demo.py", ["--columns", "foo,ours"], "--columns: foo is none of stock, ours, cuda"),
        ("demo.py", ["--columns", ""], "--columns: nothing is none of stock, ours, cuda"),
        ("demo.py", ["--out", __file__], f"--out: {__file__}: File exists"),
        ("develop.py", ["--runs", "0"], "--runs: 0 is no whole number from 1"),
        ("develop.py", ["--size", "640"], "--size: 640 is no size"),
        ("develop.py", ["--size", "9999x9999"], "a crop of 9999 x 9999 from a picture of 640 x 427"),
        ("develop.py", ["--target", "host-nonsense"], "host-nonsense"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_a_line(tmp_path, script, arguments, words):
    needed = {"--target": "host", "--picture": pictures.photograph_path(), "--report": tmp_path / "report.json"}
    needed = needed if script == "develop.py" else {"--out": tmp_path}
    more = [word for name, value in needed.items() if name not in arguments for word in (name, value)]
    command = [sys.executable, "-B", demo.HERE / script, *more, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and done.stdout == "" and "Traceback" not in done.stderr
    assert words in done.stderr.splitlines()[-1], done.stderr


def test_the_last_line_says_where_times_say_little():
    """A ratio on a device that runs kernels on the processor has its caveat in the same line; one on a GPU has none."""
    cpu, gpu = devices.Device("soft", True), devices.Device("hard", False)

    def line(*found, used=None, right=True):
        ours = {"median_ms": 4.0, "device": used}
        return demo.verdict(right, {"ours": (right, ours), "stock": (True, {"median_ms": 2.0})}, False, found)

    caveat = "a software device, where times say little"
    assert line(cpu).endswith(f"0.50 times as fast, on soft: {caveat}")
    assert line(cpu, gpu, used="soft").endswith(f"on soft: {caveat}")
    assert line(gpu).endswith("times as fast, on hard") and line(cpu, gpu, used="hard").endswith("on hard")
    assert caveat not in line(cpu, right=False), "no times, no caveat"
    # The type is read from the right place.
    for device in devices.vulkan_devices():
        assert device.is_software == any(name in device.name for name in ("llvmpipe", "SwiftShader"))


def test_the_device_in_use_is_what_our_runtime_says():
    develop(pictures.crop(photograph(), 64, 47), hl.Target(demo.VULKAN))
    used, ours = device_in_use(), our_runtime_is_loaded()
    assert used in [device.name for device in devices.vulkan_devices()] if ours else used is None
