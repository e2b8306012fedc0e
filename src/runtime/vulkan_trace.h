// vulkan_trace.h: HL_VK_TRACE, what the runtime and the GPU do, as a file for Perfetto and chrome://tracing.
//
// Who is traced must not be slowed down: an event is a record of fixed size in a ring that all threads fill without a
// lock, some 100 ns with its two looks at the clock. One thread of ours makes text of the records and writes it
// (vulkan_trace_file.h). The ring is allocated once, when tracing first starts; when it is full, events are left out
// and counted, and the trace says how many. Off, an event costs one look at a flag.
//
// The trace is the process's: it starts when a context is made and HL_VK_TRACE names a file, and pauses when the last
// device is released; then all is on disk and the file has no blanks at its end. The next context goes on in the same
// file. What a kill takes is what the last kRound_us brought.
//
// Tracing never makes a call fail: where there can be no file, one message says so and the program goes on without.
//
// A child after fork has neither the thread nor a file of its own: it is not traced.
//
// Not to be confused with trace() (vulkan_gpu.h), which the debug flavour prints with.
//
// Thread rule: start and stop are serialised by a lock of their own, which is a leaf; recording takes none.

#ifndef HALIDE_VULKAN_TRACE_H
#define HALIDE_VULKAN_TRACE_H

#include "vulkan_gpu.h"
#include "vulkan_lock.h"
#include "vulkan_system_error.h"
#include "vulkan_trace_file.h"
#include "vulkan_trace_text.h"

namespace halide_vulkan {
namespace {

// 6 MiB. At a million events a second, more than any program of ours made, it lasts for 32 ms.
constexpr uint32_t kTraceRing = 32768;
// How often what was recorded is written.
constexpr int kRound_us = 5000;
// Threads told apart; more share one number.
constexpr uint32_t kTraceThreads = 256;
// Taking a lock that is free is no event.
constexpr uint64_t kLeastLockWait_ns = 1000;

struct TracedThread {
    uintptr_t self;    // pthread_self; 0: nobody; atomic
    uint32_t number;   // the system's, as seen when it first came by; 0: not known yet; atomic
    const char *name;  // null: it is the program's; atomic
    uint32_t told;     // the trace names it so; atomic
    uint32_t ended;    // it was ours, and is no more; written by that thread and its successor only
};

class Tracer {
public:
    uint32_t on;  // atomic

    // Starts unless tracing is on already. `path`: what HL_VK_TRACE says; null or empty: no trace.
    void start(void *user_context, const char *path, uint64_t limit);
    // Writes what there is and rests.
    void stop();
    // When this runtime is unloaded: ends it for good.
    void forget();

    // The device's calibrated clock is compared with this one.
    bool is_monotonic() const { return clock != nullptr; }
    uint64_t now() const { return clock ? now_ns(clock) : (uint64_t)halide_current_time_ns(nullptr); }
    void push(TraceKind kind, uint32_t device, uint64_t track, const char *name, uint64_t begin, uint64_t end,
              const uint64_t *numbers, uint32_t number_count);
    // Something about the trace itself.
    void note(const char *text) {
        const uint64_t count = 0;
        push(TraceKind::note, 0, this_thread(), text, now(), 0, &count, 1);
    }
    // The number of a device in the trace.
    uint32_t next_device() { return __atomic_add_fetch(&devices, 1, __ATOMIC_RELAXED); }
    // The calling thread, as a track.
    uint64_t this_thread() { return thread_of_caller().number; }
    // A thread of ours says so when it begins and when it ends: the system may give a later thread the same identity.
    void name_this_thread(const char *name) {
        TracedThread &t = thread_of_caller();
        __atomic_store_n(&t.name, name, __ATOMIC_RELEASE);
        __atomic_store_n(&t.told, 0, __ATOMIC_RELEASE);
    }
    void end_this_thread() { __atomic_store_n(&thread_of_caller().ended, 1, __ATOMIC_RELEASE); }

private:
    struct Cell {
        uint32_t turn;  // the record of number turn - 1 is complete; atomic
        TraceRecord record;
    };

    halide_mutex lock;
    Cell *ring;
    // Counts, which wrap around (32 bits, because 64 are not atomic on every target).
    uint32_t head;  // records begun; atomic
    uint32_t tail;  // records taken out; atomic
    uint32_t lost;  // records there was no room for; atomic
    uint32_t lost_told;
    halide_thread *writer;
    uint32_t stopping;  // atomic
    ClockGetTime clock;
    int (*getpid)();
    void *(*pthread_self)();
    int (*thread_number)();
    uint32_t process;
    uint32_t devices;  // seen so far; atomic
    bool refused;      // the path was, with a message
    bool limit_told;
    char path[kTextBytes];
    TraceFile *file;
    TracedThread threads[kTraceThreads + 1];  // the last one is shared

    bool open_file(void *user_context, const char *name, uint64_t limit);
    TracedThread &thread_of_caller();
    void write_record(const TraceRecord &record);
    void tell_threads();
    void tell_left_out();
    bool write_round();
    static void run_writer(void *of);
};
Tracer tracer;  // zero-initialised

inline bool tracing() { return __builtin_expect(__atomic_load_n(&tracer.on, __ATOMIC_ACQUIRE) != 0, 0); }

// A call or a part of one, from here to the end of the scope.
class TraceSpan {
public:
    explicit TraceSpan(TraceKind kind, const char *name) {
        if (tracing()) begin(kind, name);
    }
    ~TraceSpan() {
        if (__builtin_expect(begun != 0, 0)) end();
    }
    TraceSpan(const TraceSpan &) = delete;
    TraceSpan &operator=(const TraceSpan &) = delete;

    void set(uint32_t number, uint64_t value) {
        if (__builtin_expect(begun != 0, 0)) numbers[number] = value;
    }
    void set_launch(uint64_t epoch, const uint32_t *blocks, const uint32_t *threads) {
        if (__builtin_expect(begun == 0, 1)) return;
        numbers[0] = epoch;
        for (uint32_t i = 0; i < 3; i++) {
            numbers[1 + i] = blocks[i];
            numbers[4 + i] = threads[i];
        }
    }
    // What it was, in the order of kTraceKinds; the span ends here.
    void tell(uint64_t a, uint64_t b = 0, uint64_t c = 0) {
        if (__builtin_expect(begun == 0, 1)) return;
        numbers[0] = a;
        numbers[1] = b;
        numbers[2] = c;
        end();
        begun = 0;
    }

private:
    uint64_t begun = 0;
    TraceKind kind;
    const char *name;
    uint64_t numbers[kTraceNumbers];

    HALIDE_VULKAN_COLD void begin(TraceKind k, const char *n) {
        kind = k;
        name = n;
        for (uint64_t &number : numbers) number = 0;
        begun = tracer.now();
    }
    HALIDE_VULKAN_COLD void end() {
        tracer.push(kind, 0, tracer.this_thread(), name, begun, tracer.now(), numbers, kTraceNumbers);
    }
};

// A lock was asked for at `begin` and is held now; having had to wait for it is an event.
HALIDE_VULKAN_COLD inline void tell_lock_wait(const char *name, uint64_t begin) {
    const uint64_t end = tracer.now();
    if (end - begin >= kLeastLockWait_ns)
        tracer.push(TraceKind::lock, 0, tracer.this_thread(), name, begin, end, nullptr, 0);
}
inline void lock_traced(Lock &lock, const char *name) {
    const uint64_t begin = tracing() ? tracer.now() : 0;
    lock.lock();
    if (__builtin_expect(begin != 0, 0)) tell_lock_wait(name, begin);
}

// ---------------------------------------------------------------------------------------------------------------------

inline TracedThread &Tracer::thread_of_caller() {
    const uintptr_t self = pthread_self ? (uintptr_t)pthread_self() : 1;
    uint32_t at = (uint32_t)((self >> 12) * 0x9e3779b1u) & (kTraceThreads - 1);
    for (uint32_t i = 0; i < kTraceThreads; i++, at = (at + 1) & (kTraceThreads - 1)) {
        TracedThread &t = threads[at];
        uintptr_t there = __atomic_load_n(&t.self, __ATOMIC_RELAXED);
        if (there == self && !t.ended) return t;
        const bool fresh =
            there == 0 && __atomic_compare_exchange_n(&t.self, &there, self, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        if (!fresh && there != self) continue;
        // Fresh, or a new thread in the place of one that ended.
        __atomic_store_n(&t.number, thread_number ? (uint32_t)thread_number() : at + 1, __ATOMIC_RELEASE);
        __atomic_store_n(&t.name, nullptr, __ATOMIC_RELEASE);
        __atomic_store_n(&t.told, 0, __ATOMIC_RELEASE);
        t.ended = 0;
        return t;
    }
    return threads[kTraceThreads];
}

HALIDE_VULKAN_COLD inline void Tracer::push(TraceKind kind, uint32_t device, uint64_t track, const char *name,
                                            uint64_t begin, uint64_t end, const uint64_t *numbers,
                                            uint32_t number_count) {
    uint32_t at = __atomic_load_n(&head, __ATOMIC_RELAXED);
    do {
        if (at - __atomic_load_n(&tail, __ATOMIC_ACQUIRE) >= kTraceRing) {
            __atomic_add_fetch(&lost, 1, __ATOMIC_RELAXED);
            return;
        }
    } while (!__atomic_compare_exchange_n(&head, &at, at + 1, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    Cell &cell = ring[at & (kTraceRing - 1)];
    TraceRecord &r = cell.record;
    r.kind = kind;
    r.device = device;
    r.track = track;
    r.begin_ns = begin;
    r.end_ns = end;
    for (uint32_t i = 0; i < number_count; i++) r.numbers[i] = numbers[i];
    set_trace_name(r.name, name);
    __atomic_store_n(&cell.turn, at + 1, __ATOMIC_RELEASE);
}

// ---------------------------------------------------------------------------------------------------------------------
// The thread that writes. What a thread began to record when tracing stopped is written when tracing goes on: the
// numbers of records are never used again, and the ring lives as long as the runtime, so a late one does no harm.

inline void Tracer::write_record(const TraceRecord &record) {
    char text[kTraceText];
    if (file->append(text, write_trace_text(record, process, text))) return;
    __atomic_add_fetch(&lost, 1, __ATOMIC_RELAXED);
    if (limit_told) return;
    limit_told = true;
    char line[1200];
    Text(line, sizeof(line)) << "Vulkan: HL_VK_TRACE: " << path << " ends at " << file->bytes()
                             << " bytes: " << (file->failed() ? "a write failed" : "HL_VK_TRACE_MB allows no more")
                             << "\n";
    halide_print(nullptr, line);
}

inline void Tracer::tell_threads() {
    for (TracedThread &t : threads) {
        const uint32_t number = __atomic_load_n(&t.number, __ATOMIC_ACQUIRE);
        if (number == 0 || __atomic_load_n(&t.told, __ATOMIC_ACQUIRE)) continue;
        __atomic_store_n(&t.told, 1, __ATOMIC_RELEASE);
        TraceRecord r = {};
        r.kind = TraceKind::name_thread;
        r.track = number;
        const char *name = __atomic_load_n(&t.name, __ATOMIC_ACQUIRE);
        set_trace_name(r.name, name ? name : "thread");
        write_record(r);
    }
}

inline void Tracer::tell_left_out() {
    const uint32_t seen = __atomic_load_n(&lost, __ATOMIC_RELAXED);
    if (seen == lost_told || limit_told) return;
    TraceRecord r = {};
    r.kind = TraceKind::note;
    r.begin_ns = now();
    r.numbers[0] = seen - lost_told;
    set_trace_name(r.name, "events were left out: the ring was full");
    lost_told = seen;
    write_record(r);
}

// True when there was much to write, so that it is worth to look again at once.
inline bool Tracer::write_round() {
    uint32_t at = __atomic_load_n(&tail, __ATOMIC_RELAXED);
    const uint32_t first = at;
    for (; __atomic_load_n(&ring[at & (kTraceRing - 1)].turn, __ATOMIC_ACQUIRE) == at + 1; at++) {
        write_record(ring[at & (kTraceRing - 1)].record);
        __atomic_store_n(&tail, at + 1, __ATOMIC_RELEASE);
    }
    tell_threads();
    tell_left_out();
    file->flush();
    return at - first > kTraceRing / 8;
}

inline void Tracer::run_writer(void *of) {
    Tracer &t = *(Tracer *)of;
    t.name_this_thread("halide_vulkan trace");
    while (!__atomic_load_n(&t.stopping, __ATOMIC_ACQUIRE)) {
        if (!t.write_round()) halide_sleep_us(nullptr, kRound_us);
    }
    t.write_round();
    t.end_this_thread();
}

// ---------------------------------------------------------------------------------------------------------------------

// `%p` in a name stands for the process number: several processes may have the same environment.
inline void expand_trace_path(const char *name, uint32_t process, char *to, size_t capacity) {
    Text text(to, capacity);
    for (; *name; name++) {
        const char one[2] = {*name, 0};
        if (name[0] == '%' && name[1] == 'p') {
            text << process;
            name++;
        } else {
            text << one;
        }
    }
}

inline bool Tracer::open_file(void *user_context, const char *name, uint64_t limit) {
    char wanted[sizeof(path)];
    expand_trace_path(name, process, wanted, sizeof(wanted));
    const bool same = same_text(wanted, path);
    if (same && (refused || file->is_open())) return !refused;
    if (file && file->is_open()) file->close();
    Text(path, sizeof(path)) << wanted;
    refused = limit_told = false;
    TraceCalls calls;
    calls.creat = (int (*)(const char *, unsigned))halide_get_symbol("creat");
    calls.pwrite = (intptr_t(*)(int, const void *, size_t, long))halide_get_symbol("pwrite");
    calls.ftruncate = (int (*)(int, long))halide_get_symbol("ftruncate");
    calls.close = (int (*)(int))halide_get_symbol("close");
    const char *why = nullptr;
    if (!file) file = (TraceFile *)host_malloc(sizeof(TraceFile));
    if (!ring) {
        ring = (Cell *)host_malloc(sizeof(Cell) * kTraceRing);
        if (ring) __builtin_memset((void *)ring, 0, sizeof(Cell) * kTraceRing);
    }
    if (!calls.complete() || !getpid) {
        why = "this system has no creat, pwrite, ftruncate, close and getpid";
    } else if (!file || !ring) {
        why = "out of host memory";
    } else {
        __builtin_memset((void *)file, 0, sizeof(TraceFile));
        static_assert(kTextBytes == 1024, "the message says so");
        const bool cut = may_be_cut(name) || may_be_cut(path);  // by the option, or here, where %p became a number
        why = cut ? "the path has more than 1022 characters" : why_no_file(path);
        if (!why && !file->open(calls, path, limit)) why = system_error();
    }
    if (!why) return true;
    refused = true;
    char line[1400];
    Text(line, sizeof(line)) << "Vulkan: HL_VK_TRACE: no trace in " << path << ": " << why << "\n";
    halide_print(user_context, line);
    return false;
}

inline void Tracer::start(void *user_context, const char *name, uint64_t limit) {
    if (!name || !*name) return;
    halide_mutex_lock(&lock);
    if (!getpid) {
        // Once: a thread that began to record before tracing paused may look at these at any time.
        getpid = (int (*)())halide_get_symbol("getpid");
        pthread_self = (void *(*)())halide_get_symbol("pthread_self");
        thread_number = (int (*)())halide_get_symbol("gettid");
        process = getpid ? (uint32_t)getpid() : 0;
        clock = find_clock();
        if (clock && now_ns(clock) == 0) clock = nullptr;
        if (!clock) halide_start_clock(user_context);
    }
    if (!on && (!getpid || (uint32_t)getpid() == process)) {
        if (open_file(user_context, name, limit)) {
            if (file->bytes() <= 1) {
                push(TraceKind::name_process, 0, 0, "Halide Vulkan: program", 0, 0, nullptr, 0);
                for (TracedThread &t : threads) __atomic_store_n(&t.told, 0, __ATOMIC_RELEASE);
            }
            stopping = 0;
            writer = halide_spawn_thread(run_writer, this);
            __atomic_store_n(&on, writer ? 1u : 0u, __ATOMIC_RELEASE);
        }
    }
    halide_mutex_unlock(&lock);
}

inline void Tracer::stop() {
    if (getpid && (uint32_t)getpid() != process) return;  // in a child nobody unlocks what the parent's threads held
    halide_mutex_lock(&lock);
    if (on) {
        __atomic_store_n(&on, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&stopping, 1, __ATOMIC_RELEASE);
        halide_join_thread(writer);
        writer = nullptr;
        file->trim();
    }
    halide_mutex_unlock(&lock);
}

inline void Tracer::forget() {
    stop();
    // The file of a child is its parent's.
    if (file && (uint32_t)getpid() == process) file->close();
    host_free(file);
    host_free(ring);
    file = nullptr;
    ring = nullptr;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_TRACE_H
