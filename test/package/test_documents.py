"""Every command in the documents is run, or, where that would take too long, looked at: its make target, preset, build
target, tests and options must be there. A command that fits no rule below fails the test: give it one.

What stands for something of the reader's own (`your-halide-program`, `/path/to/`, words in capitals) is replaced.
"""

import fnmatch
import json
import os
import re
import subprocess
from pathlib import Path

import documents
import pytest

E = os.environ
PROJECT = Path(E["HV_SOURCE"])
BUILD = Path(E["HV_BINARY_DIR"])
PROGRAM = Path(__file__).with_name("preload_program.py")


def text_of(name):
    return (PROJECT / name).read_text()


MAKES_OWN = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "PRESET", "JOBS")


def run(words, **environment):
    done = subprocess.run(
        [str(word) for word in words],
        cwd=PROJECT,
        # What `make test` hands down to a make below it would change what that one says and does.
        env={name: value for name, value in {**E, **environment}.items() if name not in MAKES_OWN},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def listed_tests(*arguments):
    """Those of `make test` and those of `make nightly`."""
    shown = run(["ctest", "--test-dir", BUILD, "--show-only=json-v1", "-C", "nightly", *arguments])
    return [test["name"] for test in json.loads(shown)["tests"]]


def preset(kind, name):
    known = json.loads(text_of("CMakePresets.json"))[kind]
    assert name in [one["name"] for one in known if not one.get("hidden")], f"no preset {name} in {kind}"


def make(words, _):
    run(["make", "--dry-run", *words[1:]])
    for word in words[1:]:
        if word.startswith("PRESET="):
            preset("buildPresets", word.removeprefix("PRESET="))


@pytest.mark.parametrize("name", ["release", "debug"])
@pytest.mark.parametrize(
    "target, needs",
    [
        ("demo", ["HalideVulkan"]),
        ("bench", ["HalideVulkan", "performance_gpu_dispatch_overhead", "performance_async_gpu"]),
    ],
)
def test_make_builds_what_it_runs_and_no_more(name, target, needs):
    """And runs what the preset built: its folder is that of CMakePresets.json."""
    folder = next(one["binaryDir"] for one in json.loads(text_of("CMakePresets.json"))["configurePresets"]
                  if one["name"] == name).removeprefix("${sourceDir}/")
    lines = documents.commands(run(["make", "--dry-run", target, f"PRESET={name}"]).splitlines())
    [build] = [words for words in lines if words[:2] == ["cmake", "--build"]]
    assert build[build.index("--target") + 1 :] == needs
    steps = run(["ninja", "-C", BUILD, "-t", "commands", *needs]).splitlines()
    assert len(steps) < 30, "the tests are not needed"
    named = {"demo": ["--library", f"{folder}/libHalideVulkan.so"], "bench": ["--build", folder]}
    assert lines[-1][-2:] == named[target]


@pytest.mark.parametrize(
    "arguments, words",
    [(["nonsense"], "PRESET is 'nonsense'"), (["release", "many"], "JOBS is 'many'"), (["release", "0"], "JOBS is '0'")],
)
def test_coverage_refuses_what_makes_no_sense(arguments, words):
    done = subprocess.run([PROJECT / "tools/coverage", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1


def ctest(words, _):
    preset("testPresets", words[words.index("--preset") + 1])
    option, pattern = words[3:5]
    if not pattern.isupper():
        assert listed_tests(option, pattern), f"no test fits {pattern}"


def cmake(words, _):
    kind = "buildPresets" if "--build" in words else "configurePresets"
    preset(kind, words[words.index("--preset") + 1])
    if "--target" in words:
        run(["ninja", "-C", BUILD, "-t", "query", words[words.index("--target") + 1]])


def overlay(words, _):
    options = {word for word in words if word.startswith("--")}
    assert options <= set(run([words[0], "--help"]).split())


def as_it_is(words, tmp_path):
    """Runs a command where it can end in a few seconds, with what is the reader's own replaced."""
    environment = {}
    while re.match(r"\w+=", words[0]):
        name, value = words.pop(0).split("=", 1)
        environment[name] = value
    if words[0] == "your-halide-program":
        words = [E["HV_PYTHON"], "-B", PROGRAM]
    elif words[0] == "gengen":
        words[0] = E["HV_GENGEN"]
    elif words[:3] == ["python", "-m", "halide_vulkan"]:
        words = [E["HV_PYTHON"], "-B", "-m", "halide_vulkan", "run", PROGRAM]
        environment.update(PYTHONPATH=str(PROJECT / "python"), HALIDE_VULKAN_LIBRARY=E["HV_LIBRARY"])
    here = {"/path/to/": f"{BUILD}/", "folder": str(tmp_path), "calls.txt": str(tmp_path / "calls.txt")}

    def local(word):
        word = re.sub(r"^build/", f"{BUILD}/", str(word))
        for old, new in here.items():
            word = word.replace(old, new) if old.endswith("/") else new if word == old else word
        return word

    said = run([local(word) for word in words], **{name: local(value) for name, value in environment.items()})
    if PROGRAM in words:
        assert "runtime ours" in said
    return said


def one_row(words, tmp_path):
    as_it_is([*words, "--build", BUILD, "--out", tmp_path], tmp_path)
    [column] = json.loads((tmp_path / "bench.json").read_text())["columns"].values()
    assert len(column["rows"]) == 1, "the document says that it is one row"


def options_of(words, _):
    """Of a Python program that takes long: its options are those that it says it has."""
    program = next(place for place, word in enumerate(words) if word.endswith(".py"))
    said = run([E["HV_PYTHON"], "-B", *words[program : program + 1], "--help"]).split()
    assert {word for word in words[program:] if word.startswith("--")} <= set(said)


def pip(words, _):
    """package_python_wheel has pip make this wheel, from this tree."""
    assert words[1] in ("install", "wheel") and words[2] == "." and "[build-system]" in text_of("pyproject.toml")


def virtual_environment(words, _):
    assert words[:3] == ["python3", "-m", "venv"]
    run([*words[:3], "--help"])


def linked(words, _):
    """In the order and with the option of the program package_link_first, which another test runs."""
    used = text_of("test/package/CMakeLists.txt")
    libraries = [word.removeprefix("lib").removesuffix(".so") for word in words if word.endswith(".so")]
    places = [re.search(rf"target_link_libraries\(package_link_first .*\b{name}\b", used).end() for name in libraries]
    assert libraries == ["HalideVulkan", "Halide"] and places == sorted(places)
    assert "-Wl,--no-as-needed" in words and "target_link_options(package_link_first PRIVATE LINKER:--no-as" in used


# The beginning of a command, variables before it left out, and what is done with it. The first that fits counts.
RULES = [
    ("make", make),
    ("ctest --preset", ctest),
    ("cmake --preset", cmake),
    ("cmake --build --preset", cmake),
    ("tools/overlay", overlay),
    ("your-halide-program", as_it_is),
    ("gengen", as_it_is),
    ("test/run-with-runtime", as_it_is),
    (".venv/bin/python -B tools/bench.py --quick", one_row),
    (".venv/bin/python apps/photo/demo.py", options_of),
    ("python -m halide_vulkan run", as_it_is),
    ("python3 -m venv", virtual_environment),
    ("halide-env/bin/pip", pip),
    ("pip", pip),
    ("g++", linked),
]


def all_commands():
    for name in documents.NAMES:
        for language, lines in documents.blocks(text_of(name)):
            for words in documents.commands(lines) if language == "sh" else []:
                yield pytest.param(words, id=f"{name}: {' '.join(words)}")


@pytest.mark.parametrize("words", list(all_commands()))
def test_command(words, tmp_path):
    plain = list(words)
    while re.match(r"[A-Z_]+=", plain[0]):
        plain.pop(0)
    rule = next((act for start, act in RULES if f"{' '.join(plain)} ".startswith(f"{start} ")), None)
    assert rule, "no rule says how this command is tried"
    rule(list(words) if rule is as_it_is else plain, tmp_path)


def test_a_preset_is_built_before_its_tests_are_run():
    """`ctest --preset tsan` finds nothing to run where `make` has not built it, in the same block."""
    for name in documents.NAMES:
        for language, lines in documents.blocks(text_of(name)):
            built = {"release"}
            for words in documents.commands(lines) if language == "sh" else []:
                built |= {word.removeprefix("PRESET=") for word in words if words[0] == "make" and "PRESET=" in word}
                if "ctest" in words and "--preset" in words:
                    assert words[words.index("--preset") + 1] in built, f"{name}: {' '.join(words)}"


@pytest.mark.parametrize("name", documents.NAMES)
def test_commands_in_the_text(name):
    """Those of make and of halide-vulkan that stand in a sentence or a table."""
    for words in documents.inline_commands(text_of(name), "make "):
        make(words, None)
    environment = {"PYTHONPATH": str(PROJECT / "python"), "HALIDE_VULKAN_LIBRARY": E["HV_LIBRARY"]}
    for words in documents.inline_commands(text_of(name), "halide-vulkan "):
        ours = words[: words.index("--")] if "--" in words else words
        said = run([E["HV_PYTHON"], "-B", "-m", "halide_vulkan", words[1], "--help"], **environment)
        assert {word for word in ours if word.startswith("--")} <= set(said.replace("[", " ").replace("]", " ").split())


def test_every_target_of_make_and_every_tool_has_its_row():
    text = text_of("README.md")
    targets = re.search(r"^\.PHONY: (.*)$", text_of("Makefile"), re.M)[1].split()
    assert [name for name in targets if name not in ("all", "configure") and f"| `make {name}` |" not in text] == []
    row = re.search(r"^\| \[tools\]\(tools\) \|.*$", text, re.M)[0]
    tools = [path.name for path in (PROJECT / "tools").iterdir() if path.suffix in ("", ".py") and path.is_file()]
    assert len(tools) >= 5 and [name for name in tools if f"`{name}`" not in row] == []


def test_files_are_as_small_as_is_said():
    median, most = map(int, re.search(r"median is some (\d+) lines, the largest has under (\d+)",
                                      text_of("CONTRIBUTING.md")).groups())
    runtime = [path for path in (PROJECT / "src/runtime").iterdir() if path.suffix in (".h", ".cpp")]
    counts = sorted(len(path.read_text().splitlines()) for path in runtime)
    assert abs(counts[len(counts) // 2] - median) <= 20 and most - 100 <= counts[-1] < most


def test_every_document_is_read():
    """Tables of the benchmark's results are made by a program."""
    folders = ("apps", "cmake", "python", "src", "test", "tools")
    found = {str(path.relative_to(PROJECT)) for folder in folders for path in (PROJECT / folder).rglob("*.md")}
    found |= {path.name for path in PROJECT.glob("*.md")}
    made = {name for name in found if re.match(r"test/performance/results/\d", name)}
    assert found - made == set(documents.NAMES)

def test_cmake_is_that_of_the_consumers():
    """What the documents show of CMake is used in test/package/consumers, which other tests build."""
    used = "".join(path.read_text() for path in Path(__file__).parent.glob("consumers/*/CMakeLists.txt"))
    shown = [line for name in documents.NAMES for kind, lines in documents.blocks(text_of(name)) if kind == "cmake"
             for line in lines]
    assert shown
    for line in shown:
        for word in re.findall(r"[a-z_]+(?=\()|\b[A-Z_]{4,}\b", line.split("#")[0]):
            assert word in used, line


def test_python_in_the_documents(tmp_path):
    """The blocks of Python, with a pipeline where they say that one is run."""
    environment = {"PYTHONPATH": str(PROJECT / "python"), "HALIDE_VULKAN_LIBRARY": E["HV_LIBRARY"]}
    for number, lines in enumerate(
        lines for name in documents.NAMES for kind, lines in documents.blocks(text_of(name)) if kind == "python"
    ):
        # Where nothing in a block speaks of a pipeline, one follows it.
        lines = lines if any(line.startswith("# ... ") for line in lines) else [*lines, "# ... a pipeline"]
        program = "\n".join(lines).replace("build/libHalideVulkan.so", E["HV_LIBRARY"])
        pipeline = f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
        file = tmp_path / f"block{number}.py"
        file.write_text(re.sub(r"^# \.\.\. .*$", pipeline, program, flags=re.M))
        assert "runtime ours" in run([E["HV_PYTHON"], "-B", file], **environment)


@pytest.mark.parametrize("name", documents.NAMES)
def test_links(name):
    for target in documents.links(text_of(name)):
        file, _, anchor = target.partition("#")
        path = (PROJECT / name).parent / file if file else PROJECT / name
        assert path.exists(), target
        assert not anchor or anchor in documents.anchors(path), target


def test_reading_order_is_the_include_order():
    """README_vulkan.md lists the headers as vulkan.cpp includes them, and as pure those whose first line says so."""
    runtime = PROJECT / "src/runtime"
    included = re.findall(r'^#include "(vulkan_\w+\.h)"', (runtime / "vulkan.cpp").read_text(), re.M)
    listed = re.findall(r"^\| `(vulkan_\w+\.h)` \|.*\| (pure)? ?\|$", text_of("README_vulkan.md"), re.M)
    assert [name for name, _ in listed] == included
    for name, pure in listed:
        first = (runtime / name).read_text().split("\n")[0]
        assert bool(pure) == first.endswith(" [pure]"), name


def test_the_tree_is_complete():
    """README.md has a row for each folder of sources and tests, and names each file at the top."""
    text = text_of("README.md")
    folders = [f"{top}/{path.name}" for top in ("src", "test", "apps") for path in (PROJECT / top).iterdir()
               if path.is_dir() and path.name != "__pycache__"]
    assert [name for name in folders if f"\n| [{name}]({name}) |" not in text] == []
    files = [path.name for path in PROJECT.iterdir() if path.is_file() and not path.name.startswith(("README", "."))]
    assert [name for name in files if name not in text] == []


def test_promised_tests_exist():
    names = listed_tests()
    promised = list(documents.promised_tests(text_of("README_vulkan.md")))
    assert len(promised) > 50
    assert [pattern for pattern in promised if not fnmatch.filter(names, pattern)] == []


def test_changelog_begins_with_this_version():
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", text_of("CMakeLists.txt"))[1]
    assert re.search(r"^## ([\d.]+)", text_of("CHANGELOG.md"), re.M)[1] == version


def test_blocks_are_read():
    """The reader itself: fenced and indented blocks, comments, joined lines, variables in front."""
    text = "a\n\n    X=1 \\\n        make b c   # d\n\n```sh\n# only this\nctest -R 'e f'\n```\n\n    find_package(g)\n"
    found = documents.blocks(text)
    assert [language for language, _ in found] == ["sh", "sh", "cmake"]
    assert documents.commands(found[0][1]) == [["X=1", "make", "b", "c"]]
    assert documents.commands(found[1][1]) == [["ctest", "-R", "e f"]]
