"""Measures what one GPU operation of Halide costs here, on Halide's own runtime and on this one, side by side.

    halide-vulkan bench                       from Python, with what this package and Halide bring
    halide-vulkan bench --tree DIR [-- ...]   the whole benchmark of a built source tree (tools/bench.py), with CUDA

Times from Python hold Python's own share, a few microseconds for each call; the ratio of the columns is therefore
smaller than that of the whole benchmark. Each column is a process of its own, and each result is checked.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

from . import _child, _library

COLUMNS = ("stock", "ours")
TIMEOUT = 900.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", default=",".join(COLUMNS), help="which to run, separated by commas")
    parser.add_argument("--quick", action="store_true", help="a smoke test: few operations, figures not to be trusted")
    parser.add_argument("--tree", type=pathlib.Path, help="a source tree that was built with `make build`")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="for tools/bench.py, after --")


def measure(column: str, quick: bool) -> Dict[str, Any]:
    rows: List[Dict[str, Any]] = []

    def each(facts: Dict[str, Any]) -> None:
        if "begin" in facts:
            print(f"{column}: {facts['begin']}", file=sys.stderr, flush=True)
        if "row" in facts:
            rows.append(facts["row"])

    print(f"{column}: starting Halide", file=sys.stderr, flush=True)
    child = _child.probe("bench", "", arguments=[column, "quick" if quick else "full"], timeout=TIMEOUT, each=each)
    error = None
    if child.ended:
        error = f"{child.ended}: {(child.errors.strip().splitlines() or [''])[-1]}"
    elif child.facts.get("runtime") != column:
        error = f"ran on {child.facts.get('runtime')}: not what it was meant to measure"
    return {
        "device": child.facts.get("device", ""),
        "halide": child.facts.get("halide", ""),
        "rows": rows,
        "error": error,
    }


def figure(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def table(columns: Dict[str, Dict[str, Any]]) -> str:
    values = {name: {row["title"]: row for row in column["rows"]} for name, column in columns.items()}
    titles = list(dict.fromkeys(row["title"] for column in columns.values() for row in column["rows"]))
    both = all(name in columns for name in COLUMNS)
    lines = [["microseconds per operation", *columns, *(["stock / ours"] if both else [])]]
    for title in titles:
        cells = [title]
        for name in columns:
            row = values[name].get(title)
            cells.append(figure(row["median"]) + ("" if row["right"] else " WRONG") if row else "-")
        if both:
            stock, ours = (values[name].get(title) for name in COLUMNS)
            cells.append(f"{stock['median'] / ours['median']:.2f}x" if stock and ours and ours["median"] else "")
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths)))
        for line in lines
    )


def tree(options: argparse.Namespace) -> int:
    script = options.tree / "tools" / "bench.py"
    if not script.is_file():
        print(
            f"halide-vulkan bench: {script} is not there: --tree names a source tree of halide-vulkan", file=sys.stderr
        )
        return 2
    more = options.rest[1:] if options.rest[:1] == ["--"] else options.rest
    command = [sys.executable, str(script), *(["--quick"] if options.quick else []), *more]
    # With --json the table goes to standard error, where it is progress.
    code = subprocess.run(command, stdout=sys.stderr if options.json else None).returncode
    if options.json:
        results = options.tree / "build" / "bench" / "bench.json"
        print(results.read_text(encoding="utf-8") if results.is_file() else "{}")
    return code


def main(options: argparse.Namespace) -> int:
    if options.tree:
        return tree(options)
    if options.rest:
        more = " ".join(options.rest)
        print(f"halide-vulkan bench: only --tree takes more arguments, not this: {more}", file=sys.stderr)
        return 2
    wanted = options.columns.split(",")
    if not set(wanted) <= set(COLUMNS):
        print(f"halide-vulkan bench: --columns takes {' and '.join(COLUMNS)}", file=sys.stderr)
        return 2
    columns = {name: measure(name, options.quick) for name in wanted}
    right = all(not column["error"] and all(row["right"] for row in column["rows"]) for column in columns.values())
    if options.json:
        print(json.dumps({"version": _library.version(), "quick": options.quick, "columns": columns}, indent=1))
    else:
        # Halide's own runtime tells no device's name; both columns choose by the same rule on a machine with one.
        device = next((column["device"] for column in columns.values() if column["device"]), "unknown")
        print(f"device: {device}\nHalide: {columns[wanted[0]]['halide']}, from Python")
        if options.quick:
            print("--quick: these figures are not to be trusted")
        print(table(columns))
    for name, column in columns.items():
        if column["error"]:
            print(f"halide-vulkan bench: {name} {column['error']}", file=sys.stderr)
    return 0 if right else 1
