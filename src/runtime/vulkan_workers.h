// vulkan_workers.h: a few threads of ours that share large memory copies.
//
// One thread moves 7 GB/s between a program's memory and staging (H200 machine), eight move 60, and the transfer itself
// 50: so a large copy is memory-bound on one thread. Halide's own pool cannot be used: Halide holds a mutex around our
// copies, and a pool thread that waits may run any other task, which may want that mutex (an ordinary `parallel`
// schedule deadlocks, tried 4 times of 4).
//
// A copy is cut into slices that whoever is free takes next, the caller included; so it also ends when no worker wakes
// up in time. Workers stay awake between the pieces of one large copy (waking one takes longer than a piece) and sleep
// otherwise. One copy at a time has them; another meanwhile does its work alone.
//
// Thread rule: copy() may be entered by any number of threads; start and stop as stated.

#ifndef HALIDE_VULKAN_WORKERS_H
#define HALIDE_VULKAN_WORKERS_H

#include "vulkan_strides.h"

namespace halide_vulkan {
namespace {

constexpr uint32_t kMostWorkers = 7;  // and the caller
// A slice takes about 40 us on one thread: long against taking the next, short against the whole.
constexpr size_t kSliceBytes = 256 << 10;
// Below this, one thread is done before another is awake.
constexpr size_t kShareBytes = 1 << 20;

class Workers {
public:
    // `threads` besides the caller's. Nothing is started until a copy is large enough.
    void configure(uint32_t threads) { wanted = min_of(threads, kMostWorkers); }

    // Copies bytes [begin, begin + bytes) of the stream, see copy_on_cpu. Returns when all are copied.
    // `more`: further pieces of the same copy follow at once, so the workers stay awake; call rest() after the last.
    void copy(const Runs &runs, size_t begin, size_t bytes, const void *source, void *destination, bool more) {
        if (wanted == 0 || bytes < kShareBytes || !take()) {
            copy_on_cpu(runs, begin, bytes, source, destination);
            return;
        }
        job_runs = &runs;
        job_begin = begin;
        job_bytes = bytes;
        job_source = (const uint8_t *)source;
        job_destination = (uint8_t *)destination;
        const uint32_t slices = (uint32_t)((bytes + kSliceBytes - 1) / kSliceBytes);
        __atomic_store_n(&done, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&left, (int32_t)slices, __ATOMIC_RELEASE);
        wake_up();
        while (do_slice()) {}
        while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) != slices) halide_thread_yield();
        if (!more) rest();
        __atomic_store_n(&taken, 0, __ATOMIC_RELEASE);
    }

    // After the last piece of a copy: the workers may sleep.
    void rest() { __atomic_store_n(&awake, 0, __ATOMIC_RELEASE); }

    // Joins the threads. No copy is under way, and none comes after.
    void stop() {
        halide_mutex_lock(&lock);
        stopping = true;
        rest();
        halide_cond_broadcast(&wake);
        halide_mutex_unlock(&lock);
        for (uint32_t i = 0; i < count; i++) halide_join_thread(threads[i]);
        count = wanted = 0;
    }

private:
    halide_mutex lock;
    halide_cond wake;
    halide_thread *threads[kMostWorkers];
    uint32_t wanted, count;
    uint32_t taken;  // a copy has the workers; atomic
    uint32_t awake;  // workers look for slices without sleeping; atomic
    bool stopping;
    // The piece. Written before `left` is, read after a slice was taken from it; it does not change until all are done.
    const Runs *job_runs;
    size_t job_begin, job_bytes;
    const uint8_t *job_source;
    uint8_t *job_destination;
    int32_t left;   // slices nobody has taken; below 0 when more were asked for; atomic
    uint32_t done;  // slices copied; atomic

    bool take() {
        uint32_t free = 0;
        return __atomic_compare_exchange_n(&taken, &free, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }

    bool do_slice() {
        if (__atomic_load_n(&left, __ATOMIC_RELAXED) <= 0) return false;
        const int32_t i = __atomic_sub_fetch(&left, 1, __ATOMIC_ACQ_REL);
        if (i < 0) return false;
        const size_t offset = (size_t)i * kSliceBytes;
        const size_t bytes = min_of(kSliceBytes, job_bytes - offset);
        // The dense side's positions count from the begin of what a cursor enumerates.
        const Runs &runs = *job_runs;
        copy_on_cpu(runs, job_begin + offset, bytes, job_source + (runs.dense == Runs::kSource ? offset : 0),
                    job_destination + (runs.dense == Runs::kDestination ? offset : 0));
        __atomic_add_fetch(&done, 1, __ATOMIC_ACQ_REL);
        return true;
    }

    void wake_up() {
        if (__atomic_load_n(&awake, __ATOMIC_ACQUIRE)) return;
        halide_mutex_lock(&lock);
        while (count < wanted) {
            halide_thread *thread = halide_spawn_thread(run_worker, this);
            if (!thread) break;
            threads[count++] = thread;
        }
        __atomic_store_n(&awake, 1, __ATOMIC_RELEASE);
        halide_cond_broadcast(&wake);
        halide_mutex_unlock(&lock);
    }

    static void run_worker(void *of) {
        Workers &w = *(Workers *)of;
        for (;;) {
            while (__atomic_load_n(&w.awake, __ATOMIC_ACQUIRE)) {
                if (!w.do_slice()) halide_thread_yield();
            }
            halide_mutex_lock(&w.lock);
            while (!w.stopping && !__atomic_load_n(&w.awake, __ATOMIC_ACQUIRE)) halide_cond_wait(&w.wake, &w.lock);
            const bool stop = w.stopping;
            halide_mutex_unlock(&w.lock);
            if (stop) return;
        }
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_WORKERS_H
