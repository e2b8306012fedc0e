"""The demo's pipeline on small crops: whatever the size, the GPU's picture is the CPU's to within rounding."""

import functools
import os
import pathlib
import sys

import halide as hl
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
