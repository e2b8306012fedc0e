"""HL_VK_TRACE: the file is valid JSON whatever happens to the process, and says what really happened.

gpu_trace.cpp runs small pipelines, each case with another trace; here the traces are read with json and compared with
what the program did: every launch by its kernel's name, every copy by its bytes, every submission on both sides. What a
viewer needs is checked too: the spans of one track nest. The counting layer tells the driver's side: without a trace
nothing of all this is asked of it. Programs that are killed or stopped leave good JSON at whatever moment it happens.
"""

import collections
import json
import os
import re
import signal
import subprocess
import time

import pytest
from trace_form import ROUNDING, Trace, check_form, end

PROGRAM = [os.environ["HV_LAUNCHER"], os.environ["HV_LIBRARY"], os.environ["HV_TRACED"]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Runs all cases in one process; returns its folder and what was said in each case."""
    folder = tmp_path_factory.mktemp("traces")
    done = subprocess.run(
        [*PROGRAM, "cases", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout[-4000:]
    said, case = collections.defaultdict(list), None
    for line in done.stdout.splitlines():
        if line.startswith("case "):
            case = line[5:]
        elif case:
            said[case].append(line)
    return Cases(folder, said)


class Cases:
    def __init__(self, folder, said):
        self.folder, self.said = folder, said

    def trace(self, name):
        return Trace(json.loads((self.folder / f"{name}.json").read_text()))

    def calls(self, name):
        lines = [line.rsplit(None, 1) for line in (self.folder / f"{name}.calls").read_text().splitlines()]
        return {key.strip(): int(value) for key, value in lines}


def check_submissions(trace):
    """Each launch is in a submission, and each submission ran between its submit and the end of the run."""
    submits = {e["args"]["submission"]: e for e in trace.of("submit")}
    on_gpu = {e["args"]["submission"]: e for e in trace.of("gpu_submission")}
    assert submits and submits.keys() == on_gpu.keys()
    starts = {e["id"]: e for e in trace.of("flow") if e["ph"] == "s"}
    ends = {e["id"]: e for e in trace.of("flow") if e["ph"] == "f"}
    assert len(starts) == len(submits) and starts.keys() == ends.keys()
    kernels = collections.Counter((e["args"]["submission"], e["name"]) for e in trace.of("gpu_kernel"))
    assert kernels == collections.Counter((e["args"]["submission"], e["name"]) for e in trace.of("launch"))
    inside = collections.Counter()
    for e in trace.of("gpu_kernel") + trace.of("gpu_copy"):
        whole = on_gpu[e["args"]["submission"]]
        assert whole["ts"] - ROUNDING <= e["ts"] and end(e) <= end(whole) + ROUNDING
        inside[e["args"]["submission"]] += 1
    for number, e in on_gpu.items():
        assert e["args"]["commands"] == submits[number]["args"]["commands"] == inside[number]
    return submits, on_gpu


def check_windows(trace, estimated=False):
    """The GPU ran a submission after its submit began and before the wait for it, or for a later one, ended.

    An estimate uses the moment when the timestamps were read, which is a little after the wait: before the end of the
    call that waited.
    """
    submits, on_gpu = check_submissions(trace)
    calls = trace.of("copy") + trace.of("call") + trace.of("launch")  # a CPU device's first run is waited for
    waits = sorted(trace.of("wait"), key=end)
    assert waits
    checked = 0
    for number, e in on_gpu.items():
        assert submits[number]["ts"] - ROUNDING <= e["ts"], (submits[number], e)
        seen = [w for w in waits if w["args"]["submission"] >= number]
        if seen:
            last = end(seen[0])
            if estimated:
                last = min(end(c) for c in calls if c["tid"] == seen[0]["tid"] and c["ts"] <= seen[0]["ts"] <= end(c))
            assert end(e) <= last + ROUNDING, (e, seen[0])
            checked += 1
    assert checked > 0


def check_work(trace, poisoned=False):
    """What the program of most cases does: 20 runs of two kernels on 5000 elements, one run of one kernel on 70000."""
    launches = collections.Counter(re.sub(r"_s0.*", "", e["name"]) for e in trace.of("launch"))
    assert launches == {"_kernel_alpha0": 20, "_kernel_alpha1": 20, "_kernel_be___ta0": 1}
    assert {e["args"]["groups_x"] for e in trace.of("launch", "alpha")} == {157}
    assert {e["args"]["groups_x"] for e in trace.of("launch", "be_")} == {2188}
    assert {tuple(e["args"][f"threads_{d}"] for d in "xyz") for e in trace.of("launch")} == {(32, 1, 1)}
    # Copies with their bytes: one each way for each run.
    for name in ("upload", "download"):
        assert collections.Counter(e["args"]["bytes"] for e in trace.of("copy", name)) == {20000: 20, 280000: 1}
    for name in ("device_malloc", "device_free"):
        assert trace.of("call", name)
    assert trace.of("session") and trace.of("wait")


def test_says_what_happened(cases):
    trace = cases.trace("plain")
    check_form(trace)
    check_windows(trace)
    check_work(trace)
    assert len(trace.of("compile")) == 3
    assert all(e["args"] == {"threads_x": 32, "threads_y": 1, "threads_z": 1} for e in trace.of("compile"))
    assert all(e["args"]["calibrated"] == 1 for e in trace.of("gpu_kernel") + trace.of("gpu_submission"))
    assert trace.notes == []
    names = set(trace.names("process_name").values())
    assert "Halide Vulkan: program" in names
    assert any(re.fullmatch(r"Vulkan device \d+: .+", name) for name in names)
    # The clock is the system's.
    now = time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
    assert all(now - 600e6 < e["ts"] <= now for e in trace.events if "ts" in e)
    assert cases.said["plain"] == []


def test_staged_copies_are_on_the_gpu(cases):
    trace = cases.trace("on")
    check_form(trace)
    check_windows(trace)
    check_work(trace)
    for name in ("upload", "download"):
        sizes = collections.Counter(e["args"]["bytes"] for e in trace.of("gpu_copy", name))
        assert sizes == {20000: 20, 280000: 1}


def test_poison_is_seen(cases):
    trace = cases.trace("poison")
    check_form(trace)
    fills = trace.of("gpu_copy", "fill")
    assert fills and all(e["args"]["bytes"] >= 20000 for e in fills)


def test_serial_commands_do_not_overlap(cases):
    trace = cases.trace("serial")
    check_form(trace)
    check_submissions(trace)
    commands = sorted(trace.of("gpu_kernel") + trace.of("gpu_copy"), key=lambda e: e["ts"])
    assert len(trace.of("gpu_kernel")) == 40 and len(commands) == 80
    for before, after in zip(commands, commands[1:]):
        assert end(before) <= after["ts"] + ROUNDING
    # A barrier before each command, and two for each submission at the most.
    barriers = cases.calls("serial")["vkCmdPipelineBarrier"]
    assert 80 <= barriers <= 80 + 2 * len(trace.of("submit"))


def test_off_asks_nothing_of_the_driver(cases):
    on, off = cases.calls("on"), cases.calls("off")
    commands = 41 + 42
    # The next batch is begun ahead, so one more may have been begun than was submitted.
    begun, submissions = off["vkBeginCommandBuffer"], off["vkQueueSubmit"]
    traced = {
        "vkCreateQueryPool": 16,
        "vkCmdResetQueryPool": begun,
        "vkCmdWriteTimestamp": begun + submissions + 2 * commands,
        "vkGetQueryPoolResults": submissions,
        "vkGetPhysicalDeviceCalibrateableTimeDomainsEXT": 1,
        "vkCreateDebugUtilsMessengerEXT": 1,
        "vkCmdBeginDebugUtilsLabelEXT": commands,
        "vkCmdEndDebugUtilsLabelEXT": commands,
        "vkGetPhysicalDeviceQueueFamilyProperties": off["vkGetPhysicalDeviceQueueFamilyProperties"] + 2,
        "live VkQueryPool": 16,
        "live VkDebugUtilsMessengerEXT": 1,
    }
    for call, count in traced.items():
        assert on[call] == count, call
        assert call not in off or call == "vkGetPhysicalDeviceQueueFamilyProperties", call
    assert on["vkGetCalibratedTimestampsEXT"] >= 1 and "vkGetCalibratedTimestampsEXT" not in off
    assert on["vkSetDebugUtilsObjectNameEXT"] > 50 and "vkSetDebugUtilsObjectNameEXT" not in off
    ours = {"vkGetCalibratedTimestampsEXT", "vkSetDebugUtilsObjectNameEXT", *traced}
    # How often a fence is asked depends on time.
    compared = {call for call in {*on, *off} if call[:2] in ("vk", "li")} - ours - {"vkGetFenceStatus"}
    assert len(compared) > 30
    for call in compared:
        assert on.get(call) == off.get(call), call
    assert not (cases.folder / "off.json").exists()


@pytest.mark.parametrize("case", ["on", "asked"])
def test_names_and_labels(cases, case):
    """Everything that lives has a name (a descriptor set its pool's), where a trace or HL_VK_EXTENSIONS asks for VK_EXT_debug_utils."""
    calls = cases.calls(case)
    unnamed = {key: value for key, value in calls.items() if key.startswith("unnamed.")}
    assert len(unnamed) == 12 and not any(unnamed.values()), unnamed
    # Two objects of a kernel: its shader module and its pipeline. A buffer and its memory.
    named = {key[6:]: value for key, value in calls.items() if key.startswith("names.")}
    assert named == {"_kernel_alpha0": 2, "staging": 2, "device": 1, "queue": 1}
    labels = {key[7:]: value for key, value in calls.items() if key.startswith("labels.")}
    assert labels == {"_kernel_alpha0": 20, "_kernel_alpha1": 20, "_kernel_be": 1, "upload": 21, "download": 21}
    if case == "asked":
        assert "vkCmdWriteTimestamp" not in calls and not (cases.folder / "asked.json").exists()


def test_nothing_is_named_without_being_asked(cases):
    calls = cases.calls("off")
    assert not any(value for key, value in calls.items() if key.startswith(("names.", "labels.")))


@pytest.mark.parametrize(
    "case, note",
    [
        ("no_timestamps", "no timestamps"),
        ("refused_vkCreateQueryPool", "vkCreateQueryPool failed with VK_ERROR_OUT_OF_HOST_MEMORY"),
        ("refused_vkGetQueryPoolResults", "vkGetQueryPoolResults failed with VK_ERROR_OUT_OF_HOST_MEMORY"),
    ],
)
def test_without_timestamps_the_cpu_side_is_there(cases, case, note):
    trace = cases.trace(case)
    check_form(trace)
    check_work(trace)
    assert trace.of("submit") and not trace.of("gpu_kernel") + trace.of("gpu_copy") + trace.of("gpu_submission")
    assert any(note in one for one in trace.notes), trace.notes
    assert cases.said[case] == []


@pytest.mark.parametrize("case", ["no_calibration", "refused_vkGetCalibratedTimestampsEXT"])
def test_without_calibration_times_are_estimated(cases, case):
    trace = cases.trace(case)
    check_form(trace)
    check_work(trace)
    assert any("estimated" in note for note in trace.notes)
    assert all(e["args"]["calibrated"] == 0 for e in trace.of("gpu_kernel"))
    check_windows(trace, estimated=True)


def test_few_valid_bits_wrap_around(cases):
    """36 bits are the least that a device may have; lavapipe's clock has passed them."""
    trace = cases.trace("few_bits")
    check_form(trace)
    check_windows(trace)


@pytest.mark.parametrize(
    "case, path, why",
    [
        ("no_folder", "/no/such/folder/t.json", "No such"),
        ("is_folder", "/", ""),
        ("is_pipe", "{folder}/is_pipe", "it is a pipe"),
        ("is_long", "{folder}" + 1100 * "/.", "the path has more than 1022 characters"),
    ],
)
def test_a_path_that_cannot_be_written(cases, case, path, why):
    """One message, and the program went on: it checks its results itself."""
    path = path.format(folder=cases.folder)[:1023]  # as much as is kept
    assert len(cases.said[case]) == 1
    assert cases.said[case][0].startswith(f"Vulkan: HL_VK_TRACE: no trace in {path}: {why}")
    assert "vkCmdWriteTimestamp" not in cases.calls(case)


def test_the_limit_ends_the_trace_and_not_the_program(cases):
    check_form(cases.trace("limit"))
    assert 900_000 < (cases.folder / "limit.json").stat().st_size <= 1 << 20
    assert len(cases.said["limit"]) == 1 and "HL_VK_TRACE_MB" in cases.said["limit"][0]


def test_goes_on_after_a_release(cases):
    trace = cases.trace("rounds")
    check_form(trace)
    rounds = collections.Counter(e["pid"] for e in trace.of("gpu_kernel"))
    assert sorted(rounds.values()) == [1, 2, 3] and len(trace.of("launch")) == 6


def test_process_number_in_the_name(cases):
    process = int(cases.said["threads"][-1].split()[1])
    trace = Trace(json.loads((cases.folder / f"number-{process}.json").read_text()))
    assert {e["pid"] for e in trace.of("launch")} == {process}
    assert not (cases.folder / "number.json").exists()


def test_a_fork_leaves_the_trace_alone(cases):
    trace = cases.trace("fork")
    check_form(trace)
    assert len(trace.of("launch")) == 2 and len({e["pid"] for e in trace.of("launch")}) == 1


def test_threads_are_told_apart(cases):
    trace = cases.trace("threads")
    check_form(trace)
    check_submissions(trace)
    threads = [int(line.split()[1]) for line in cases.said["threads"] if line.startswith("thread ")]
    launches = collections.Counter(e["tid"] for e in trace.of("launch"))
    assert len(set(threads)) == 4 and launches == {thread: 25 for thread in threads}
    assert "halide_vulkan trace" in trace.names("thread_name").values()


# ---- What is left of a process that ends, or dies.


def test_exit_without_release(tmp_path):
    path = tmp_path / "once.json"
    subprocess.run([*PROGRAM, "once"], env={**os.environ, "HL_VK_TRACE": str(path)}, check=True, timeout=200)
    text = path.read_text()
    trace = Trace(json.loads(text))
    check_form(trace)
    check_windows(trace)
    assert len(trace.of("launch")) == 100
    # No blanks are left at the end.
    assert text.endswith("}]")


@pytest.fixture
def endless(tmp_path):
    """A process that is under way, and its trace."""
    path = tmp_path / "trace.json"
    process = subprocess.Popen([*PROGRAM, "endless"], env={**os.environ, "HL_VK_TRACE": str(path)})
    deadline = time.monotonic() + 200
    while not path.exists() or b"gpu_kernel" not in path.read_bytes():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    yield process, path
    process.kill()
    process.wait()


def test_valid_at_every_moment(endless):
    """Stops the process at 60 moments and reads what is there; then kills it as it runs."""
    process, path = endless
    sizes = []
    for i in range(60):
        time.sleep(0.0031 * (i % 5))
        process.send_signal(signal.SIGSTOP)
        while state_of(process.pid) != "T":
            time.sleep(0.0005)
        sizes.append(len(json.loads(path.read_text())))
        process.send_signal(signal.SIGCONT)
    assert sizes == sorted(sizes) and len(set(sizes)) > 20
    process.kill()
    assert process.wait() == -signal.SIGKILL
    trace = Trace(json.loads(path.read_text()))
    assert len(trace.events) >= sizes[-1] and trace.of("launch") and trace.of("submit") and trace.of("gpu_kernel")


def state_of(process):
    """As in /proc: T is stopped. It takes a moment until all threads of a process are."""
    states = set()
    for thread in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{thread}/stat") as file:
            states.add(file.read().rsplit(")", 1)[1].split()[0])
    return states.pop() if len(states) == 1 else "?"
