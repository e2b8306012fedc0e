// vulkan_ring.h: which bytes of a staging buffer are taken, and until when. [pure]
//
// Staging is used in the order in which commands are recorded, and comes back in the order in which submissions finish,
// which is the same order: so a circle with one cursor does what an allocator would, in a few additions, and its state
// cannot fragment. The price: what stands behind the oldest piece waits for it, also if it is done already.
//
//   reserve   takes a contiguous piece. Bytes at the end that are too few for it are skipped; they come back with the
//             piece before them.
//   publish   says with which epoch the piece is done with. Between the two the caller fills it without the lock, so
//             several threads may hold unpublished pieces; one unpublished piece holds back those behind it.
//   cancel    for the caller that failed in between.
//   retire    gives back what is done, oldest first. When reserve fails, oldest() names the epoch to wait for: that is
//             the back-pressure which bounds what is in flight to the capacity.
//
// The newest pieces that carry the same epoch are kept as one entry, so the entries bound the epochs in flight and the
// pieces being filled, not the number of small uploads in a batch.
//
// Memory: 256 entries of 32 bytes, part of the object; nothing is ever allocated.
// All calls are O(1), retire and publish amortised. Threads: unsafe, the owner locks.

#ifndef HALIDE_VULKAN_RING_H
#define HALIDE_VULKAN_RING_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

class Ring {
public:
    // Forgets everything. Alignment, a power of two, is that of every offset; the capacity is rounded down to it.
    void reset(uint64_t new_capacity, uint64_t new_alignment) {
        capacity = align_down(new_capacity, new_alignment);
        alignment = new_alignment;
        tail = used = 0;
        count = 0;
    }

    // False when there is no room now, and always when bytes exceed the capacity. 0 bytes take one unit of alignment.
    bool reserve(uint64_t bytes, uint64_t *offset, uint32_t *ticket) {
        if (bytes > capacity || capacity == 0 || count == kEntries) return false;
        const uint64_t need = align_up(bytes ? bytes : 1, alignment);
        uint64_t at = cursor(), skipped = 0;
        if (need > capacity - at) {
            skipped = capacity - at;
            at = 0;
        }
        if (skipped + need > capacity - used) return false;
        if (skipped != 0) entry(first + count - 1).bytes += skipped;  // there is one: an empty ring's cursor is at 0
        *ticket = first + count;
        *offset = at;
        entry(*ticket) = {need, skipped, 0, kHeld};
        count++;
        used += skipped + need;
        return true;
    }

    // The largest piece that reserve would give now, for callers that can cut their work to it.
    uint64_t room() const {
        if (count == kEntries) return 0;
        const uint64_t at = cursor(), to_end = capacity - at, unused = capacity - used;
        if (unused <= to_end) return unused;
        return max_of(to_end, unused - to_end);
    }

    // The piece comes back when an epoch not below this one has completed. A ticket is dead after publish or cancel.
    void publish(uint32_t ticket, uint64_t epoch) {
        if (!is_held(ticket)) return;
        entry(ticket).epoch = epoch;
        entry(ticket).state = kPublished;
        join_newest();
    }

    // Given back as soon as it is the oldest or the newest piece.
    void cancel(uint32_t ticket) {
        if (!is_held(ticket)) return;
        entry(ticket).state = kCancelled;
        while (count > 0 && entry(first + count - 1).state == kCancelled) drop_newest();
        while (count > 0 && entry(first).state == kCancelled) drop_oldest();
        join_newest();
    }

    void retire(uint64_t completed) {
        while (count > 0) {
            const Entry &e = entry(first);
            const bool done = e.state == kCancelled || (e.state == kPublished && e.epoch <= completed);
            if (!done) return;
            drop_oldest();
        }
    }

    // The epoch to wait for to get room. False when the ring is empty, or the oldest piece is still being filled: then
    // its holder must publish first.
    bool oldest(uint64_t *epoch) const {
        if (count == 0 || entry(first).state != kPublished) return false;
        *epoch = entry(first).epoch;
        return true;
    }

    // Bytes that are not free: alignment and skipped bytes included.
    uint64_t in_use() const { return used; }
    uint64_t size() const { return capacity; }

private:
    // A slot ring of 16 submissions needs 16 entries; each thread inside a copy holds a few pieces, and cancelled or
    // interleaved pieces keep neighbours apart. 256 leaves room for far more threads than call a GPU at once, in 8 KiB;
    // when it is full, reserve says "no room now" and the caller waits for the oldest, as for bytes. A power of two, so
    // that tickets may wrap around 2^32.
    static constexpr uint32_t kEntries = 256;

    enum State : uint32_t { kHeld, kPublished, kCancelled };
    struct Entry {
        uint64_t bytes;    // with those skipped behind it
        uint64_t skipped;  // before it; counted by its neighbour, so that they come back with that
        uint64_t epoch;
        State state;
    };

    Entry &entry(uint32_t ticket) { return entries[ticket & (kEntries - 1)]; }
    const Entry &entry(uint32_t ticket) const { return entries[ticket & (kEntries - 1)]; }
    bool is_held(uint32_t ticket) const { return ticket - first < count && entry(ticket).state == kHeld; }

    uint64_t cursor() const {
        const uint64_t at = tail + used;
        return at < capacity ? at : at - capacity;
    }

    void drop_oldest() {
        const uint64_t bytes = entry(first).bytes;
        used -= bytes;
        tail += bytes;
        if (tail >= capacity) tail -= capacity;
        first++;
        count--;
        if (count == 0) tail = 0;  // an empty ring starts anew, so that one piece may have all of it
    }
    void drop_newest() {
        count--;
        const Entry &dropped = entry(first + count);
        used -= dropped.bytes;
        if (count == 0) {
            tail = 0;
        } else {
            entry(first + count - 1).bytes -= dropped.skipped;
            used -= dropped.skipped;
        }
    }
    void join_newest() {
        while (count > 1) {
            const Entry &newest = entry(first + count - 1);
            Entry &before = entry(first + count - 2);
            if (newest.state != kPublished || before.state != kPublished || newest.epoch != before.epoch) return;
            before.bytes += newest.bytes;
            count--;
        }
    }

    uint64_t capacity = 0, alignment = 1;
    uint64_t tail = 0, used = 0;    // the taken bytes are [tail, tail + used), around the end
    uint32_t first = 0, count = 0;  // tickets first .. first + count - 1 are live
    Entry entries[kEntries] = {};
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_RING_H
