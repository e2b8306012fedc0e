"""tools/bench.py, asked for what is not there: it says so and measures nothing."""

import os
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
    assert (tmp_path / "bench.json").is_file()
