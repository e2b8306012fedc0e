"""The wheel itself: what is in it, where it may be installed, and that its types hold."""

import os
import re
import subprocess
import sys
import zipfile

from conftest import LIBRARY, ROOT, run


def project_version():
    return re.search(r"(?s)project\(.*?VERSION\s+([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def test_holds_the_library_and_what_types_need(wheel):
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        assert content.read("halide_vulkan/libHalideVulkan.so") == LIBRARY.read_bytes()
        [scripts] = [name for name in names if name.endswith("entry_points.txt")]
        assert "halide-vulkan = halide_vulkan._command:main" in content.read(scripts).decode()
    assert "halide_vulkan/py.typed" in names
    sources = {f"halide_vulkan/{file.name}" for file in (ROOT / "python" / "halide_vulkan").glob("*.py")}
    rest = {name for name in names if ".dist-info/" not in name} - sources
    assert rest == {"halide_vulkan/libHalideVulkan.so", "halide_vulkan/py.typed"}
    assert [name for name in names if name.endswith("LICENSE")]


def test_one_version_everywhere(wheel):
    version = project_version()
    assert wheel.name.startswith(f"halide_vulkan-{version}-")
    assert f'kVersion = "{version}"' in (ROOT / "src" / "runtime" / "vulkan_describe.h").read_text()


def test_auditwheel_accepts_the_tag(wheel):
    done = subprocess.run([sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    earliest = re.search(r'following platform tag: "manylinux_(\d+)_(\d+)_', words)
    tagged = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    assert [int(n) for n in earliest.groups()] <= [int(n) for n in tagged.groups()], words
    assert "requires no external shared libraries" in words
    assert wheel.name.startswith("halide_vulkan-") and "-py3-none-manylinux" in wheel.name


def mypy(*arguments, **environment):
    return run(sys.executable, "-m", "mypy", "--no-incremental", *arguments, **environment)


def test_types_of_the_package():
    done = mypy("--config-file", ROOT / "pyproject.toml", MYPYPATH=ROOT / "python")
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_for_its_users(bare, lines):
    program = lines(
        "import halide_vulkan\n"
        "found: bool = halide_vulkan.active()\n"
        "name: str = halide_vulkan.device().name\n"
        "stats = halide_vulkan.stats()\n"
        "count: int = stats.submissions if stats else 0\n"
        "wrong: int = halide_vulkan.stats()\n"
    )
    done = mypy("--strict", "--python-executable", bare.python, program)
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1 and ":6: error: Incompatible types" in errors[0], done.stdout + done.stderr


def test_stats_are_those_of_the_runtime(bare):
    header = (ROOT / "src" / "runtime" / "halide_vulkan_stats.h").read_text()
    body = re.search(r"struct halide_vulkan_stats \{(.*?)\n\};", header, re.S)[1]
    wanted = re.findall(r"^\s*(\w+) (\w+)(?:\[(\d+)\])?;", body, re.M)
    done = bare.code(
        "import halide_vulkan._runtime as r, dataclasses\n"
        "print([(n, t.__name__) for n, t in r._Stats._fields_])\n"
        "print([f.name for f in dataclasses.fields(r.Stats)])"
    )
    assert done.returncode == 0, done.stderr
    raw, public = map(eval, done.stdout.splitlines())
    kinds = {"uint64_t": "c_ulong", "char": "c_char_Array_"}
    assert raw == [(name, kinds[kind] + (size if kind == "char" else "")) for kind, name, size in wanted]
    assert public == [name for _, name, _ in wanted]


def test_a_library_that_is_not_there_stops_the_build(tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", tmp_path]
    done = run(
        *pip, "--config-settings", f"build-dir={tmp_path}/build", ROOT, HALIDE_VULKAN_LIBRARY=tmp_path / "none.so"
    )
    assert done.returncode != 0
    assert "none.so', which is not there" in " ".join(done.stderr.split() + done.stdout.split())
    assert not list(tmp_path.glob("*.whl"))


def test_a_build_from_source_asks_for_halide():
    """Without a library the build asks for Halide, whose headers it needs; with one it asks for nothing."""
    ask = (
        "import os; os.chdir(%r)\n"
        "from scikit_build_core.build import get_requires_for_build_wheel as ask\n"
        "print([one for one in ask({}) if 'halide' in one])" % os.fspath(ROOT)
    )
    assert run(sys.executable, "-c", ask).stdout.strip() == "['halide==21.0.0']"
    assert run(sys.executable, "-c", ask, HALIDE_VULKAN_LIBRARY=LIBRARY).stdout.strip() == "[]"
