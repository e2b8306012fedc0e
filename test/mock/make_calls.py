"""Writes calls.inc: every entry point of the mock driver, with what the Vulkan registry says of it.

    make_calls.py REGISTRY OUTPUT --lists FILE... --sources FILE...

REGISTRY is vk.xml, which comes with the Vulkan headers. A list is vulkan_api.def, or a file of the same form; the names
in it are taken in order, each once. For each name one line:

    MOCK_CALL(name, version, extension, (errors), written)

version: the core version that has it, as (major << 8 | minor), 0 where only an extension has. extension: the name of one
that has it, "" where none does. errors: the results that the specification lets it fail with; empty for functions that
return none. written: 1 where one of the sources defines do_NAME, its behaviour; the rest behave as their signature tells
(entry.cpp), so an entry point that the runtime starts to use is there at once.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree

# What only structures bring about that this runtime never chains, or that is an error of the application's.
NOT_ASKED_FOR = {"VK_ERROR_VALIDATION_FAILED_EXT"}


def read_registry(path):
    root = ElementTree.parse(path).getroot()
    errors, aliases, versions, extensions = {}, {}, {}, {}
    for command in root.iterfind("commands/command"):
        if command.get("alias"):
            aliases[command.get("name")] = command.get("alias")
        else:
            errors[command.findtext("proto/name")] = (command.get("errorcodes") or "").split(",")
    for feature in root.iterfind("feature"):
        major, minor = feature.get("number").split(".")
        for command in feature.iterfind("require/command"):
            versions.setdefault(command.get("name"), int(major) << 8 | int(minor))
    for extension in root.iterfind("extensions/extension"):
        for command in extension.iterfind("require/command"):
            extensions.setdefault(command.get("name"), extension.get("name"))
    for name, meaning in aliases.items():
        errors[name] = errors[meaning]
    return errors, versions, extensions


def read_names(paths):
    names = []
    for path in paths:
        with open(path) as file:
            for name in re.findall(r"^HV_\w+\((vk\w+)\)", file.read(), re.MULTILINE):
                if name not in names:
                    names.append(name)
    return names


def read_written(paths):
    written = set()
    for path in paths:
        with open(path) as file:
            written.update(re.findall(r"^\w+ do_(vk\w+)\(", file.read(), re.MULTILINE))
    return written


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("registry")
    parser.add_argument("output")
    parser.add_argument("--lists", nargs="+", required=True)
    parser.add_argument("--sources", nargs="+", required=True)
    options = parser.parse_args()
    errors, versions, extensions = read_registry(options.registry)
    written = read_written(options.sources)
    lines = ["// Made by make_calls.py.\n"]
    for name in read_names(options.lists):
        if name not in errors:
            sys.exit(f"make_calls.py: {name} is not in {options.registry}")
        allowed = [e for e in errors[name] if e and e not in NOT_ASKED_FOR]
        lines.append(
            f'MOCK_CALL({name}, {versions.get(name, 0)}, "{extensions.get(name, "")}", ({", ".join(allowed)}), {int(name in written)})\n'
        )
    lines.append("#undef MOCK_CALL\n")
    with open(options.output, "w") as file:
        file.writelines(lines)


if __name__ == "__main__":
    main()
