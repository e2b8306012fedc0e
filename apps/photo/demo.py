#!/usr/bin/env python3
"""Develops a real photograph with Halide on the Vulkan device of this machine, on the stock runtime and on ours.

    demo.py [--picture FILE] [--runs N]

The pipeline is a local Laplacian filter of 28 GPU kernels (local_laplacian.py), written in Python against the
unmodified halide wheel. Each runtime gets a process of its own, started the same way but for LD_PRELOAD; the picture is
compared with the one that the CPU schedule of the same pipeline makes. Pictures go to build/demo.

The exit code is 0 if our runtime's picture is right, and 1 if it is not, or if the file is no picture.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

import devices
import pictures
from develop import runs_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VULKAN = "host-vulkan-vk_int8-vk_int16-vk_int64-vk_v13"
CUDA = "host-cuda-cuda_capability_80"
TITLES = {"stock": "Vulkan, stock runtime", "ours": "Vulkan, our runtime", "cuda": "CUDA"}

# The same sums in another order of rounding: a value on the edge between two of 255 steps may fall to either side.
TOLERANCE, TOLERATED_SHARE = 1, 0.001
# All of this size's images, down to the smallest pyramid level, are multiples of 64 bytes. On devices that align
# buffers to 64 bytes (lavapipe is one) stock Halide 21 loses the tail of any other.
EVEN_SIZE = (640, 384)

# A process takes some ten seconds, most of it compiling. One that hangs must not hang the demo.
PROCESS_SECONDS = 180


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--picture", type=pathlib.Path, help="default: the photograph that scikit-image ships")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/libHalideVulkan.so")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/demo")
    parser.add_argument("--runs", type=runs_of, default=9, help="timed runs in each process, 1 at least")
    parser.add_argument("--columns", default="stock,ours,cuda", help="what to run, separated by commas")
    options = parser.parse_args()
    unknown = [column for column in options.columns.split(",") if column not in TITLES]
    if unknown:
        parser.error(f"--columns: {', '.join(unknown) or 'nothing'} is none of {', '.join(TITLES)}")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {options.out}: {error.strerror}")
    return options


def develop(column, size, options, folder):
    """One process: the picture it made and its report, or None and a reason."""
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "HL_TARGET", "HL_JIT_TARGET")}
    if column == "ours":
        env["LD_PRELOAD"] = str(options.library.resolve())
    report, result = folder / "report.json", folder / "result.npy"
    for path in (report, result):
        path.unlink(missing_ok=True)
    command = [sys.executable, "-B", HERE / "develop.py", "--picture", options.picture, "--report", report]
    command += ["--output", result, "--runs", str(options.runs), "--size", "%dx%d" % size]
    command += ["--target", {"cpu": "host", "cuda": CUDA}.get(column, VULKAN)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PROCESS_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"did not end within {PROCESS_SECONDS} seconds"
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        return None, lines[-1]
    facts = json.loads(report.read_text())
    if facts["ours"] != (column == "ours"):
        return None, "ran on another runtime than it should"
    return numpy.load(result), facts


def judge(result, reference, source):
    """Whether a picture is right, and in words how far it is from the CPU's."""
    distance = numpy.abs(result.astype(int) - reference.astype(int))
    differing = numpy.count_nonzero(distance) / distance.size
    right = distance.max() <= TOLERANCE and differing <= TOLERATED_SHARE
    # A pipeline that passes the picture through, or makes it black on both sides, is not a developed picture.
    changed = numpy.abs(reference.astype(int) - source.astype(int)).mean()
    right = right and changed > 1 and reference.std() > 10
    return bool(right), f"largest difference {distance.max()} of 255, in {100 * differing:.3f} % of the values"


def compare(size, options, folder):
    """Runs every column at one size. Maps each column to (right, its report), and prints a line for each."""
    source = pictures.crop(pictures.load(options.picture), *size)
    reference, facts = develop("cpu", size, options, folder)
    if reference is None:
        sys.exit(f"the CPU schedule failed: {facts}")
    name = "%dx%d" % size
    print(f"\n{name} pixels, {facts['stages']} stages; time to send, develop and fetch one picture")
    print(f"  {'CPU schedule':24} {facts['median_ms']:9.2f} ms")
    pictures.save(options.out / f"{name}-input.png", source)
    pictures.save(options.out / f"{name}-cpu.png", reference)
    outcome = {}
    for column in options.columns.split(","):
        if column == "cuda" and not devices.has_cuda():
            continue
        title = TITLES[column]
        result, facts = develop(column, size, options, folder)
        if result is None:
            print(f"  {title:24} FAILED: {facts}")
            outcome[column] = (False, None)
            continue
        pictures.save(options.out / f"{name}-{column}.png", result)
        right, words = judge(result, reference, source)
        print(
            f"  {title:24} {facts['median_ms']:9.2f} ms (from {facts['min_ms']:.2f} to {facts['max_ms']:.2f}; the "
            f"first {facts['first_ms']:.0f}), {'right' if right else 'WRONG PICTURE'}: {words}",
            flush=True,
        )
        outcome[column] = (right, facts)
    return outcome


def verdict(right, outcome, stock_was_wrong, found):
    """The last line. A ratio of times has its caveat beside it, since this line is what is handed on."""
    used = (outcome.get("ours") or (None, None))[1]
    used = used and used["device"]
    names = used or ", ".join(device.name for device in found)
    if "ours" not in outcome:
        return f"our runtime was not asked for, on {names}"
    words = "the picture of our runtime is right" if right else "THE PICTURE OF OUR RUNTIME IS WRONG"
    if not right or not outcome.get("stock", (False, None))[0]:
        return f"{words}, on {names}"
    ours, stock = outcome["ours"][1]["median_ms"], outcome["stock"][1]["median_ms"]
    words += f"; {stock:.2f} ms on stock, {ours:.2f} ms on ours: {stock / ours:.2f} times as fast"
    if stock_was_wrong:
        words += " (and stock gets the whole photograph wrong)"
    words += f", on {names}"
    if any(device.is_software for device in found if used in (None, device.name)):
        words += ": a software device, where times say little"
    return words


def main():
    options = arguments()
    if "ours" in options.columns and not options.library.is_file():
        sys.exit(f"{options.library} is not built: run `make build` first")
    try:
        options.picture = options.picture or pictures.photograph_path()
        _, height, width = pictures.load(options.picture).shape
    except (pictures.Unreadable, FileNotFoundError) as error:
        sys.exit(str(error))
    found = devices.vulkan_devices()
    names = ", ".join(device.name for device in found)
    print("picture:", options.picture.name)
    print("device:", names or "no Vulkan device found")
    print(f"right means: at most {TOLERANCE} of 255 from the CPU's picture, in at most {100 * TOLERATED_SHARE} % of it")
    with tempfile.TemporaryDirectory() as folder:
        outcome = compare((width, height), options, pathlib.Path(folder))
        right = outcome.get("ours", (True, None))[0]
        stock_was_wrong = "stock" in outcome and not outcome["stock"][0]
        if stock_was_wrong and width >= EVEN_SIZE[0] and height >= EVEN_SIZE[1]:
            print("\nstock gets this size wrong, so the times to compare are those of a crop that it gets right:")
            outcome = compare(EVEN_SIZE, options, pathlib.Path(folder))
            right = right and outcome.get("ours", (True, None))[0]
    print(f"\npictures are in {options.out}")
    print("VERDICT:", verdict(right, outcome, stock_was_wrong, found))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
