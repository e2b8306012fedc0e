"""Programs that compile at run time, built by projects of their own on the installed package or on the source tree."""

import consumer
import pytest


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return consumer.build("installed_jit", tmp_path_factory.mktemp("jit") / "b", "-G", "Ninja", consumer.INSTALLED)


@pytest.mark.parametrize("program", ["program", "program_of_library"])
def test_installed_package_runs_on_our_runtime(installed, program):
    assert consumer.run(installed / program).splitlines()[-2:] == ["wrong 0", "runtime ours"]


def test_without_the_function_the_linker_drops_our_library(installed):
    """Else the test above would show nothing."""
    assert consumer.run(installed / "stock").splitlines()[-1] == "runtime stock"


def test_source_tree_as_a_subdirectory(tmp_path):
    built = consumer.build("subdirectory", tmp_path / "b", "-G", "Ninja", *consumer.FROM_SOURCE)
    assert consumer.run(built / "program").splitlines()[-2:] == ["wrong 0", "runtime ours"]
    # A subproject makes the library and nothing else.
    tests = consumer.run("ctest", "--show-only", cwd=built)
    assert "Total Tests: 0" in tests
