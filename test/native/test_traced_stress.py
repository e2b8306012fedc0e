"""The sanitizers' stress with a trace: the program stays clean, and what it leaves is a good trace.

Eight threads record into one ring while devices come and go, so tracing starts and stops under load. HV_STRESS is the
program (native_stress.cpp, with a sanitizer in it).

Leaks are looked for in the runs without a trace: with one, objects and commands are labelled, and Mesa 22.3 leaks its
lists of labels (128 bytes from realloc, which the runtime never calls).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "correctness"))
from trace_form import Trace, check_form  # noqa: E402


def test_a_trace_of_many_threads(tmp_path):
    file = tmp_path / "trace.json"
    done = subprocess.run(
        [os.environ["HV_STRESS"], "--gtest_filter=NativeStress.*"],
        env={
            **os.environ,
            "HL_VK_TRACE": str(file),
            "HL_VK_TRACE_MB": "64",
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    trace = Trace(json.loads(file.read_text()))
    check_form(trace)
    for kind in ("launch", "submit", "wait", "gpu_kernel", "gpu_copy"):
        assert trace.of(kind), kind
    kernels = {e["name"] for e in trace.of("launch")}
    assert any("blur" in name for name in kernels) and any("double" in name for name in kernels), kernels
    assert len({e["tid"] for e in trace.of("launch")}) >= 8
