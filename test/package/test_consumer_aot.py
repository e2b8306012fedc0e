"""Programs that are compiled ahead of time: add_halide_vulkan_runtime with Halide's own add_halide_library."""

import consumer
import pytest

WAYS = {
    "installed_aot": ["-G", "Unix Makefiles", consumer.INSTALLED],
    "fetch_content": ["-G", "Ninja", *consumer.FROM_SOURCE],
}


@pytest.mark.parametrize("way", WAYS)
def test_program_runs_on_our_runtime_and_needs_no_library(way, tmp_path):
    built = consumer.build(way, tmp_path / "b", *WAYS[way])
    assert "libHalide" not in consumer.run("ldd", built / "program")
    assert consumer.run(built / "program").splitlines()[-2:] == ["wrong 0", "runtime ours"]
    assert consumer.run(built / "stats").splitlines()[-1] == "version 3, submissions some"
    # Nothing is made again when nothing has changed.
    again = consumer.run(consumer.E["HV_CMAKE"], "--build", built)
    assert "Halide's runtime with our Vulkan part" not in again


PREFACE = """
cmake_minimum_required(VERSION 3.28)
project(wrong LANGUAGES {languages})
find_package(HalideVulkan REQUIRED)
"""
HALIDE = "find_package(Halide REQUIRED)\n"
MISTAKES = {
    "no vulkan": (HALIDE + "add_halide_vulkan_runtime(r TARGETS host-cuda)", "has the feature vulkan"),
    "no targets": (HALIDE + "add_halide_vulkan_runtime(r)", "has the feature vulkan"),
    "a misspelt word": (HALIDE + "add_halide_vulkan_runtime(r TARGET host-vulkan)", "unknown arguments: TARGET"),
    "no Halide": ("add_halide_vulkan_runtime(r TARGETS host-vulkan)", "find_package(Halide REQUIRED) first"),
    "no such target": ("halide_vulkan_jit(nothing)", "no target 'nothing'"),
    "another version": ("find_package(HalideVulkan 0.9 REQUIRED)", "compatible with requested version"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named_while_configuring(mistake, tmp_path):
    lines, words = MISTAKES[mistake]
    (tmp_path / "CMakeLists.txt").write_text(PREFACE.format(languages="NONE") + lines)
    text = consumer.configure(tmp_path, tmp_path / "b", "-G", "Ninja", consumer.INSTALLED, fails=True)
    assert words in " ".join(text.split())


def test_a_runtime_that_is_not_ours_stops_the_build(tmp_path):
    """As with a gengen that has libHalide inside, where what is put in front of it has no effect."""
    gengen = tmp_path / "gengen"
    gengen.write_text("#!/bin/sh\necho halide_vulkan_run >r.a\n")
    gengen.chmod(0o755)
    lines = "set_target_properties(Halide::GenRT PROPERTIES IMPORTED_LOCATION_RELEASE ${CMAKE_SOURCE_DIR}/gengen)\n"
    lines += "add_halide_vulkan_runtime(r TARGETS host-vulkan)\n"
    (tmp_path / "CMakeLists.txt").write_text(PREFACE.format(languages="C CXX") + HALIDE + lines)
    consumer.configure(tmp_path, tmp_path / "b", "-G", "Ninja", consumer.INSTALLED)
    text = consumer.run(consumer.E["HV_CMAKE"], "--build", tmp_path / "b", "--target", "r.update", fails=True)
    assert "would be Halide's own" in " ".join(text.split())
    assert not (tmp_path / "b" / "r.a").exists()
