"""The one library serves both Halide wheels, put in front by the dynamic linker or by Python itself."""

import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("preload_program.py")
UNDER_TEST = os.environ.get("VK_RUNTIME_UNDER_TEST", "ours")


@pytest.mark.parametrize("python", ["HV_PYTHON", "HV_PYTHON19"], ids=["halide-21", "halide-19"])
@pytest.mark.parametrize("way", ["LD_PRELOAD", "RTLD_GLOBAL"])
def test_kernel_runs_on_our_runtime(python, way):
    environment = dict(os.environ)
    command = [os.environ[python], "-B", str(PROGRAM)]
    if UNDER_TEST == "ours":
        if way == "LD_PRELOAD":
            environment["LD_PRELOAD"] = environment["HV_LIBRARY"]
        else:
            command.append(environment["HV_LIBRARY"])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-1] == "runtime ours"
