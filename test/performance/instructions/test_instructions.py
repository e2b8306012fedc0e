"""Instructions that the caller's thread spends per operation: at most 5 % above what instructions.json records.

Time on a shared machine says little about a change of a hundredth of a microsecond; instructions do. Counted is what
lies in one shared library: the pipeline's host code, Halide's runtime and ours. The driver's instructions, which on
lavapipe are many times more, and those of the C library (memcpy, whose variant depends on the processor) are not in the
figure. The library is compiled for the plainest x86-64 and the flush policy looks at counts alone, so the figures are
the same on each machine with the same Halide wheel and clang 19: a few tenths of an instruction, where the driver is
asked whether it has finished.

After a change that costs on purpose, or that saves, record anew:

    HV_RECORD_INSTRUCTIONS=1 ctest --preset release -R performance_instructions

`ctest --preset release -R performance_instructions -V` shows all figures, and the dearest functions of each operation.
"""

import json
import os
import pathlib
import re
import subprocess

import pytest

import callgrind_file

RECORD = pathlib.Path(__file__).with_name("instructions.json")
ALLOWED = 1.05
LIBRARY = "libgpu_instructions_runtime.so"


@pytest.fixture(scope="session")
def counted(tmp_path_factory):
    """{operation: instructions each}, and the dearest functions of each printed."""
    folder = tmp_path_factory.mktemp("callgrind")
    command = [os.environ["HV_VALGRIND"], "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no"]
    command += ["--separate-threads=yes", f"--callgrind-out-file={folder}/dump", os.environ["HV_PROGRAM"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    times = {name: int(count) for name, count in re.findall(r"^(\w+) (\d+)$", done.stdout, re.MULTILINE)}
    result = {}
    for path in sorted(folder.glob("dump.*-01")):
        name = callgrind_file.trigger(path)
        if name is None:
            continue
        functions = callgrind_file.instructions(path)
        ours = {function: cost / times[name] for (file, function), cost in functions.items() if file == LIBRARY}
        result[name] = sum(ours.values())
        print(f"\n{name}: {result[name]:.1f}")
        for function, cost in sorted(ours.items(), key=lambda item: -item[1])[:12]:
            print(f"{cost:10.1f}  {function.replace('halide_vulkan::(anonymous namespace)::', '')[:100]}")
    assert result.keys() == times.keys(), "each operation has one dump of the first thread"
    return result


def test_instructions(counted):
    recorded = json.loads(RECORD.read_text())
    if os.environ.get("HV_RECORD_INSTRUCTIONS"):
        recorded = {name: round(value) for name, value in counted.items()}
        RECORD.write_text(json.dumps(recorded, indent=4) + "\n")
    assert recorded.keys() == counted.keys()
    above = {}
    for name, value in counted.items():
        print(f"{name:24} {value:9.1f}  recorded {recorded[name]:6}  {100 * value / recorded[name] - 100:+6.1f} %")
        assert value > 0
        if value > ALLOWED * recorded[name]:
            above[name] = round(value)
    assert not above, f"more than {ALLOWED} times the recorded instructions: {above}; see the head of this file"
