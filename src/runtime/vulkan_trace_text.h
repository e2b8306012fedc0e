// vulkan_trace_text.h: one thing that happened, as a record of fixed size and as a Chrome trace event. [pure]
//
// A record is what the program's threads write (fast, no text); the text is made later by the thread that writes the
// file. The format is the one that chrome://tracing and Perfetto read: an array of objects, times in microseconds with
// three decimals. Spans are "X" events; a viewer wants those of one track to nest, so work of the GPU that overlaps
// comes on several tracks ("lanes"), and each device is a process of its own in the viewer.
//
// Names come from programs and may hold anything: what JSON could not hold is replaced.
//
// Memory: none. Threads: everything here works on the caller's own data.

#ifndef HALIDE_VULKAN_TRACE_TEXT_H
#define HALIDE_VULKAN_TRACE_TEXT_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

constexpr uint32_t kTraceNumbers = 7;
constexpr uint32_t kTraceName = 96;  // with its end; Halide's kernel names are some 30 to 70 long
// The longest text of a record: a name of which each byte is written as six, and every number at its longest.
constexpr uint32_t kTraceText = 1200;

// Every kind of event once: X(enumerator, category, is a GPU's, names of the numbers ...)
#define HV_TRACE_KINDS(X)                                                                                              \
    /* What calls of the runtime do, on the thread that called. */                                                     \
    X(launch, "launch", false, "submission", "groups_x", "groups_y", "groups_z", "threads_x", "threads_y",             \
      "threads_z")                                                                                                     \
    X(copy, "copy", false, "bytes")                                                                                    \
    X(call, "call", false, nullptr)                                                                                    \
    X(compile, "compile", false, "threads_x", "threads_y", "threads_z")                                                \
    X(session, "session", false, nullptr)                                                                              \
    X(lock, "lock", false, nullptr)                                                                                    \
    X(wait, "wait", false, "submission", "polls", "blocked")                                                           \
    X(submit, "submit", false, "submission", "commands", "in_flight")                                                  \
    /* What the GPU did. */                                                                                            \
    X(gpu_submission, "gpu_submission", true, "submission", "commands", "calibrated")                                  \
    X(gpu_kernel, "gpu_kernel", true, "submission", "calibrated")                                                      \
    X(gpu_copy, "gpu_copy", true, "submission", "calibrated", "bytes")                                                 \
    /* About the trace itself. */                                                                                      \
    X(note, "note", false, "count")                                                                                    \
    X(flow_begin, "flow", false, nullptr)                                                                              \
    X(flow_end, "flow", true, nullptr)                                                                                 \
    X(name_process, "", true, nullptr)                                                                                 \
    X(name_thread, "", true, nullptr)

enum class TraceKind : uint32_t {
#define X(name, ...) name,
    HV_TRACE_KINDS(X)
#undef X
};

struct TraceKindInfo {
    const char *category;
    bool gpu;
    const char *numbers[kTraceNumbers];  // null: no more
};

constexpr TraceKindInfo kTraceKinds[] = {
#define X(name, category, gpu, ...) {category, gpu, {__VA_ARGS__}},
    HV_TRACE_KINDS(X)
#undef X
};

struct TraceRecord {
    TraceKind kind;
    uint32_t device;  // 0: the CPU's side; n: the n-th device
    uint64_t begin_ns, end_ns;
    uint64_t track;  // a thread; a lane of a device
    uint64_t numbers[kTraceNumbers];
    char name[kTraceName];
};

// Copies a name, and cuts it where it is too long.
inline void set_trace_name(char (&to)[kTraceName], const char *name) {
    uint32_t n = 0;
    for (; name && name[n] && n + 1 < kTraceName; n++) to[n] = name[n];
    to[n] = 0;
}

// A JSON string's inside. Bytes that are not ASCII would need to be whole UTF-8 characters, and a cut name may end in
// half of one.
inline void write_json_name(Text &text, const char *name) {
    char one[7] = "\\u00";
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        if (c < 32 || c == '"' || c == '\\') {
            one[4] = "0123456789abcdef"[c >> 4];
            one[5] = "0123456789abcdef"[c & 15];
            one[6] = 0;
            text << one;
        } else {
            const char plain[2] = {(char)(c < 127 ? c : '?'), 0};
            text << plain;
        }
    }
}

// Nanoseconds as microseconds with three decimals.
inline void write_json_time(Text &text, uint64_t ns) {
    const uint64_t us = ns / 1000;
    const uint32_t rest = (uint32_t)(ns - us * 1000);
    const char decimals[5] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10), 0};
    text << us << decimals;
}

// The number by which a viewer tells processes apart: ours, and one more for each device. Systems give out process
// numbers far below the distance.
inline uint64_t trace_process(uint32_t process, uint32_t device) { return process + 10000000ull * device; }

// Writes a record as one JSON object into `to`, which has room for kTraceText bytes. Returns its length.
inline uint32_t write_trace_text(const TraceRecord &r, uint32_t process, char *to) {
    const TraceKindInfo &kind = kTraceKinds[(uint32_t)r.kind];
    Text text(to, kTraceText);
    text << "{\"ph\":\"";
    switch (r.kind) {
    case TraceKind::name_process: text << "M\",\"name\":\"process_name"; break;
    case TraceKind::name_thread: text << "M\",\"name\":\"thread_name"; break;
    case TraceKind::flow_begin: text << "s\",\"name\":\"submission"; break;
    case TraceKind::flow_end: text << "f\",\"bp\":\"e\",\"name\":\"submission"; break;
    case TraceKind::note:
        text << "i\",\"s\":\"g\",\"name\":\"";
        write_json_name(text, r.name);
        break;
    default:
        text << "X\",\"name\":\"";
        write_json_name(text, r.name);
        break;
    }
    text << "\",\"pid\":" << trace_process(process, r.device) << ",\"tid\":" << r.track;
    if (r.kind == TraceKind::name_process || r.kind == TraceKind::name_thread) {
        text << ",\"args\":{\"name\":\"";
        write_json_name(text, r.name);
        text << "\"}}";
        return (uint32_t)text_length(to);
    }
    text << ",\"cat\":\"" << kind.category << "\",\"ts\":";
    write_json_time(text, r.begin_ns);
    if (r.kind == TraceKind::flow_begin || r.kind == TraceKind::flow_end) {
        // Submissions of several devices have the same numbers.
        text << ",\"id\":\"" << r.numbers[0] << "/" << r.numbers[1] << "\"}";
        return (uint32_t)text_length(to);
    }
    if (r.kind != TraceKind::note) {
        text << ",\"dur\":";
        write_json_time(text, r.end_ns > r.begin_ns ? r.end_ns - r.begin_ns : 0);
    }
    for (uint32_t i = 0; i < kTraceNumbers && kind.numbers[i]; i++) {
        text << (i == 0 ? ",\"args\":{\"" : ",\"") << kind.numbers[i] << "\":" << r.numbers[i];
    }
    text << (kind.numbers[0] ? "}}" : "}");
    return (uint32_t)text_length(to);
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_TRACE_TEXT_H
