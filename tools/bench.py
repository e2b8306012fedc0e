#!/usr/bin/env python3
"""Runs the benchmark on each runtime there is and puts the figures side by side.

    tools/bench.py [--quick] [--rows REGEX] [--save]
    tools/bench.py --redraw FILE.json

Columns: the Vulkan runtime that libHalide carries ("stock"), ours put in front of it ("ours"), and Halide's own CUDA
backend where there is a CUDA device. All come from the same program and the same libHalide, in processes of their own
that differ in LD_PRELOAD and HL_JIT_TARGET alone. The program itself says which runtime it was bound to, and a column
whose runtime is not the one it should be is refused.

Writes bench.json, bench.md and bench.png (log scale) to build/bench; with --save also to test/performance/results,
named by date and device. A wrong result anywhere makes the exit code 1; 2 says that no row fits.
"""

import argparse
import ctypes
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VULKAN_TARGET = "host-vulkan-vk_int8-vk_int16-vk_int64-vk_v13"
CUDA_TARGET = "host-cuda-cuda_capability_80"
OUR_FILE = "libHalideVulkan.so"
RESULTS = ROOT / "test/performance/results"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="where the programs were built")
    parser.add_argument("--programs", type=pathlib.Path, help="folder of the two programs, if not in the build folder")
    parser.add_argument("--library", type=pathlib.Path, help="our libHalideVulkan.so, if not in the build folder")
    parser.add_argument("--out", type=pathlib.Path, help="default: bench/ in the build folder")
    parser.add_argument("--goals", type=pathlib.Path, default=ROOT / "test/performance/goals_h200.json")
    parser.add_argument("--columns", default="stock,ours,cuda", help="which to run, separated by commas")
    parser.add_argument("--rows", default=".*", help="regular expression over the rows' keys")
    parser.add_argument("--quick", action="store_true", help="a smoke test: few operations, figures not to be trusted")
    parser.add_argument("--long", action="store_true", help="also wait for one kernel of two seconds (hardware only)")
    parser.add_argument("--redraw", type=pathlib.Path, help="measure nothing: draw the chart of a kept .json beside it")
    parser.add_argument("--save", action="store_true", help="keep the results in test/performance/results")
    options = parser.parse_args()
    try:
        re.compile(options.rows)
    except re.error as error:
        parser.error(f"--rows: {options.rows!r} is no regular expression: {error}")
    unknown = set(options.columns.split(",")) - {"stock", "ours", "cuda"}
    if unknown:
        parser.error(f"--columns: {', '.join(sorted(unknown)) or 'nothing'} is none of stock, ours, cuda")
    options.out = options.out or options.build / "bench"
    options.library = options.library or options.build / OUR_FILE
    if not options.redraw:
        for option, path in (("--out", options.out), ("--save", RESULTS if options.save else None)):
            refused = path and folder_refused(path)
            if refused:
                parser.error(f"{option}: {path}: {refused}")
    # What a file holds that is read later: a kept result, and the goals.
    options.kept = options.redraw and read(parser, "--redraw", options.redraw, ("facts", "columns"))
    no_goals = options.goals == parser.get_default("goals") and not options.goals.is_file()
    options.goals = None if no_goals else read(parser, "--goals", options.goals, ("goals", "device"))
    return options


def folder_refused(path):
    """Makes the folder; says why it cannot be had, or cannot be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return error.strerror
    return None if os.access(path, os.W_OK) else "cannot be written to"


def read(parser, option, path, names):
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        parser.error(f"{option}: {path}: {error.strerror}")
    except ValueError as error:  # no JSON, or no text
        parser.error(f"{option}: {path}: {error}")
    if not isinstance(content, dict) or not set(names) <= set(content):
        parser.error(f"{option}: {path} is no file of bench.py: it must have {' and '.join(names)}")
    return content


def find_program(options, name):
    for folder in [options.programs] if options.programs else [options.build / "test/performance", options.build]:
        if (folder / name).is_file():
            return folder / name
    sys.exit(f"{name} is not built: run `make build` first, or name its folder with --programs")


def has_cuda():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def environment_of(column, options):
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "HL_TARGET", "HL_JIT_TARGET")}
    env["HL_JIT_TARGET"] = CUDA_TARGET if column == "cuda" else os.environ.get("BENCH_VULKAN_TARGET", VULKAN_TARGET)
    if column == "ours":
        env["LD_PRELOAD"] = str(options.library.resolve())
    return env


def run(column, program, extra, options):
    path = options.out / f"{program.name}-{column}.json"
    path.unlink(missing_ok=True)
    print(f"\n== {column}: {program.name}", flush=True)
    try:
        command = [program, "--json", path, *extra]
        code = subprocess.run(command, env=environment_of(column, options), timeout=560).returncode
    except subprocess.TimeoutExpired:
        print(f"{program.name} on {column} did not end in time", file=sys.stderr)
        return None, False
    if not path.is_file():
        print(f"{program.name} on {column} left no results (exit code {code})", file=sys.stderr)
        return None, False
    report = json.loads(path.read_text())
    path.unlink()
    if column != "cuda" and (report["runtime"] == OUR_FILE) != (column == "ours"):
        sys.exit(f"column {column} ran on {report['runtime']}: not what it was meant to measure")
    return report, code == 0


def check_rows(options):
    """Where no row fits --rows: says so, lists them, and ends with exit code 2. A benchmark of nothing looks good."""
    column = next((c for c in options.columns.split(",") if c != "cuda" or has_cuda()), None)
    if options.rows == ".*" or column is None:
        return
    command = [find_program(options, "performance_gpu_dispatch_overhead"), "--list"]
    done = subprocess.run(command, env=environment_of(column, options), capture_output=True, text=True, timeout=120)
    # A row is its key, padded to 28, and its title; above them stand the device's facts.
    found = (re.fullmatch(r"([a-z]\w*) *", line[:28]) for line in done.stdout.splitlines() if line[28:29] == " ")
    keys = [match[1] for match in found if match] + ["async_gpu"]
    if done.returncode == 0 and not any(re.search(options.rows, key) for key in keys):
        print(f"no row fits --rows {options.rows}; the rows are: {', '.join(keys)}", file=sys.stderr)
        sys.exit(2)


def measure(options):
    """One report per column, with the rows of both programs in it; and whether all results were right."""
    overhead = find_program(options, "performance_gpu_dispatch_overhead")
    asynchronous = find_program(options, "performance_async_gpu")
    quick = ["--quick"] if options.quick else []
    columns, right = {}, True
    for column in options.columns.split(","):
        if column == "cuda" and not has_cuda():
            continue
        if column == "ours" and not options.library.is_file():
            sys.exit(f"{options.library} is not built: run `make build` first, or leave it out with --columns")
        extra = quick + ["--rows", options.rows] + (["--long"] if options.long else [])
        report, good = run(column, overhead, extra, options)
        right = right and good
        if report is None:
            continue
        if re.search(options.rows, "async_gpu"):
            more, good = run(column, asynchronous, quick, options)
            right = right and good
            report["rows"] += more["rows"] if more else []
        columns[column] = report
    return columns, right


def figure(value):
    return "" if value is None else f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def ratio(value):
    return "" if value is None else f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def table(columns, goals):
    """Rows of text for the table: header first. A wrong result is marked, never left out."""
    names = list(columns)
    values = {name: {row["key"]: row for row in columns[name]["rows"]} for name in names}
    titles = {}
    for name in names:
        titles.update({key: row["title"] for key, row in values[name].items()})
    compare = [("stock", "stock / ours"), ("cuda", "CUDA / ours")]
    compare = [(base, text) for base, text in compare if base in names and "ours" in names]
    head = ["microseconds per operation"] + [{"cuda": "CUDA"}.get(n, n) for n in names] + [text for _, text in compare]
    head += (["min..max, ours", "cpu, ours"] if "ours" in names else []) + (["goal", "reached"] if goals else [])
    lines = [head]
    for key, title in titles.items():
        cells = [title]
        for name in names:
            row = values[name].get(key)
            cells.append((figure(row["median"]) + ("" if row["right"] else " WRONG")) if row else "-")
        ours = values.get("ours", {}).get(key)
        for base, _ in compare:
            other = values[base].get(key)
            cells.append(ratio(other["median"] / ours["median"]) if ours and other and ours["median"] else "")
        if "ours" in names:
            cells += [f"{figure(ours['min'])}..{figure(ours['max'])}", figure(ours["cpu"])] if ours else ["", ""]
        if goals:
            goal = goals.get(key)
            cells += [figure(goal), ("yes" if ours["median"] <= goal else "no") if goal and ours else ""]
        lines.append(cells)
    return lines


def as_text(lines):
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))) for line in lines
    )


def as_markdown(lines, facts):
    out = [f"{name}: {value}  " for name, value in facts.items()] + [""]
    out.append("| " + " | ".join(lines[0]) + " |")
    out.append("|" + "---|" * len(lines[0]))
    out += ["| " + " | ".join(line) + " |" for line in lines[1:]]
    return "\n".join(out) + "\n"


def chart(path, columns, device):
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib, no chart", file=sys.stderr)
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    keys, titles = [], []
    for report in columns.values():
        for row in report["rows"]:
            if row["key"] not in keys:
                keys.append(row["key"])
                titles.append(row["title"])
    colours = {"stock": "#b0b0b0", "ours": "#c0392b", "cuda": "#76b900"}
    labels = {"stock": "Vulkan, stock", "ours": "Vulkan, ours", "cuda": "CUDA"}
    height = 0.8 / max(1, len(columns))
    _, axes = plt.subplots(figsize=(10, 0.9 + 0.42 * len(keys)))
    for i, (name, report) in enumerate(columns.items()):
        rows = {row["key"]: row for row in report["rows"]}
        places = [y + i * height for y, key in enumerate(keys) if key in rows]
        values = [max(rows[key]["median"], 1e-3) for key in keys if key in rows]
        axes.barh(places, values, height, color=colours[name], label=labels[name])
        for place, value in zip(places, values):
            axes.text(value * 1.08, place, figure(value), va="center", fontsize=6)
    axes.set_yticks([y + height * (len(columns) - 1) / 2 for y in range(len(keys))], titles, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds per operation (median, logarithmic; shorter is better)")
    # The legend has a line of its own above the bars: among them it would cover some.
    axes.set_title(f"What one GPU operation of Halide costs: {device}", fontsize=10, pad=24)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(columns), fontsize=8, frameon=False)
    axes.grid(axis="x", which="major", alpha=0.3)
    axes.set_axisbelow(True)
    axes.margins(y=0.01)
    axes.set_xlim(right=axes.get_xlim()[1] * 4)  # room for the last figures
    plt.tight_layout()
    plt.savefig(path, dpi=130)


def keep(options, facts):
    """Copies the results to where they are committed, under a name that sorts by date."""
    folder = RESULTS
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)", "", facts["device"]).lower()).strip("-")
    for kind in ("json", "md", "png"):
        source = options.out / f"bench.{kind}"
        if source.is_file():
            (folder / f"{facts['date']}-{slug}.{kind}").write_bytes(source.read_bytes())
    print(f"kept in {folder.relative_to(ROOT)} as {facts['date']}-{slug}")


def main():
    options = arguments()
    if options.redraw:
        kept = options.kept
        chart(options.redraw.with_suffix(".png"), kept["columns"], kept["facts"]["device"])
        return 0
    check_rows(options)
    columns, right = measure(options)
    if not columns:
        return 1
    first = next(iter(columns.values()))
    facts = {
        "date": datetime.date.today().isoformat(),
        "device": first["device"],
        # CUDA's column tells none; a result of it alone has no driver.
        "driver": next((report["driver"] for report in columns.values() if report.get("driver")), "unknown"),
        "processors": str(len(os.sched_getaffinity(0))),
        "halide": first["halide"],
    }
    goals = options.goals or {"device": "none"}
    lines = table(columns, goals["goals"] if goals["device"] in facts["device"] else None)
    for name, report in columns.items():
        wait = {k: v for k, v in report.items() if k.startswith("long_wait_")}
        if wait:
            facts[f"waiting {wait['long_wait_seconds']} s for one kernel, {name}"] = (
                f"{wait['long_wait_caller_cpu_percent']} % of a processor in the caller, "
                f"{wait['long_wait_process_cpu_percent']} % in the process"
            )
    (options.out / "bench.json").write_text(json.dumps({"facts": facts, "columns": columns}, indent=1) + "\n")
    (options.out / "bench.md").write_text(as_markdown(lines, facts))
    chart(options.out / "bench.png", columns, facts["device"])
    print("\n" + "\n".join(f"{name}: {value}" for name, value in facts.items()))
    if options.quick:
        print("--quick: these figures are not to be trusted")
    print("\n" + as_text(lines))
    print(f"\nwritten to {options.out}" + ("" if right else "; WRONG RESULTS or failed runs, see above"))
    if options.save:
        keep(options, facts)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
