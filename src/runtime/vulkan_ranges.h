// vulkan_ranges.h: hands out byte ranges of device memory blocks. [pure]
//
// A block is one device allocation with one buffer over it; a region that a user gets is an offset and a size in it. So
// splitting and joining regions is bookkeeping of numbers, and no Vulkan object is made or destroyed for it, even while
// kernels run on the neighbours. This file is that bookkeeping, for any number of blocks of one memory type at once.
//
// Two-level segregated fit (TLSF). A free range hangs in a bin of its size class: one class per power of two, each cut
// into 16. Two levels of bitmaps name the bins that hold something, so "the smallest class that surely fits" is two bit
// scans. Before that, a few ranges of the request's own class are looked at: the range that was freed a moment ago is
// there, at the head, and has exactly the size that a loop asks for again. Neighbours are linked per block, so a free
// range joins with both sides without a search.
//   allocate, free, add_block, remove_block: O(1); at most kLook ranges are looked at.
//   An allocation passes over a free range that fits only if it lies behind kLook others of its own class, that is,
//   only if it is less than 1/16 larger than the request. Nothing is lost inside a range but rounding to the alignment.
// Best fit in a tree wastes a little less, but costs O(log n) with a cache miss per level, and first fit is O(n).
//
// Every range carries last_use, the epoch of the newest submission that touched these bytes. A split copies it, a join
// takes the larger. The owner asks it before the CPU may write; reuse needs no question, since the queue orders it.
//
// Range ids are stable: a join keeps the id of its lower part, a split leaves the lower part its id. So the id that
// add_block returned names the first range of that block as long as the block lives, and answers for the block in O(1).
//
// Memory: 48 bytes per range in one pool with an index free list, 4 KiB of bins. The pool grows only when more ranges
// exist than ever before; free and remove_block never allocate. When host memory is out, allocate changes nothing.
// Threads: unsafe, the owner locks.

#ifndef HALIDE_VULKAN_RANGES_H
#define HALIDE_VULKAN_RANGES_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

class Ranges {
public:
    static constexpr uint32_t kNone = 0xffffffffu;

    // Alignment is a power of two; every offset and size is a multiple of it. Must be called before anything else, and
    // may be called again after release().
    void init(uint64_t alignment) {
        shift = lowest_bit(alignment);
        spare = kNone;
        total_free = total_used = 0;
        class_map = 0;
        for (uint32_t i = 0; i < kClasses; i++) step_map[i] = 0;
        for (uint32_t i = 0; i < kClasses * kSteps; i++) bin[i] = kNone;
        pool.clear();
    }

    // The whole block (size rounded down to the alignment) becomes one free range; `block` is the caller's name for it.
    // Returns the id of the block's first range, see above; kNone when host memory is out or nothing is left of the
    // size.
    uint32_t add_block(uint32_t block, uint64_t size) {
        size = align_down(size, alignment());
        if (size == 0 || size > kLargest) return kNone;
        const uint32_t id = take_node();
        if (id == kNone) return kNone;
        Node &n = pool[id];
        n.offset = 0;
        n.size = size;
        n.last_use = 0;
        n.block = block;
        n.before = n.after = kNone;
        total_free += size;
        hang(id);
        return id;
    }

    // These three take the id that add_block returned. The block's last use is then last_use(first).
    bool block_is_free(uint32_t first) const { return is_free(first) && is_whole(first); }
    // False, and nothing changed, when a range of the block is still in use.
    bool remove_block(uint32_t first) {
        if (!block_is_free(first)) return false;
        unhang(first);
        total_free -= pool[first].size;
        give_node(first);
        return true;
    }

    // kNone when nothing fits, when host memory is out, or when size is 0: then nothing changed.
    uint32_t allocate(uint64_t size) {
        if (size == 0 || size > kLargest) return kNone;
        size = align_up(size, alignment());
        return take(find(size), size);
    }

    // The same, of bytes whose last use is `epoch` or earlier. Looks at kLook free ranges, the smallest that may fit
    // first; so it may find nothing where there is something.
    uint32_t allocate_idle(uint64_t size, uint64_t epoch) {
        if (size == 0 || size > kLargest) return kNone;
        size = align_up(size, alignment());
        int looked = 0;
        for (uint32_t b = bin_of(size); b != kNone; b = next_bin(b)) {
            for (uint32_t id = bin[b]; id != kNone; id = pool[id].next) {
                if (pool[id].size >= size && pool[id].last_use <= epoch) return take(id, size);
                if (++looked == kLook) return kNone;
            }
        }
        return kNone;
    }

    // Returns the free range that now holds these bytes (joined with free neighbours); kNone, and nothing changed, when
    // the range is not in use.
    uint32_t free(uint32_t id) {
        if (!is_used(id)) return kNone;
        total_free += pool[id].size;
        total_used -= pool[id].size;
        const uint32_t after = pool[id].after;
        if (is_free(after)) {
            unhang(after);
            join(id, after);
        }
        const uint32_t before = pool[id].before;
        if (is_free(before)) {
            unhang(before);
            join(before, id);
            id = before;
        }
        hang(id);
        return id;
    }

    bool is_used(uint32_t id) const { return id < pool.size() && pool[id].state == kUsed; }
    bool is_free(uint32_t id) const { return id < pool.size() && pool[id].state == kFree; }
    uint64_t offset(uint32_t id) const { return pool[id].offset; }
    uint64_t size(uint32_t id) const { return pool[id].size; }
    uint32_t block(uint32_t id) const { return pool[id].block; }
    uint64_t last_use(uint32_t id) const { return pool[id].last_use; }
    // Sets an earlier last use, of bytes that nothing uses any more.
    void settle(uint32_t id, uint64_t epoch) { pool[id].last_use = min_of(pool[id].last_use, epoch); }
    void touch(uint32_t id, uint64_t epoch) { pool[id].last_use = max_of(pool[id].last_use, epoch); }

    uint64_t alignment() const { return (uint64_t)1 << shift; }
    uint64_t free_bytes() const { return total_free; }
    uint64_t used_bytes() const { return total_used; }
    // For messages and statistics: walks the highest class that holds something.
    uint64_t largest_free() const {
        if (class_map == 0) return 0;
        const uint32_t c = (uint32_t)highest_bit(class_map);
        uint64_t largest = 0;
        for (uint32_t id = bin[c * kSteps + (uint32_t)highest_bit(step_map[c])]; id != kNone; id = pool[id].next) {
            largest = max_of(largest, pool[id].size);
        }
        return largest;
    }

    // For tests: O(ranges). True when blocks are tiled without gap or overlap, no two free neighbours exist, every free
    // range hangs in exactly its bin, the bitmaps agree with the bins, and the totals with the ranges.
    bool check() const { return tiles_are_right() && bins_are_right(); }

    void release() {
        pool.release();
        init(alignment());
    }

private:
    // 16 bins per power of two: a range taken from a higher class by the bitmaps is found with at most 1/16
    // imprecision, and one word of 16 bits says which of them are filled. Doubling it would double the bins for 3 %
    // better packing.
    static constexpr uint32_t kStepBits = 4, kSteps = 1u << kStepBits;
    // Class 0 holds sizes below 16 units exactly; class c > 0 holds those whose highest bit is c + 3. 60 classes reach
    // kLargest with an alignment of 1.
    static constexpr uint32_t kClasses = 60;
    // No device has 2^62 bytes; below it no sum of an offset and a size can overflow.
    static constexpr uint64_t kLargest = (uint64_t)1 << 62;
    // Ranges of the own class to look at before a larger class is split: a handful is one or two cache misses more, and
    // it is the bound that makes allocate O(1).
    static constexpr int kLook = 8;

    enum State : uint32_t { kSpare, kFree, kUsed };
    struct Node {
        uint64_t offset, size, last_use;
        uint32_t block;
        uint32_t before, after;   // neighbours in the block
        uint32_t previous, next;  // the bin's list when free; next alone in the list of spare nodes
        uint32_t state;
    };

    uint32_t bin_of(uint64_t size) const {
        const uint64_t units = size >> shift;
        if (units < kSteps) return (uint32_t)units;
        const uint32_t high = (uint32_t)highest_bit(units);
        return (high - kStepBits + 1) * kSteps + ((uint32_t)(units >> (high - kStepBits)) & (kSteps - 1));
    }

    uint32_t find(uint64_t size) const {
        const uint32_t own = bin_of(size);
        int looked = 0;
        for (uint32_t id = bin[own]; id != kNone && looked < kLook; id = pool[id].next, looked++) {
            if (pool[id].size >= size) return id;
        }
        // Every range of a higher bin fits.
        const uint32_t higher = next_bin(own);
        return higher == kNone ? kNone : bin[higher];
    }

    // The next bin that holds something.
    uint32_t next_bin(uint32_t b) const {
        uint32_t c = b / kSteps;
        uint32_t steps = step_map[c] & (0xfffffffeu << (b & (kSteps - 1)));
        if (steps == 0) {
            const uint64_t classes = class_map & (0xfffffffffffffffeull << c);
            if (classes == 0) return kNone;
            c = (uint32_t)lowest_bit(classes);
            steps = step_map[c];
        }
        return c * kSteps + (uint32_t)lowest_bit(steps);
    }

    // Gives out `size` bytes of the free range `id`; what is left of it stays free. Passes kNone on.
    uint32_t take(uint32_t id, uint64_t size) {
        if (id == kNone) return kNone;
        if (pool[id].size > size) {
            const uint32_t rest = take_node();  // may move the pool: no reference is held across it
            if (rest == kNone) return kNone;
            unhang(id);
            split(id, size, rest);
            hang(rest);
        } else {
            unhang(id);
        }
        pool[id].state = kUsed;
        total_free -= size;
        total_used += size;
        return id;
    }

    void hang(uint32_t id) {
        Node &n = pool[id];
        const uint32_t b = bin_of(n.size);
        n.state = kFree;
        n.previous = kNone;
        n.next = bin[b];
        if (n.next != kNone) pool[n.next].previous = id;
        bin[b] = id;
        step_map[b / kSteps] |= (uint16_t)(1u << (b & (kSteps - 1)));
        class_map |= (uint64_t)1 << (b / kSteps);
    }

    void unhang(uint32_t id) {
        const Node &n = pool[id];
        if (n.next != kNone) pool[n.next].previous = n.previous;
        if (n.previous != kNone) {
            pool[n.previous].next = n.next;
            return;
        }
        const uint32_t b = bin_of(n.size);
        bin[b] = n.next;
        if (n.next != kNone) return;
        step_map[b / kSteps] &= (uint16_t) ~(1u << (b & (kSteps - 1)));
        if (step_map[b / kSteps] == 0) class_map &= ~((uint64_t)1 << (b / kSteps));
    }

    // What `id` holds beyond `size` becomes the range `rest`, right after it.
    void split(uint32_t id, uint64_t size, uint32_t rest) {
        Node &n = pool[id], &r = pool[rest];
        r = n;
        r.offset = n.offset + size;
        r.size = n.size - size;
        r.before = id;
        if (r.after != kNone) pool[r.after].before = rest;
        n.size = size;
        n.after = rest;
    }

    // `high` follows `low` in the block and ends as a spare node.
    void join(uint32_t low, uint32_t high) {
        Node &l = pool[low];
        const Node &h = pool[high];
        l.size += h.size;
        l.last_use = max_of(l.last_use, h.last_use);
        l.after = h.after;
        if (l.after != kNone) pool[l.after].before = low;
        give_node(high);
    }

    bool is_whole(uint32_t id) const { return pool[id].before == kNone && pool[id].after == kNone; }

    uint32_t take_node() {
        if (spare != kNone) {
            const uint32_t id = spare;
            spare = pool[id].next;
            return id;
        }
        const size_t count = pool.size();
        if (count >= kNone || !pool.resize(count + 1)) return kNone;
        return (uint32_t)count;
    }
    void give_node(uint32_t id) {
        pool[id].state = kSpare;
        pool[id].next = spare;
        spare = id;
    }

    bool tiles_are_right() const {
        uint64_t free_sum = 0, used_sum = 0;
        size_t tiled = 0, live = 0;
        for (uint32_t first = 0; first < pool.size(); first++) {
            if (pool[first].state == kSpare) continue;
            live++;
            if (pool[first].before != kNone) continue;
            uint64_t at = 0;
            for (uint32_t id = first, before = kNone; id != kNone; before = id, id = pool[id].after) {
                if (id >= pool.size() || ++tiled > pool.size()) return false;
                const Node &n = pool[id];
                if (n.state == kSpare || n.offset != at || n.size == 0 || n.before != before) return false;
                if (n.block != pool[first].block || (n.size & (alignment() - 1)) != 0) return false;
                if (n.state == kFree && is_free(before)) return false;
                at += n.size;
                (n.state == kFree ? free_sum : used_sum) += n.size;
            }
        }
        return tiled == live && free_sum == total_free && used_sum == total_used;
    }

    bool bins_are_right() const {
        size_t hanging = 0, free_ranges = 0, spares = 0, spare_nodes = 0;
        for (uint32_t b = 0; b < kClasses * kSteps; b++) {
            const bool marked = (step_map[b / kSteps] >> (b & (kSteps - 1))) & 1;
            if (marked != (bin[b] != kNone)) return false;
            for (uint32_t id = bin[b], previous = kNone; id != kNone; previous = id, id = pool[id].next) {
                if (!is_free(id) || bin_of(pool[id].size) != b || pool[id].previous != previous) return false;
                if (++hanging > pool.size()) return false;
            }
        }
        for (uint32_t c = 0; c < kClasses; c++) {
            if (((class_map >> c) & 1) != (step_map[c] != 0)) return false;
        }
        for (uint32_t id = 0; id < pool.size(); id++) {
            if (pool[id].state == kFree) free_ranges++;
            if (pool[id].state == kSpare) spare_nodes++;
        }
        for (uint32_t id = spare; id != kNone; id = pool[id].next) {
            if (pool[id].state != kSpare || ++spares > pool.size()) return false;
        }
        return hanging == free_ranges && spares == spare_nodes;
    }

    Array<Node> pool;
    uint32_t spare = kNone;  // first spare node
    int shift = 0;           // of the alignment
    uint64_t total_free = 0, total_used = 0;
    uint64_t class_map = 0;            // bit c: some bin of class c holds a range
    uint16_t step_map[kClasses] = {};  // bit s of c: bin c * kSteps + s holds a range
    uint32_t bin[kClasses * kSteps] = {};
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_RANGES_H
