"""`halide-vulkan doctor -- program` where the program has its runtime inside: built ahead of time with our library in
front of the generator or without, with its symbols, stripped, and packed so that nothing can be told."""

import json
import os
import subprocess
from pathlib import Path

import pytest

E = os.environ
SOURCE = Path(__file__).resolve().parents[1] / "aot_program.cpp"


def make(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module", params=["ours", "stock"])
def built(request, tmp_path_factory):
    """The runtime, and a folder with programs that hold it; each is a link of the same objects."""
    folder = tmp_path_factory.mktemp(request.param)
    generator = [E["HV_LAUNCHER"], E["HV_LIBRARY"]] if request.param == "ours" else []
    generator += [E["HV_GENERATOR"], "-o", folder]
    make(*generator, "-g", "package_aot", "-e", "static_library,c_header", "target=host-vulkan-no_runtime")
    make(*generator, "-r", "runtime", "target=host-vulkan")
    objects = ["-I", folder, "-I", E["HV_INCLUDE"], SOURCE, folder / "package_aot.a", folder / "runtime.a"]
    for name, options in {"symbols": [], "exported": ["-rdynamic", "-s"], "stripped": ["-s"]}.items():
        make(E["HV_CXX"], "-std=c++17", *options, *objects, "-ldl", "-lpthread", "-o", folder / name)
    return request.param, folder


def doctor(environment, *program, **variables):
    done = environment.command("doctor", "--json", "--", *program, **variables)
    assert "Traceback" not in done.stderr, done.stderr
    report = json.loads(done.stdout)
    assert (done.returncode == 0) == (report["verdict"] in ("ours", "untried"))
    said = [check["text"] + check["fix"] for check in report["checks"] if check["name"] == "program"]
    return report["verdict"], " ".join(said)


@pytest.mark.parametrize("name", ["symbols", "exported", "stripped"])
def test_ahead_of_time(bare, built, lavapipe, name):
    runtime, folder = built
    verdict, words = doctor(bare, folder / name, **lavapipe)
    assert verdict == runtime, words
    assert str(folder / name) in words and ("by its strings" in words) == (name == "stripped")
    assert ("this runtime inside" in words) == (runtime == "ours")
    assert ("in front of the generator" in words) == (runtime == "stock")


def test_a_child_and_a_library_are_looked_into_too(bare, built, lavapipe, tmp_path):
    """The program that is named may start the one with the runtime, or open a library with it late."""
    runtime, folder = built
    assert doctor(bare, "sh", "-c", f"{folder}/stripped; true", **lavapipe)[0] == runtime
    # By a name that only its caller knows the folder of it cannot be found, and must not count as none.
    verdict, words = doctor(bare, "sh", "-c", f"cd {folder} && ./stripped; true", **lavapipe)
    assert verdict == "unknown" and "./stripped was started in another folder" in words
    library = tmp_path / "libplugin.so"
    archives = ["-Wl,--whole-archive", folder / "runtime.a", "-Wl,--no-whole-archive", "-ldl", "-lpthread"]
    make(E["HV_CXX"], "-shared", *archives, "-o", library)
    verdict, words = doctor(bare, bare.python, "-c", f"import ctypes; ctypes.CDLL('{library}')", **lavapipe)
    assert verdict == runtime and str(library) in words


def test_what_cannot_be_told_is_unknown(bare, built, lavapipe):
    """Stripped, with the call by which a runtime begins, and no string that tells whose it is; and without sections."""
    _, folder = built
    content = (folder / "stripped").read_bytes()
    other = folder / "other"
    for text in (b"HL_VK_COPY_THREADS", b"HL_VK_DEVICE_TYPE"):
        content = content.replace(text, b"X" * len(text))
    other.write_bytes(content)
    other.chmod(0o755)
    verdict, words = doctor(bare, other, **lavapipe)
    assert verdict == "unknown" and "is stripped" in words and "before it was stripped" in words
    packed = bytearray(content)
    packed[60:62] = b"\0\0"  # e_shnum
    other.write_bytes(packed)
    verdict, words = doctor(bare, other, **lavapipe)
    assert verdict == "unknown" and "without sections" in words


def test_a_plain_vulkan_program_has_none_as_far_as_its_symbols_tell(bare, lines, tmp_path, lavapipe):
    source = lines('#include <stdio.h>\nint main(void) { puts("vkGetInstanceProcAddr"); return 0; }\n', "plain.c")
    make(E["HV_CC"], source, "-o", tmp_path / "plain")
    assert doctor(bare, tmp_path / "plain", **lavapipe)[0] == "no-halide"
    make(E["HV_CC"], "-s", source, "-o", tmp_path / "plain")
    assert doctor(bare, tmp_path / "plain", **lavapipe)[0] == "unknown"


def test_a_libhalide_that_was_built_with_ours(bare, lavapipe):
    """Both libraries carry their runtime as bitcode; the file itself tells whose it is."""
    text = "from halide_vulkan._elf import held_by\nimport sys\nfor file in sys.argv[1:]: print(held_by(file).runtime)"
    done = bare.code(text, E["HV_LIBRARY"], E["HV_HALIDE_LIBRARY"], "/no/such/file", __file__)
    assert done.stdout.split() == ["ours", "stock", "unknown", "none"], done.stderr
