"""tools/bench.py, asked for what is not there: it says so and measures nothing."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest


def bench(tmp_path, rows):
    command = [sys.executable, "-B", os.environ["HV_BENCH"], "--build", os.environ["HV_BUILD"], "--out", tmp_path]
    command += ["--quick", "--columns", "ours", "--rows", rows]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_rows_that_fit_nothing_are_an_error_with_a_list(tmp_path):
    done = bench(tmp_path, "no_such_row")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "no row fits --rows no_such_row" in done.stderr
    listed = done.stderr.split("the rows are: ")[1].strip().split(", ")
    assert {"launch", "launch_sync", "upload_64k", "launch_sync_4_threads", "async_gpu"} <= set(listed)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", ["launch(", "*"])
def test_a_bad_expression_is_an_error(tmp_path, rows):
    done = bench(tmp_path, rows)
    assert done.returncode == 2 and f"{rows!r} is no regular expression" in done.stderr


def test_a_row_that_fits_is_measured(tmp_path):
    done = bench(tmp_path, "^idle_sync$")
    assert done.returncode == 0 and "idle device_sync" in done.stdout, done.stderr
    facts = json.loads((tmp_path / "bench.json").read_text())["facts"]
    # A result is of a device, a driver and a day: the driver tells its version, and its device is one of the names.
    assert re.search(r"[a-zA-Z]+ .*\d+\.\d+", facts["driver"]) and facts["device"] != "unknown" and facts["date"]
    assert f"driver: {facts['driver']}" in done.stdout and facts["driver"] in (tmp_path / "bench.md").read_text()


@pytest.mark.parametrize(
    "script, arguments, words",
    [
        ("bench.py", ["--columns", ""], "--columns: nothing is none of"),
        ("bench.py", ["--out", __file__], f"--out: {__file__}: File exists"),
        ("bench.py", ["--redraw", "/no/such.json"], "--redraw: /no/such.json: No such file"),
        ("bench.py", ["--redraw", __file__], f"--redraw: {__file__}: Extra data"),
        ("bench.py", ["--redraw", "EMPTY"], "it must have facts and columns"),
        ("bench.py", ["--goals", __file__], f"--goals: {__file__}: Extra data"),
        ("bench.py", ["--goals", "/no/such.json"], "--goals: /no/such.json: No such file"),
        ("first_launch.py", ["--runs", "0"], "--runs: 0 is no whole number from 1"),
        ("first_launch.py", ["--runs", "-1"], "--runs: -1 is no whole number from 1"),
        ("first_launch.py", ["--json", f"{__file__}/f.json"], "cannot be written"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_a_line(tmp_path, script, arguments, words):
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    arguments = [empty if word == "EMPTY" else word for word in arguments]
    path = pathlib.Path(os.environ["HV_BENCH"]).with_name(script)
    done = subprocess.run([sys.executable, "-B", path, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert words in done.stderr.splitlines()[-1], done.stderr
