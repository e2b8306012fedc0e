"""Choosing the device from end to end: two devices, of which the layer calls the second a GPU.

lavapipe is listed twice by giving its driver two names. The choice itself, for machines of every kind, is tested in
test/unit/vulkan_choice_test.cpp; here it is seen that what was asked for is what runs.
"""

import json
import shutil

import pytest
from kernel import KERNEL

REPORT = (
    "import halide_vulkan as hv, json\n"
    + "try:\n"
    + "".join("    " + line + "\n" for line in KERNEL.strip().splitlines())
    + "    d = hv.device()\n"
    + "    print(json.dumps([d.index, d.name, d.chosen_by, d.in_use]))\n"
    + "except Exception as error:\n"
    + "    print(json.dumps(str(error)))\n"
)


@pytest.fixture(scope="module")
def two_devices(lavapipe, tmp_path_factory):
    first = lavapipe["VK_DRIVER_FILES"]
    second = shutil.copy(first, tmp_path_factory.mktemp("second") / "again_icd.json")
    both = f"{first}:{second}"
    return {
        "VK_DRIVER_FILES": both,
        "VK_ICD_FILENAMES": both,
        "HL_VK_LAYERS": "VK_LAYER_HALIDEVULKAN_count",
        "HV_LAYER_LIMITS": "secondDevice.deviceType=2",  # VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
        "NODEVICE_SELECT": "1",  # Mesa's layer for choosing devices may change their order
    }


def ask(environment, two_devices, **asked):
    done = environment.code(REPORT, **{**two_devices, **asked})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize(
    "asked, index, by",
    [
        ({}, 1, "the first GPU"),
        ({"HL_VK_DEVICE": "0"}, 0, "HL_VK_DEVICE, index"),
        ({"HL_VK_DEVICE": "pretended gpu"}, 1, "HL_VK_DEVICE, name"),
        ({"HL_VK_DEVICE": "LLVMPIPE", "HL_GPU_DEVICE": "0"}, 0, "HL_VK_DEVICE, name"),
        ({"HL_VK_DEVICE_TYPE": "cpu"}, 0, "HL_VK_DEVICE_TYPE"),
        ({"HL_GPU_DEVICE": "0"}, 1, "HL_GPU_DEVICE"),
        ({"HL_GPU_DEVICE": "0", "HL_VK_DEVICE_TYPE": "cpu"}, 0, "HL_GPU_DEVICE"),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) or "nothing" if isinstance(value, dict) else "",
)
def test_what_is_asked_for_runs(halide21, two_devices, asked, index, by):
    name = "Pretended GPU" if index else "llvmpipe"
    told = ask(halide21, two_devices, **asked)
    assert told[0] == index and told[1].startswith(name) and told[2:] == [by, True]


@pytest.mark.parametrize(
    "asked, words",
    [
        ({"HL_VK_DEVICE": "2"}, "no device's index"),
        ({"HL_GPU_DEVICE": "1"}, "the number of GPUs is 1"),
        ({"HL_VK_DEVICE": "0", "HL_VK_DEVICE_TYPE": "gpu"}, "not of the type 'gpu'"),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_what_is_not_there_is_an_error_with_a_list(halide21, two_devices, asked, words):
    told = ask(halide21, two_devices, **asked)
    assert isinstance(told, str) and words in told
    assert "0 = llvmpipe" in told and "1 = Pretended GPU (discrete-gpu" in told


def test_a_uuid_is_taken_as_it_is_shown(halide21, two_devices):
    facts = json.loads(halide21.command("info", "--json", **two_devices).stdout)
    shown = facts["devices"][0]["uuid"]
    assert len(shown) == 36 and facts["chosen"] == 1
    # Both devices are one driver's, with one UUID: the first is taken, where the default is the second.
    assert ask(halide21, two_devices, HL_VK_DEVICE=shown.upper())[0] == 0
    # The plan follows the device: as if with a discrete GPU's memory.
    text = halide21.command("info", "--all", HV_LAYER_MEMORY="discrete", **two_devices).stdout
    assert text.count("plan:") == 2 and text.count(shown) == 2 and "chosen: 1 (the first GPU" in text
    gpu = text.split("* 1  Pretended GPU (discrete-gpu)")[1]
    assert "HL_JIT_TARGET=host-vulkan-vk_v1" in gpu and "buffers: memory types 0 (device-local)" in gpu
    assert "staging: memory types 2 (host-visible host-coherent host-cached)" in gpu
    assert "small uploads: through staging" in gpu and "downloads: through staging" in gpu
    assert "device copies: large dense ones by a kernel" in gpu and "by the copy command: a kernel" not in gpu


def test_a_program_may_ask_for_itself(halide21, two_devices):
    """The environment is read when the device is first needed, so a program may set it until then, and not later."""
    text = (
        "import os\nimport halide_vulkan as hv\nos.environ['HL_VK_DEVICE'] = '0'\n"
        + KERNEL
        + "os.environ['HL_VK_DEVICE'] = '1'\nhv.release()\nprint(hv.device().index, hv.device().in_use)"
    )
    done = halide21.code(text, **two_devices)
    assert done.stdout.strip() == "0 False", done.stderr
