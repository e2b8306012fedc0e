"""Reads the documents: their blocks of code, their links, and the tests that the table of promises names."""

import re
import shlex
from pathlib import Path

NAMES = (
    "README.md",
    "README_vulkan.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "apps/photo/README.md",
    "python/README.md",
    "src/interpose/README.md",
    "test/performance/results/README.md",
    "test/unit/data/README.md",
)

# How a line of a block looks that is meant for a shell: perhaps variables first, then a program one of these names.
PROGRAMS = (
    r"make|cmake|ctest|gengen|python3?|pip|git|g\+\+|halide-vulkan|your-halide-program|[\w-]*clang[\w+-]*|"
    r"(?:\.venv/bin|halide-env/bin|tools|test|build|\.ci)/\S+"
)
SHELL = re.compile(rf"(?:\w+=\S*\s+)*(?:{PROGRAMS})(?:\s|$)")


def blocks(text):
    """(language, lines) of each fenced or indented block; an indented one has the language it looks like."""
    found, fence, block = [], None, []
    for line in [*text.splitlines(), "end"]:
        if fence is not None and not line.startswith("```"):
            block.append(line)
        elif fence is None and (line.startswith("    ") or (block and not line.strip())):
            block.append(line[4:])
        else:
            if block:
                found.append((language_of(block) if fence is None else fence, block))
            fence, block = (line[3:].strip() if fence is None and line.startswith("```") else None), []
    return [(language, [line for line in lines if line.strip()]) for language, lines in found]


def language_of(lines):
    lines = "\n".join(lines).replace("\\\n", " ").splitlines()
    if lines[0].startswith("import "):
        return "python"
    if re.match(r"(find_package|halide_vulkan_jit|add_halide_\w+)\(", lines[0]):
        return "cmake"
    return "sh" if any(SHELL.match(line) for line in lines) else ""


def commands(lines):
    """The commands of a shell block: lines that end in a backslash joined, comments gone."""
    text = "\n".join(lines).replace("\\\n", " ")
    split = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [words for words in split if words]


def inline_commands(text, start):
    """What stands between backticks and begins with `start`, split into words; dots and what is behind them gone."""
    found = re.findall(rf"`({re.escape(start)}[^`]*)`", text)
    return [shlex.split(command.split("...")[0]) for command in found]


def links(text):
    """Targets of the links in a text, without those to other sites."""
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not target.startswith(("http", "mailto"))]


def anchors(path: Path):
    """What can follow a # in a link to this document: its headings as GitHub writes them."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def promised_tests(text):
    """Patterns of test names in the last column of the table of promises; `.variant` belongs to the name before it."""
    section = text.split("## Promises and their tests")[1].split("\n## ")[0]
    for row in section.splitlines():
        if not row.startswith("| ") or "`" not in row:
            continue
        base = None
        for name in re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1]):
            if name.isupper():  # a variable that a test reads
                continue
            base = base if name.startswith(".") else name
            yield base + name if name.startswith(".") else name
