"""tools/overlay on a stand-in for a Halide tree: a git repository with the files that the tool touches or reads."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

E = os.environ
PROJECT = Path(E["HV_SOURCE"])
OVERLAY = PROJECT / "tools" / "overlay"
HEADERS = Path(E["HV_HALIDE_INCLUDE"])

# Halide's helpers for tests and what its tests link with, reduced to what our blocks rely on.
TOP = """cmake_minimum_required(VERSION 3.25)
project(
    Halide
    VERSION {version}
    LANGUAGES C CXX
)
enable_testing()
find_package(Threads REQUIRED)
set(CMAKE_MAP_IMPORTED_CONFIG_RELEASE Release MinSizeRel RelWithDebInfo "")
function (tests)
    cmake_parse_arguments(args "USE_EXIT_CODE_ONLY" "" "SOURCES;GROUPS;ARGS" ${{ARGN}})
    list(GET args_GROUPS 0 group)
    set(names "")
    foreach (file IN LISTS args_SOURCES)
        cmake_path(GET file STEM name)
        add_executable(${{group}}_${{name}} ${{file}})
        add_test(NAME ${{group}}_${{name}} COMMAND ${{group}}_${{name}} ${{args_ARGS}})
        list(APPEND names ${{group}}_${{name}})
    endforeach ()
    set(TEST_NAMES ${{names}} PARENT_SCOPE)
endfunction ()
add_subdirectory(test/correctness)
add_subdirectory(test/performance)
"""
VULKAN_HEADERS = """add_library(Vulkan::Headers INTERFACE IMPORTED)
"""
FILES = {
    "src/runtime/CMakeLists.txt": "set(RUNTIME_CPP\n    tracing\n    vulkan\n    windows_vulkan\n)\n",
    "src/runtime/vulkan.cpp": "#error the stock runtime\n",
    "src/runtime/windows_vulkan.cpp": "#error the stock runtime\n",
    "src/runtime/vulkan_memory.h": "#error of both\n",
    "src/runtime/vulkan_extensions.h": "#error of the stock runtime alone\n",
    "src/runtime/HalideRuntime.h": (HEADERS / "HalideRuntime.h").read_text(),
    "src/runtime/HalideRuntimeVulkan.h": (HEADERS / "HalideRuntimeVulkan.h").read_text(),
    "src/runtime/runtime_internal.h": (PROJECT / "src" / "shim" / "runtime_internal.h").read_text(),
    "test/correctness/CMakeLists.txt": "# correctness\n",
    "test/performance/CMakeLists.txt": "tests(GROUPS performance SOURCES async_gpu.cpp)\n",
    "test/performance/async_gpu.cpp": "int main() {}\n",
    "dependencies/vulkan/VulkanHeadersConfig.cmake": VULKAN_HEADERS,
}

# How Halide compiles a runtime module: src/runtime/CMakeLists.txt of Halide 21, and the same in 19 and main.
MODULE_FLAGS = """-O3 -std=c++17 -ffreestanding -fno-blocks -fno-exceptions -fno-unwind-tables -fno-vectorize
    -fno-threadsafe-statics -fno-rtti -fno-jump-tables -Wall -Wc++20-designator -Wcast-qual -Werror
    -Wignored-qualifiers -Wno-comment -Wno-psabi -Wno-unknown-warning-option -Wno-unused-function -Wvla -Wsign-compare
    -Wimplicit-fallthrough -Wno-sync-alignment -DCOMPILING_HALIDE_RUNTIME -DHALIDE_VERSION=21.0.0
    -DHALIDE_VERSION_MAJOR=21 -DHALIDE_VERSION_MINOR=0 -DHALIDE_VERSION_PATCH=0""".split()


def run(*command, code=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=200)
    assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def git(tree, *arguments):
    return run("git", "-C", tree, "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments)


def overlay(tree, *options, code=0):
    return run(sys.executable, "-B", OVERLAY, tree, *options, code=code)


def make_tree(folder, version="21.0.0"):
    for name, text in {"CMakeLists.txt": TOP.format(version=version), **FILES}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "Halide")
    return folder


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "Halide")


def everything(tree):
    return {
        path.relative_to(tree): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(tree).parts
    }


def test_the_runtime_becomes_ours(tree):
    overlay(tree)
    for path in (PROJECT / "src" / "runtime").iterdir():
        assert (tree / "src" / "runtime" / path.name).read_bytes() == path.read_bytes()
    assert not (tree / "src/runtime/vulkan_extensions.h").exists()
    assert (tree / "src/runtime/HalideRuntimeVulkan.h").read_text() == FILES["src/runtime/HalideRuntimeVulkan.h"]
    assert (tree / "test/performance/async_gpu.cpp").read_text() == FILES["test/performance/async_gpu.cpp"]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("module", ["vulkan", "windows_vulkan"])
def test_modules_compile_as_halide_compiles_them(tree, module, bits):
    overlay(tree)
    system = "windows" if module.startswith("windows") else "unknown"
    more = ["-fpic"] if system == "unknown" else ["-fshort-wchar"] if bits == 64 else []
    target = f"{'i386' if bits == 32 else 'x86_64'}-unknown-{system}-unknown"
    run("clang-19", *MODULE_FLAGS, *more, f"-m{bits}", f"-DBITS_{bits}", "-target", target, "-isystem",
        E["HV_VULKAN_HEADERS"], "-fsyntax-only", tree / f"src/runtime/{module}.cpp")


def listed_tests(tree, target, build):
    """Of each test of the tree, by name, the lines of its environment."""
    run("cmake", "-S", tree, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DHalide_TARGET={target}",
        f"-DHalide_SOURCE_DIR={tree}", f"-DVulkanHeaders_DIR={tree / 'dependencies/vulkan'}")
    listed = json.loads(run("ctest", "--test-dir", build, "--show-only=json-v1"))
    return {
        test["name"]: {line for one in test["properties"] if one["name"] == "ENVIRONMENT" for line in one["value"]}
        for test in listed["tests"]
    }


def test_our_tests_are_there_when_vulkan_is_tested(tree, tmp_path):
    overlay(tree)
    named = listed_tests(tree, "host-vulkan", tmp_path / "b")
    laid = {path.stem for path in (tree / "test/correctness").glob("gpu_*.cpp")}
    assert {f"correctness_{name}" for name in laid} == {name for name in named if name.startswith("correctness_")}
    assert {"correctness_gpu_free_while_in_flight", "correctness_gpu_steady_state"} <= named.keys()
    assert {"performance_gpu_dispatch_overhead", "performance_async_gpu"} <= named.keys()
    rules = (tmp_path / "b" / "build.ninja").read_text()
    assert "vulkan_async_gpu.cpp" in rules
    run("cmake", "--build", tmp_path / "b", "--target", "vulkan_count_layer")


def test_what_needs_the_counting_layer_has_it(tree, tmp_path):
    overlay(tree)
    environment = listed_tests(tree, "host-vulkan", tmp_path / "b")
    ours = (PROJECT / "test/correctness/CMakeLists.txt").read_text()
    layered = set(re.findall(r"hv_add_correctness\((\w+) [^)]*HV_LAYERED", ours))
    needs = {name for test in environment if (name := test.removeprefix("correctness_")) in layered}
    assert {"gpu_allocation", "gpu_device_release_idle"} <= needs
    assert [name for name in sorted(needs)
            if "HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count" not in environment[f"correctness_{name}"]] == []


def test_our_tests_are_not_there_on_another_target(tree, tmp_path):
    overlay(tree)
    assert listed_tests(tree, "host-cuda", tmp_path / "b").keys() == {"performance_async_gpu"}
    assert "vulkan_async_gpu.cpp" not in (tmp_path / "b" / "build.ninja").read_text()


def test_a_test_compiles_as_halide_compiles_its_own(tree):
    overlay(tree)
    run("c++", "-std=c++17", "-fsyntax-only", "-DHALIDE_KEEP_MACROS", "-Wall", "-Wcast-qual", "-Wignored-qualifiers",
        "-Woverloaded-virtual", "-Wsuggest-override", "-Werror", "-isystem", HEADERS,
        tree / "test/correctness/gpu_sizes.cpp")


def test_undo_leaves_nothing(tree):
    before = everything(tree)
    overlay(tree)
    assert everything(tree) != before
    overlay(tree, "--undo")
    assert everything(tree) == before
    assert git(tree, "status", "--porcelain", "--ignored") == ""
    assert not (tree / "test/layer").exists()
    overlay(tree)  # and it can be laid again


def test_undo_after_an_interrupted_run(tree):
    before = everything(tree)
    overlay(tree)
    shutil.rmtree(tree / "test/layer")
    (tree / "src/runtime/vulkan.cpp").write_text(FILES["src/runtime/vulkan.cpp"])
    overlay(tree, "--undo")
    assert everything(tree) == before


def test_undo_touches_nothing_when_a_laid_file_was_changed(tree):
    overlay(tree)
    (tree / "src/runtime/vulkan_memory.h").write_text("// mine\n")
    laid = everything(tree)
    assert "src/runtime/vulkan_memory.h" in overlay(tree, "--undo", code=1)
    assert everything(tree) == laid


def test_undo_after_commits_of_the_users_own(tree):
    before = everything(tree)
    overlay(tree)
    git(tree, "add", "--all")
    git(tree, "commit", "-qm", "laid over")
    overlay(tree, "--undo")
    assert everything(tree) == before


def test_dry_run_changes_nothing(tree):
    before = everything(tree)
    text = overlay(tree, "--dry-run")
    assert "remove  src/runtime/vulkan_extensions.h" in text and "change  src/runtime/vulkan.cpp" in text
    assert "add     test/correctness/gpu_free_while_in_flight.cpp" in text
    assert everything(tree) == before


def test_another_version_is_refused_unless_asked_for(tmp_path):
    tree = make_tree(tmp_path / "Halide", version="20.0.0")
    before = everything(tree)
    assert "Halide 20.0.0" in overlay(tree, code=1)
    assert everything(tree) == before
    overlay(tree, "--any-version")
    assert everything(tree) != before


def change(tree, name, text):
    (tree / name).write_text(text)


REFUSED = {
    "a tree with changes": (
        lambda tree: change(tree, "src/runtime/HalideRuntime.h", ""),
        "has changes that are not committed",
    ),
    "a file of the user in the way": (
        lambda tree: change(tree, "test/correctness/gpu_sizes.cpp", "mine"),
        "test/correctness/gpu_sizes.cpp",
    ),
    "a tree without git": (lambda tree: shutil.rmtree(tree / ".git"), "git"),
    "a tree inside another": (
        lambda tree: (shutil.rmtree(tree / ".git"), git(tree.parent, "init", "-q")),
        "not the top of a git work tree",
    ),
    "no Halide": (lambda tree: change(tree, "CMakeLists.txt", "project(Other)"), "no Halide source tree"),
    "an empty folder": (lambda tree: (tree / "CMakeLists.txt").unlink(), "no Halide source tree"),
    "another layout": (lambda tree: (tree / "src/runtime/windows_vulkan.cpp").unlink(), "missing: src/runtime/windows"),
    "a build without Vulkan": (
        lambda tree: change(tree, "src/runtime/CMakeLists.txt", "set(RUNTIME_CPP tracing)\n"),
        "does not build the modules",
    ),
    "a tree that is laid over": (overlay, "laid over already"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(tree, what):
    prepare, words = REFUSED[what]
    prepare(tree)
    before = everything(tree)
    assert words in overlay(tree, code=1)
    assert everything(tree) == before


def test_undo_where_nothing_is_laid(tree):
    assert "is not laid over" in overlay(tree, "--undo", code=1)
