"""`halide-vulkan doctor`: each broken setup, made for real, and what the doctor says about it."""

import json
import os
import shutil
import subprocess

import pytest
from conftest import LIBRARY


def doctor(environment, *arguments, **variables):
    """The report, with each check by its name; the text and the JSON come from one place, so JSON is what is read."""
    done = environment.command("doctor", "--json", *arguments, **variables)
    assert "Traceback" not in done.stderr, done.stderr
    report = json.loads(done.stdout)
    assert report["good"] == (report["verdict"] in ("ours", "untried")) == (done.returncode == 0)
    report["by"] = {check["name"]: check for check in report["checks"]}
    return report


def states(report):
    return {check["name"]: check["state"] for check in report["checks"]}


def nowhere(name):
    return {"VK_ICD_FILENAMES": name, "VK_DRIVER_FILES": name}


# ---- What works


def test_ours(either, lavapipe):
    report = doctor(either, **lavapipe)
    assert report["verdict"] == "ours"
    assert states(report) == {
        "package": "ok",
        "Halide": "ok",
        "loader": "ok",
        "driver": "ok",
        "in front": "ok",
        "device": "warn",  # a CPU
        "kernel": "ok",
    }
    assert "sha256" in report["by"]["package"]["text"] and str(either.library) in report["by"]["package"]["text"]
    assert f"{either.library} is in front of" in report["by"]["in front"]["text"]
    assert "all 10007 values are right" in report["by"]["kernel"]["text"]
    assert "libvulkan" in report["by"]["loader"]["text"] and "llvmpipe" in report["by"]["device"]["text"]


def test_as_text(halide21, lavapipe):
    done = halide21.command("doctor", HL_VK_DEVICE="llvmpipe", **lavapipe)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("halide-vulkan ") and lines[-1] == "verdict: ours: Halide runs on this runtime"
    assert all(line.startswith("  ok ") for line in lines[1:-1]), "who asks for the CPU device is not warned"


def test_untried_version(halide21, untried, lavapipe):
    report = doctor(halide21, PYTHONPATH=untried("99.1.0"), **lavapipe)
    assert report["verdict"] == "untried"
    assert report["by"]["Halide"]["state"] == "warn" and "99.1.0" in report["by"]["Halide"]["text"]
    assert report["by"]["kernel"]["state"] == "ok"


def test_another_copy_is_in_front(halide21, tmp_path, lavapipe):
    copy = shutil.copy(LIBRARY, tmp_path)
    report = doctor(halide21, LD_PRELOAD=copy, **lavapipe)
    assert report["verdict"] == "ours"
    assert report["by"]["in front"]["state"] == "warn" and "LD_PRELOAD" in report["by"]["in front"]["fix"]


def test_preload_of_a_file_that_is_gone(halide21, tmp_path, lavapipe):
    report = doctor(halide21, LD_PRELOAD=tmp_path / "libHalideVulkan.so", **lavapipe)
    assert report["by"]["preload"]["state"] == "warn" and "has no effect" in report["by"]["preload"]["text"]


# ---- What is missing


def test_no_halide(bare):
    report = doctor(bare)
    assert report["verdict"] == "no-halide"
    assert report["by"]["Halide"]["fix"] == "pip install halide==21.0.0"
    assert report["by"]["loader"]["state"] == "ok", "the rest is looked at all the same"


def test_no_loader(halide21, tmp_path):
    # As on a machine without one: the names lead nowhere. A file that is no library ends the search for that name.
    for name in ("libvulkan.so.1", "libvulkan.so"):
        (tmp_path / name).write_text("none")
    report = doctor(halide21, LD_LIBRARY_PATH=tmp_path)
    assert report["verdict"] == "no-loader"
    assert "apt install libvulkan1" in report["by"]["loader"]["fix"]
    assert "driver" not in report["by"] and "kernel" not in report["by"]


def test_loader_that_was_named_and_is_not_there(halide21):
    report = doctor(halide21, HL_VK_LOADER_LIB="/no/such/libvulkan.so")
    assert report["verdict"] == "no-loader"
    assert "/no/such/libvulkan.so" in report["by"]["loader"]["text"]
    assert "HL_VK_LOADER_LIB is set" in report["by"]["loader"]["fix"]


def test_no_driver(halide21, tmp_path):
    empty = {"XDG_DATA_HOME": tmp_path, "XDG_CONFIG_HOME": tmp_path}
    report = doctor(halide21, **nowhere("/no/such/driver.json"), **empty)
    assert report["verdict"] == "no-driver" and report["by"]["loader"]["state"] == "ok"
    assert "/no/such/driver.json" in report["by"]["driver"]["text"]
    assert "VK_DRIVER_FILES is set" in report["by"]["driver"]["fix"]
    assert "mesa-vulkan-drivers" in report["by"]["driver"]["fix"] and "NVIDIA" in report["by"]["driver"]["fix"]


def test_driver_whose_library_is_missing(halide21, tmp_path):
    manifest = tmp_path / "gone_icd.json"
    icd = {"library_path": "libno_such_driver.so", "api_version": "1.3.0"}
    manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
    report = doctor(halide21, **nowhere(str(manifest)))
    assert report["verdict"] == "no-driver"
    assert "libno_such_driver.so: cannot open shared object file" in report["by"]["driver"]["text"]


@pytest.mark.parametrize(
    "asked, words",
    [
        ({"HL_VK_DEVICE": "no-such-gpu"}, "no-such-gpu"),
        ({"HL_VK_DEVICE_TYPE": "discrete-gpu"}, "discrete-gpu"),
        ({"HL_GPU_DEVICE": 0}, "the number of GPUs is 0"),
    ],
    ids=["name", "type", "HL_GPU_DEVICE"],
)
def test_no_device_as_asked(halide21, lavapipe, asked, words):
    report = doctor(halide21, **asked, **lavapipe)
    assert report["verdict"] == "no-device"
    assert words in report["by"]["device"]["text"] and "llvmpipe" in report["by"]["device"]["text"]
    assert report["by"]["in front"]["state"] == "ok"


# ---- What runs on the other runtime


def test_program_on_stock(halide21, lines, lavapipe):
    program = lines("import halide")
    report = doctor(halide21, "--", halide21.python, program, **lavapipe)
    assert report["verdict"] == "stock"
    assert "uses its own Vulkan runtime" in report["by"]["program"]["text"]
    for way in ("import halide_vulkan", "halide-vulkan run --", "--no-as-needed"):
        assert way in report["by"]["program"]["fix"]
    assert report["by"]["kernel"]["state"] == "ok"


@pytest.mark.parametrize("way", ["import", "LD_PRELOAD", "run"])
def test_program_on_ours(halide21, lines, lavapipe, way):
    program = lines("import halide_vulkan, halide" if way == "import" else "import halide")
    command = [halide21.python, program]
    if way == "run":
        command = [halide21.folder / "bin" / "halide-vulkan", "run", "--", *command]
    more = {"LD_PRELOAD": halide21.library} if way == "LD_PRELOAD" else {}
    report = doctor(halide21, "--", *command, **more, **lavapipe)
    assert report["verdict"] == "ours" and str(halide21.library) in report["by"]["program"]["text"]


def test_program_without_halide(bare, lines):
    report = doctor(bare, "--", "true")
    assert report["verdict"] == "no-halide" and "no libHalide.so" in report["by"]["program"]["text"]
    report = doctor(bare, "--", "no-such-program")
    assert report["verdict"] == "failed" and "no-such-program" in report["by"]["program"]["text"]


def test_program_that_fails_is_told_of_and_its_output_kept_apart(halide21, lines, lavapipe):
    program = lines("import halide_vulkan, halide, sys\nprint('from the program')\nsys.exit(7)")
    done = halide21.command("doctor", "--json", "--", program, **lavapipe)
    report = json.loads(done.stdout)
    assert "from the program" in done.stderr
    assert any("ended with code 7" in check["text"] for check in report["checks"])
    assert report["verdict"] == "ours"


# ---- What is there and does not work


def test_library_without_bitcode(halide21, tmp_path):
    """A file of the right name that Halide would take nothing from."""
    source = tmp_path / "empty.c"
    source.write_text("char halide_vulkan_registry[4096];\n")
    library = tmp_path / "libHalideVulkan.so"
    subprocess.run([os.environ["HV_CC"], "-shared", "-fPIC", source, "-o", library], check=True)
    report = doctor(halide21, HALIDE_VULKAN_LIBRARY=library)
    assert report["verdict"] == "failed" and "is no libHalideVulkan.so" in report["by"]["package"]["text"]
    # And so libHalide takes its own, which the kernel's process notices.
    assert report["by"]["in front"]["state"] == "fail"


def test_library_whose_bitcode_is_broken(halide21, tmp_path):
    library = tmp_path / "libHalideVulkan.so"
    library.write_bytes(LIBRARY.read_bytes().replace(b"BC\xc0\xde", b"xxxx"))
    report = doctor(halide21, HALIDE_VULKAN_LIBRARY=library)
    assert report["verdict"] == "failed" and report["by"]["in front"]["state"] == "fail"


def test_option_that_makes_no_sense(halide21, lavapipe):
    report = doctor(halide21, HL_VK_FLUSH="sometimes", **lavapipe)
    assert report["verdict"] == "failed" and "HL_VK_FLUSH is 'sometimes'" in report["by"]["device"]["text"]


def test_device_that_cannot_run_the_kernel(halide21, lavapipe):
    """The layer pretends a device with workgroups of 32: the runtime refuses the doctor's kernel by name."""
    layer = {"HL_VK_LAYERS": "VK_LAYER_HALIDEVULKAN_count", "HV_LAYER_LIMITS": "maxComputeWorkGroupInvocations=32"}
    report = doctor(halide21, **layer, **lavapipe)
    assert report["verdict"] == "failed" and report["by"]["device"]["state"] == "warn"
    assert "64 threads was asked for; the limit is 32" in report["by"]["kernel"]["text"]


def test_driver_that_crashes(halide21, tmp_path):
    source = tmp_path / "crash.c"
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n")
    driver = tmp_path / "libcrash.so"
    subprocess.run([os.environ["HV_CC"], "-shared", "-fPIC", source, "-o", driver], check=True)
    manifest = tmp_path / "crash_icd.json"
    icd = {"library_path": str(driver), "api_version": "1.3.0"}
    manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
    report = doctor(halide21, **nowhere(str(manifest)))
    assert report["verdict"] == "failed" and "died of SIGABRT" in report["by"]["driver"]["text"]
