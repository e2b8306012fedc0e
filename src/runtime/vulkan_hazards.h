// vulkan_hazards.h: which commands need a barrier before them. [pure]
//
// The GPU may run the commands of a queue at once, those of two submissions too, unless a barrier stands between them.
// On an H200 a dispatch behind a barrier costs 2.3 us and one without 0.37, and a barrier at the head of a submission
// adds 3.4 us to a launch that is waited for (18.5 against 15.1); so a barrier is worth avoiding, and a missing one is
// a wrong result. This tracker holds the byte ranges that the commands since the last barrier read and write, whatever
// submission they are in. A command that reads what is
// held as written, or writes what is held as read or written, needs a barrier; a full one, after which nothing before
// it matters any more: the tracker then holds that command's ranges alone. Two reads never conflict, nor do the
// accesses of one command with each other (a kernel's own threads are its own business).
//
// Ranges, not buffers: tiles of one output, and regions that lie in one block, are independent.
// Ranges of a kind that overlap or touch are held as one, which loses nothing. The number held is capped, so that a
// command costs at most (kWrites + kReads) comparisons per access; when they do not fit, the answer is "barrier", which
// is always right, and the tracker starts over.
//
// Memory: 96 ranges of 24 bytes, part of the object; nothing is ever allocated. Threads: unsafe, the owner locks.

#ifndef HALIDE_VULKAN_HAZARDS_H
#define HALIDE_VULKAN_HAZARDS_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

// Bytes [begin, end) of a memory block; empty when end <= begin.
struct Access {
    uint32_t memory;
    uint64_t begin, end;
    bool write;
};

class Hazards {
public:
    // Notes a command. True when a full barrier must be recorded before it.
    bool add(const Access *accesses, size_t count) {
        if (!conflicts(accesses, count) && hold(accesses, count)) return false;
        clear();
        if (!hold(accesses, count)) unknown = true;
        return true;
    }

    // Everything before is known to be done: nothing is in flight, or a barrier stands here.
    void clear() {
        write_count = read_count = 0;
        unknown = false;
    }

    // Work that this tracker does not know may be in flight: the next command needs a barrier.
    void assume_anything() { unknown = true; }

private:
    // A kernel mostly writes one buffer and reads a few, so 32 writes hold about 32 independent commands. More gains
    // little: 31 dispatches at 0.37 us and one at 2.3 average 0.43. Read ranges are twice as many as they come in more
    // than one per command, and merge often (commands share inputs).
    static constexpr uint32_t kWrites = 32, kReads = 64;

    struct Held {
        uint32_t memory;
        uint64_t begin, end;
    };

    static bool overlap(const Held &h, const Access &a) {
        return h.memory == a.memory && a.begin < h.end && h.begin < a.end;
    }
    static bool is_empty(const Access &a) { return a.end <= a.begin; }

    bool conflicts(const Access *accesses, size_t count) const {
        for (size_t i = 0; i < count; i++) {
            const Access &a = accesses[i];
            if (is_empty(a)) continue;
            if (unknown) return true;
            for (uint32_t k = 0; k < write_count; k++) {
                if (overlap(writes[k], a)) return true;
            }
            if (!a.write) continue;
            for (uint32_t k = 0; k < read_count; k++) {
                if (overlap(reads[k], a)) return true;
            }
        }
        return false;
    }

    // False when they do not all fit; some are then held.
    bool hold(const Access *accesses, size_t count) {
        for (size_t i = 0; i < count; i++) {
            const Access &a = accesses[i];
            if (is_empty(a)) continue;
            const bool held = a.write ? merge(writes, write_count, kWrites, a) : merge(reads, read_count, kReads, a);
            if (!held) return false;
        }
        return true;
    }

    // The ranges of a list never touch each other. So one pass finds all that touch the new one: growing it by one of
    // them cannot make it touch another that it did not touch before.
    static bool merge(Held *list, uint32_t &count, uint32_t capacity, const Access &a) {
        Held grown = {a.memory, a.begin, a.end};
        for (uint32_t i = 0; i < count;) {
            const Held &h = list[i];
            if (h.memory == a.memory && h.begin <= grown.end && grown.begin <= h.end) {
                grown.begin = min_of(grown.begin, h.begin);
                grown.end = max_of(grown.end, h.end);
                list[i] = list[--count];
            } else {
                i++;
            }
        }
        if (count == capacity) return false;
        list[count++] = grown;
        return true;
    }

    uint32_t write_count = 0, read_count = 0;
    bool unknown = false;  // more may be in flight than is held here: whatever touches memory conflicts with it
    Held writes[kWrites] = {};
    Held reads[kReads] = {};
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_HAZARDS_H
