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
from develop import develop, our_runtime_is_loaded  # noqa: E402


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
