"""`halide-vulkan info`, `bench` and `run`."""

import json
import shutil
import time

import pytest
from conftest import LIBRARY
from kernel import KERNEL, WHOSE

UNCHANGED = KERNEL + WHOSE + "import sys\nprint(sys.argv[1:])\nsys.exit(int(sys.argv[1]))\n"


def test_module_and_command_are_the_same(bare):
    as_module = bare.code("import runpy, sys; sys.argv = ['x', '--version']; runpy.run_module('halide_vulkan')")
    as_command = bare.command("--version")
    assert as_command.returncode == 0 and as_command.stdout == as_module.stdout != ""
    assert bare.command().returncode == 2
    for name in ("info", "doctor", "bench", "run"):
        assert name in bare.command("--help").stdout


# ---- run


def test_a_program_that_cannot_be_changed(either, lines):
    """Its arguments, its exit code, and what it starts are as without us; its kernels are ours."""
    program = lines(UNCHANGED)
    assert either.code(UNCHANGED, "3").stdout.splitlines()[-2] == "runtime stock", "nothing else puts ours in front"
    done = run_module(either, "run", program, "3", "--json", "-x")
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[-2:] == ["runtime ours", "['3', '--json', '-x']"]
    done = either.command("run", "--", "sh", "-c", f'exec "{either.python}" "{program}" 0')
    assert done.returncode == 0 and done.stdout.splitlines()[-2:] == ["runtime ours", "['0']"], done.stderr


def run_module(environment, *arguments, **variables):
    text = "import runpy, sys; sys.argv[0] = 'halide_vulkan'; runpy.run_module('halide_vulkan', run_name='__main__')"
    return environment.code(text, *arguments, **variables)


def test_run_keeps_other_preloads(bare):
    done = bare.command("run", "--json", "--", "sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD="libm.so.6")
    assert done.stdout.strip() == f"{bare.library}:libm.so.6"
    told = json.loads(done.stderr)
    assert told == {"command": ["sh", "-c", "echo $LD_PRELOAD"], "LD_PRELOAD": done.stdout.strip()}
    again = bare.command("run", "--", "sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD=f"{bare.library} libm.so.6")
    assert again.stdout == done.stdout, "once is enough"


def test_run_says_what_is_wrong(bare, tmp_path):
    done = bare.command("run", "--", "no-such-program")
    assert done.returncode == 127 and "no such program: no-such-program" in done.stderr
    assert bare.command("run").returncode == 2
    spaced = tmp_path / "a folder"
    spaced.mkdir()
    shutil.copy(LIBRARY, spaced)
    done = bare.command("run", "--", "true", HALIDE_VULKAN_LIBRARY=spaced / LIBRARY.name)
    assert done.returncode == 2 and "LD_PRELOAD cannot name a path with spaces" in done.stderr


@pytest.mark.parametrize("what", ["run", "doctor"])
def test_a_file_that_the_system_cannot_start(bare, lines, what):
    program = lines("\x7fELF, or so it says", "program")
    program.chmod(0o755)
    done = bare.command(what, "--", program)
    assert done.returncode == (126 if what == "run" else 1) and "Traceback" not in done.stderr
    assert f"{program} cannot be run: Exec format error" in (done.stderr if what == "run" else done.stdout)


def test_a_library_that_is_not_there_is_told_of_by_the_command(halide21, lavapipe):
    """Every command says so, in words; run does not go on without it, as the dynamic linker would."""
    gone = {"HALIDE_VULKAN_LIBRARY": "/no/such/libHalideVulkan.so", **lavapipe}
    for command in (["run", "--", "true"], ["doctor"], ["info"], ["bench", "--quick", "--columns", "ours"]):
        done = halide21.command(*command, **gone)
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr, command
        assert "/no/such/libHalideVulkan.so" in done.stdout + done.stderr, command
    assert halide21.code("import halide_vulkan", **gone).returncode == 1, "a program gets its ImportError"


# ---- info


def test_info(either, lavapipe):
    done = either.command("info", **lavapipe)
    assert done.returncode == 0, done.stderr
    for part in (
        "chosen: 0 (no GPU is there; nothing was asked for)",
        "* 0  llvmpipe",
        "(cpu)",
        "HL_JIT_TARGET=host-vulkan-vk_v1",
        "device-local host-visible host-coherent",
        "maxComputeWorkGroupInvocations",
        "queue family 0:",
        "waiting: blocks: a CPU device needs the core",
        "downloads: read in place",
    ):
        assert part in done.stdout, part


def test_info_as_json(halide21, lavapipe):
    done = halide21.command("info", "--json", **lavapipe)
    facts = json.loads(done.stdout)
    assert done.returncode == 0 and facts["stage"] == "done" and facts["chosen"] == 0
    [device] = facts["devices"]
    assert device["limits"]["maxComputeWorkGroupInvocations"] >= 128
    assert device["plan"]["buffer_types"] and "in_use" not in facts
    assert len(device["types"]) >= 1 and len(device["heaps"]) >= 1


def test_info_follows_the_options(halide21, lavapipe):
    facts = json.loads(halide21.command("info", "--json", HL_VK_DIRECT=0, HL_VK_COPY_THREADS=1, **lavapipe).stdout)
    plan = facts["devices"][0]["plan"]
    assert not plan["direct_uploads"] and not plan["direct_downloads"] and plan["copy_threads"] == 0


@pytest.mark.parametrize("json_too", [False, True])
def test_info_of_a_machine_that_has_nothing(halide21, json_too):
    arguments = ["info", "--json"] if json_too else ["info"]
    done = halide21.command(*arguments, VK_ICD_FILENAMES="/no/such.json", VK_DRIVER_FILES="/no/such.json")
    assert done.returncode == 1
    said = json.loads(done.stdout)["error"] if json_too else done.stderr
    assert "no driver is found: VK_DRIVER_FILES is '/no/such.json'" in said


def test_info_without_halide(bare):
    done = bare.command("info", "--json")
    assert done.returncode == 1 and "No module named 'halide'" in json.loads(done.stdout)["error"]


def test_a_queue_of_flags(bare):
    """What a queue family can do is a list, and one queue is no plural."""
    text = """
from halide_vulkan._info import device_lines
import sys
family = {"flags": int(sys.argv[1]), "queues": int(sys.argv[2])}
device = {"name": "x", "type": "cpu", "api_version": 1 << 22, "driver_version": 1, "uuid": "", "computes": True,
          "heaps": [], "types": [], "families": [family], "limits": {}}
print(*device_lines(0, {"devices": [device]}, True), sep="\\n")
"""
    for flags, queues, words in ((7, 1, "1 queue: graphics, compute, transfer"), (2, 8, "8 queues: compute"),
                                 (8, 1, "1 queue: other")):
        assert f"queue family 0: {words}\n" in bare.code(text, flags, queues).stdout


# ---- bench


def test_bench(halide21):
    done = halide21.command("bench", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    titles = [[row["title"] for row in told["columns"][name]["rows"]] for name in ("stock", "ours")]
    assert titles[0] == titles[1] and len(titles[0]) == 7
    for column in told["columns"].values():
        assert column["error"] is None and all(row["right"] and row["median"] > 0 for row in column["rows"])
    assert "stock: launch + device_sync" in done.stderr and "ours: download 48 MB" in done.stderr, "progress"


def test_bench_as_text_and_by_column(halide19):
    done = halide19.command("bench", "--quick", "--columns", "ours")
    assert done.returncode == 0, done.stderr
    assert "not to be trusted" in done.stdout and "Halide: 19.0.0" in done.stdout and "upload 48 MB" in done.stdout
    assert "stock" not in done.stdout
    for refused in (["--columns", "theirs"], ["--columns", ""], ["theirs"], ["--", "--rows", "launch"]):
        done = halide19.command("bench", *refused)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, refused


def test_bench_of_a_tree(bare, tmp_path):
    """The whole benchmark is the tree's own script: what is given on is its arguments, its table and its results."""
    assert bare.command("bench", "--tree", tmp_path).returncode == 2
    (tmp_path / "tools").mkdir()
    (tmp_path / "build" / "bench").mkdir(parents=True)
    (tmp_path / "tools" / "bench.py").write_text(
        "import pathlib, sys\nprint('the table', sys.argv[1:])\n"
        "pathlib.Path(__file__).parents[1].joinpath('build/bench/bench.json').write_text('{\"columns\": {}}')\n"
    )
    done = bare.command("bench", "--quick", "--tree", tmp_path, "--", "--rows", "upload")
    assert done.stdout == "the table ['--quick', '--rows', 'upload']\n"
    done = bare.command("bench", "--json", "--tree", tmp_path)
    assert json.loads(done.stdout) == {"columns": {}} and "the table []" in done.stderr


def test_what_takes_long_says_so(bare):
    """Standard error speaks after a second, and standard output never."""
    text = "import time\nfrom halide_vulkan._progress import Step\nwith Step('%s'): time.sleep(%s)"
    slow, fast = bare.code(text % ("counting sheep", 1.5)), bare.code(text % ("counting", 0.1))
    assert slow.stderr == "counting sheep ... 1 s\n" and slow.stdout == ""
    assert fast.stderr == "" and fast.stdout == ""


def test_a_child_that_hangs_or_dies_is_told_of(bare, tmp_path):
    """The command outlives whatever a driver does to its child."""
    text = "import halide_vulkan._child as c, json\nprint(json.dumps(c.probe('loader', '', timeout=%s)[1:]))"
    hang = tmp_path / "sitecustomize.py"
    hang.write_text("import sys, time\nif '_probe' in open('/proc/self/cmdline').read(): time.sleep(60)\n")
    begin = time.monotonic()
    done = bare.code(text % 1, PYTHONPATH=tmp_path)
    assert json.loads(done.stdout)[0] == "did not end within 1 s" and time.monotonic() - begin < 30
    hang.write_text("import os, sys\nif '_probe' in open('/proc/self/cmdline').read(): os.abort()\n")
    done = bare.code(text % 60, PYTHONPATH=tmp_path)
    assert json.loads(done.stdout)[0] == "died of SIGABRT"
