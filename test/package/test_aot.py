"""The ahead-of-time route: objects made with our library in front of the generator run without any preload."""

import os
import subprocess

import pytest

E = os.environ


def run(command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=200, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Pipeline and runtime by the generator, which has our runtime in front; then an ordinary link."""
    folder = tmp_path_factory.mktemp("aot")
    generator = [E["HV_LAUNCHER"], E["HV_LIBRARY"], E["HV_GENERATOR"], "-o", folder]
    run([*generator, "-g", "package_aot", "-e", "static_library,c_header", "target=host-vulkan-no_runtime"])
    run([*generator, "-r", "runtime", "target=host-vulkan"])
    made = folder / "program"
    command = [E["HV_CXX"], "-std=c++17", "-rdynamic", "-I", folder, "-I", E["HV_INCLUDE"], E["HV_SOURCE"]]
    run([*command, folder / "package_aot.a", folder / "runtime.a", "-ldl", "-lpthread", "-o", made])
    return made


def test_program_does_not_need_halide(program):
    assert "libHalide" not in run(["ldd", program])


def test_program_runs_on_our_runtime(program):
    environment = {name: value for name, value in E.items() if name != "LD_PRELOAD"}
    lines = run([program], env=environment).splitlines()
    assert lines[-2:] == ["wrong 0", "runtime ours"]
