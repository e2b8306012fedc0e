// vulkan_range_cache.h: ranges that were freed a moment ago, one for each of a few sizes. [pure]
//
// Pipelines free buffers and allocate others of the same sizes in the next frame. Such a range is kept whole here
// instead of being joined with its neighbours and split again: a malloc and free take 937 instructions then, and 1335
// otherwise. For `Ranges` it is in use meanwhile; the owner has everything given back before it looks whether a block
// is free, and before it says that there is no room.
//
// A size has one place, found by its size class, so 16 sizes that are powers of two apart never meet. What is kept
// there longest gives way. Asking and keeping are O(1), give_back is O(kPlaces).
//
// Threads: unsafe, the owner locks.

#ifndef HALIDE_VULKAN_RANGE_CACHE_H
#define HALIDE_VULKAN_RANGE_CACHE_H

#include "vulkan_ranges.h"

namespace halide_vulkan {
namespace {

class RangeCache {
public:
    uint64_t bytes() const { return kept_bytes; }

    // A kept range of exactly this size (a multiple of the alignment), last used by `epoch` or earlier. The caller has
    // it now; kNone when there is none.
    uint32_t take(const Ranges &ranges, uint64_t size, uint64_t epoch = UINT64_MAX) {
        Place &place = places[place_of(size)];
        if (place.size != size || ranges.last_use(place.range) > epoch) return Ranges::kNone;
        place.size = 0;
        kept_bytes -= size;
        return place.range;
    }

    // Instead of ranges.free(range).
    void keep(Ranges &ranges, uint32_t range) {
        const uint64_t size = ranges.size(range);
        Place &place = places[place_of(size)];
        give_back(ranges, place);
        place = {size, range};
        kept_bytes += size;
    }

    // True when something was kept.
    bool give_back(Ranges &ranges) {
        if (kept_bytes == 0) return false;
        for (Place &place : places) give_back(ranges, place);
        return true;
    }

    void forget() { *this = {}; }

private:
    static constexpr uint32_t kPlaces = 16;
    struct Place {
        uint64_t size;  // 0: nothing is kept here
        uint32_t range;
    };
    Place places[kPlaces] = {};
    uint64_t kept_bytes = 0;

    // Each power of two has a place of its own; what lies between two goes to one of 16, by its upper bits.
    static uint32_t place_of(uint64_t size) {
        const uint32_t high = (uint32_t)highest_bit(size | 16);
        return (high + (uint32_t)(size >> (high - 4))) & (kPlaces - 1);
    }
    void give_back(Ranges &ranges, Place &place) {
        if (place.size == 0) return;
        kept_bytes -= place.size;
        place.size = 0;
        ranges.free(place.range);
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_RANGE_CACHE_H
