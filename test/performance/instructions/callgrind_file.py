"""What a callgrind dump says about one thread: instructions by object file and function, callees not included.

callgrind_annotate prints such a table for people and leaves out what is small. The format is described in valgrind's
manual ("Callgrind Format Specification"): names are given once and then go by their number, cost lines carry one event
here, and the line after a "calls=" holds the callee's cost, which is not the function's own.
"""

import collections
import os
import re

NAME = re.compile(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?$")
COST = re.compile(r"[\d+*-]\S* (\d+)$")


def instructions(path):
    """{(object file, function): instructions} of one dump of one thread."""
    names = {"ob": {}, "fn": {}}
    now = {"ob": "", "fn": ""}
    own = collections.Counter()
    of_callee = False
    with open(path) as lines:
        for line in lines:
            line = line.rstrip("\n")
            if name := NAME.match(line):
                is_callee, kind, number, text = name.groups()
                if text is not None:
                    names[kind][number] = text
                if not is_callee:
                    now[kind] = names[kind][number]
            elif line.startswith("calls="):
                of_callee = True
            elif cost := COST.match(line):
                if not of_callee:
                    own[os.path.basename(now["ob"]), now["fn"]] += int(cost[1])
                of_callee = False
    return own


def trigger(path):
    """The name that the program gave to this dump, or None for the dump at its end."""
    with open(path) as lines:
        for line in lines:
            if line.startswith("desc: Trigger: Client Request: "):
                return line.split(": ", 3)[3].strip()
    return None
