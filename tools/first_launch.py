#!/usr/bin/env python3
"""Measures what a program waits for before its kernels run for the first time, with and without the pipeline cache.

    tools/first_launch.py [--runs N] [--quick] [--json FILE]

Starts test/performance/first_launch.cpp N times for each line of the table, in turn, and prints medians:

    stock                  the Vulkan runtime that libHalide carries
    ours                   ours, without a cache on disk
    ours, empty folder     HL_VK_PIPELINE_CACHE names an empty folder: what filling it costs
    ours, filled folder    the folder as such a run left it
    CUDA                   Halide's CUDA backend, where there is a device

A driver may keep compiled kernels on its own. That is switched off (__GL_SHADER_DISK_CACHE=0 for NVIDIA,
MESA_SHADER_CACHE_DISABLE=true for Mesa, CUDA_CACHE_DISABLE=1), so that the lines show the compiler. The lines "driver's
own" have it on, in a folder of their own that a run before has filled, and no cache of ours.

Where the driver keeps nothing in a pipeline cache (lavapipe), "filled" is no faster than "ours". The exit code is 1 for
wrong results only.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from bench import CUDA_TARGET, OUR_FILE, ROOT, VULKAN_TARGET, folder_refused, has_cuda

FIELDS = {
    "device_ms": "device made",
    "first_ms": "first kernel",
    "others_ms": "each other",
    "again_ms": "once more",
    "release_ms": "release",
}
NO_DRIVER_CACHE = {"__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true", "CUDA_CACHE_DISABLE": "1"}


def driver_cache_in(folder):
    return {
        "__GL_SHADER_DISK_CACHE": "1",
        "__GL_SHADER_DISK_CACHE_PATH": folder,
        "MESA_SHADER_CACHE_DISABLE": "false",
        "MESA_SHADER_CACHE_DIR": folder,
        "CUDA_CACHE_DISABLE": "0",
        "CUDA_CACHE_PATH": folder,
    }


def run(program, library, column, extra, kernels):
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "HL_TARGET", "HL_VK_PIPELINE_CACHE")}
    env["HL_JIT_TARGET"] = CUDA_TARGET if column == "cuda" else VULKAN_TARGET
    if column == "ours":
        env["LD_PRELOAD"] = str(library)
    result = subprocess.run([program, str(kernels)], env={**env, **extra}, capture_output=True, text=True, timeout=300)
    if not result.stdout.strip():
        sys.exit(f"{column}: no figures (exit code {result.returncode}): {result.stderr}")
    report = json.loads(result.stdout.strip().splitlines()[-1])
    if column != "cuda" and (report["runtime"] == OUR_FILE) != (column == "ours"):
        sys.exit(f"column {column} ran on {report['runtime']}: not what it was meant to measure")
    return report


def runs_of(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="where the program was built")
    parser.add_argument("--program", type=pathlib.Path, help="the program, if not in the build folder")
    parser.add_argument("--library", type=pathlib.Path, help="our libHalideVulkan.so, if not in the build folder")
    parser.add_argument("--runs", type=runs_of, default=5, help="processes for each line, 1 at least")
    parser.add_argument("--quick", action="store_true", help="a smoke test: the cache alone, once, with three kernels")
    parser.add_argument("--json", type=pathlib.Path, help="also write every figure there")
    options = parser.parse_args()
    # Before the measuring, which takes minutes.
    if options.json and (folder_refused(options.json.parent) or options.json.is_dir()):
        parser.error(f"--json: {options.json} cannot be written")
    program = options.program or options.build / "test/performance/performance_first_launch"
    library = (options.library or options.build / OUR_FILE).resolve()
    if not program.is_file() or not library.is_file():
        sys.exit("run `make build` first, or name the program and the library")
    runs, kernels = (1, 3) if options.quick else (options.runs, 12)

    reports = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for own in ("driver-stock", "driver-ours", "driver-cuda"):
            (folder / own).mkdir()
        lines = [("stock", "stock", NO_DRIVER_CACHE)] if not options.quick else []
        lines += [("ours", "ours", NO_DRIVER_CACHE)] if not options.quick else []
        lines += [(f"ours, {state} folder", "ours", NO_DRIVER_CACHE) for state in ("empty", "filled")]
        if not options.quick:
            lines += [("stock, driver's own", "stock", driver_cache_in(str(folder / "driver-stock")))]
            lines += [("ours, driver's own", "ours", driver_cache_in(str(folder / "driver-ours")))]
        if not options.quick and has_cuda():
            lines += [("CUDA", "cuda", NO_DRIVER_CACHE)]
            lines += [("CUDA, driver's own", "cuda", driver_cache_in(str(folder / "driver-cuda")))]
        for name, column, extra in lines:
            if "driver's own" in name:
                run(program, library, column, extra, kernels)  # fills it
        for i in range(runs):
            cache = folder / f"cache{i}"
            cache.mkdir()
            for name, column, extra in lines:
                if "folder" in name:
                    extra = {**extra, "HL_VK_PIPELINE_CACHE": str(cache)}
                reports.setdefault(name, []).append(run(program, library, column, extra, kernels))
            if options.quick and not list(cache.iterdir()):
                sys.exit("no file was left in the folder of the pipeline cache")
        sizes = [file.stat().st_size for file in (folder / "cache0").iterdir()]

    first = next(iter(reports.values()))[0]
    print(f"{first['device']}, driver {first['driver'] or 'unknown'}; milliseconds, median of {runs}; cache on disk: {sum(sizes)} bytes")
    print(f"{'':22}" + "".join(f"{title:>14}" for title in FIELDS.values()))
    right = True
    for name, all_runs in reports.items():
        right = right and all(report["right"] for report in all_runs)
        figures = [statistics.median(report[field] for report in all_runs) for field in FIELDS]
        print(f"{name:22}" + "".join(f"{figure:14.2f}" for figure in figures))
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))
    print("all results right" if right else "WRONG RESULTS")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
