"""The wheel, and fresh environments with it and each Halide, made once for a run of pytest.

The wheel takes the library that the build made, so nothing is compiled. An environment is a real one, and our wheel
goes in through pip; Halide and what it needs are links to what tools/setup has installed in .venv and .venv19, because
unpacking 200 MB for each run would take longer than the tests. Nothing is fetched.
"""

import dataclasses
import glob
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIBRARY = pathlib.Path(os.environ["HV_LIBRARY"])
HALIDE_AND_ITS_NEEDS = ("halide", "halide-*", "numpy*", "imageio*", "ImageIO*", "PIL", "pillow*")
# What the shell of whoever runs the tests may have set, and what is being tested.
NOT_INHERITED = re.compile(r"LD_PRELOAD|LD_DEBUG|PYTHON.*|HALIDE_VULKAN_.*|HL_.*|VK_(DRIVER_FILES|ICD_FILENAMES)$")


def clean_environment(**more):
    env = {name: value for name, value in os.environ.items() if not NOT_INHERITED.match(name)}
    env.update({name: str(value) for name, value in more.items()})
    return env


def run(*command, timeout=300, **environment):
    command = [str(part) for part in command]
    return subprocess.run(
        command, env=clean_environment(**environment), capture_output=True, text=True, timeout=timeout
    )


@dataclasses.dataclass
class Environment:
    """A Python environment with the package."""

    folder: pathlib.Path

    @property
    def python(self):
        return self.folder / "bin" / "python"

    @property
    def library(self):
        [found] = self.folder.glob("lib/python3*/site-packages/halide_vulkan/libHalideVulkan.so")
        return found

    def code(self, text, *arguments, **environment):
        """Runs Python code; its output, with the errors when it failed."""
        return run(self.python, "-c", text, *arguments, **environment)

    def command(self, *arguments, **environment):
        return run(self.folder / "bin" / "halide-vulkan", *arguments, **environment)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder]
    done = run(*pip, "--config-settings", f"build-dir={folder}/build", ROOT, HALIDE_VULKAN_LIBRARY=LIBRARY)
    assert done.returncode == 0, done.stdout + done.stderr
    [made] = folder.glob("*.whl")
    return made


def make_environment(folder, wheel, halide_python=None):
    done = run(sys.executable, "-m", "venv", "--without-pip", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    made = Environment(folder)
    [packages] = folder.glob("lib/python3*/site-packages")
    if halide_python:
        [source] = pathlib.Path(halide_python).parents[1].glob("lib/python3*/site-packages")
        for pattern in HALIDE_AND_ITS_NEEDS:
            for one in source.glob(pattern):
                (packages / one.name).symlink_to(one)
        assert (packages / "halide").exists(), f"no halide in {source}"
    pip = [sys.executable, "-m", "pip", "--python", made.python, "install", "--no-index", "--no-deps", "-q"]
    done = run(*pip, wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture(scope="session")
def bare(tmp_path_factory, wheel):
    """No Halide in it."""
    return make_environment(tmp_path_factory.mktemp("bare"), wheel)


@pytest.fixture(scope="session")
def halide21(tmp_path_factory, wheel):
    return make_environment(tmp_path_factory.mktemp("halide21"), wheel, os.environ["HV_PYTHON"])


@pytest.fixture(scope="session")
def halide19(tmp_path_factory, wheel):
    return make_environment(tmp_path_factory.mktemp("halide19"), wheel, os.environ["HV_PYTHON19"])


@pytest.fixture(params=["halide21", "halide19"])
def either(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def untried(tmp_path_factory):
    """A folder for PYTHONPATH that makes the installed Halide say it is another version: version -> folder."""

    def make(version):
        folder = tmp_path_factory.mktemp("untried")
        info = folder / f"halide-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: halide\nVersion: {version}\n")
        return folder

    return make


@pytest.fixture(scope="session")
def lavapipe():
    """The environment in which lavapipe is the only driver."""
    found = sorted(glob.glob("/usr/share/vulkan/icd.d/lvp_icd*.json"))
    assert found, "lavapipe is not installed: run `make setup`"
    return {"VK_DRIVER_FILES": found[0], "VK_ICD_FILENAMES": found[0]}


@pytest.fixture
def lines(tmp_path):
    """Writes a program: text -> file."""

    def write(text, name="program.py"):
        file = tmp_path / name
        file.write_text(text)
        return file

    return write
