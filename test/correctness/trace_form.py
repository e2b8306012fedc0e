"""A trace of HL_VK_TRACE as Python sees it, and what holds for every one."""

import collections


class Trace:
    def __init__(self, events):
        self.events = events

    def of(self, category, name=None):
        return [e for e in self.events if e.get("cat") == category and (name is None or name in e["name"])]

    def names(self, kind):
        return {(e["pid"], e["tid"]): e["args"]["name"] for e in self.events if e["ph"] == "M" and e["name"] == kind}

    def tracks(self):
        tracks = collections.defaultdict(list)
        for e in self.events:
            if e["ph"] == "X":
                tracks[e["pid"], e["tid"]].append(e)
        return tracks

    @property
    def notes(self):
        return [e["name"] for e in self.of("note")]


def end(event):
    return event["ts"] + event["dur"]


# Times have three decimals; as floating-point microseconds since the machine's start they are good to a nanosecond.
ROUNDING = 0.002


def check_form(trace):
    """What holds for every trace."""
    assert trace.events, "the trace is empty"
    for e in trace.events:
        assert e["ph"] in "XMsfi", e
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int), e
        if e["ph"] == "X":
            assert e["dur"] >= 0 and e["ts"] > 0, e
    processes = {pid for pid, _ in trace.names("process_name")}
    threads = trace.names("thread_name")
    for track, spans in trace.tracks().items():
        assert track[0] in processes and track in threads, track
        # Each span lies in the one around it, or begins after it.
        around = []
        for e in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
            while around and end(around[-1]) <= e["ts"] + ROUNDING:
                around.pop()
            if around:
                assert end(e) <= end(around[-1]) + ROUNDING, (e, around[-1])
            around.append(e)
    # A track's spans are written as they end.
    for track, spans in trace.tracks().items():
        ends = [end(e) for e in spans]
        for before, after in zip(ends, ends[1:]):
            assert after >= before - ROUNDING, track
