// vulkan_binding.h: where a kernel argument is bound. [pure]
//
// A kernel indexes a buffer from its element of minimal coordinates. A descriptor, though, must begin at a multiple of
// minStorageBufferOffsetAlignment (16 to 256 bytes), and a crop may begin at any element; and with negative strides the
// minimal element is not the lowest byte. Three ways, the cheapest that is right:
//   plain    the descriptor begins at the minimal element.
//   indexed  it begins below; the kernel adds `index` to each of its indices: a relocated variant, or the argument that
//            newer kernels have for it.
//   bounce   the distance is not a whole number of array elements (kernels that access vectors): the bytes are copied
//   to
//            an aligned place, `pad` bytes in, and copied back after the launch.
//
// All numbers are bytes within one VkBuffer. Thread rule: no state.

#ifndef HALIDE_VULKAN_BINDING_H
#define HALIDE_VULKAN_BINDING_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

// Descriptors cover whole vectors of the widest kind, where the region has room, so that a device that checks the last
// vector of an array against the range lets it pass.
constexpr uint64_t kBindingGranule = 16;

struct BindingRequest {
    uint64_t region_offset, region_size;
    uint64_t begin;         // lowest byte of the argument in the VkBuffer
    uint64_t bytes;         // of the argument
    uint64_t minimal;       // distance from begin to the minimal element; 0 without negative strides
    uint64_t alignment;     // of descriptors, a power of two
    uint32_t array_stride;  // of the kernel's array; 0 when unknown
    bool can_index;         // the kernel has, or can be given, an index offset
};

enum class BindingWay {
    plain,
    indexed,
    bounce,
};

struct Binding {
    BindingWay way;
    uint64_t offset, range;  // of the descriptor; for a bounce: within its own region
    int32_t index;           // in array elements
    uint64_t pad;            // bounce only: where the argument's lowest byte goes
};

// Array strides are powers of two in practice. For the rest, by halves of 32 bits: a 64-bit remainder is a library call
// on 32-bit targets.
inline uint64_t remainder_of(uint64_t value, uint32_t divisor) {
    if (is_power_of_two(divisor)) return value & (divisor - 1);
    uint32_t rest = 0;
    for (int bit = 63; bit >= 0; bit--) {
        const uint64_t next = ((uint64_t)rest << 1) | ((value >> bit) & 1);
        rest = (uint32_t)(next >= divisor ? next - divisor : next);
    }
    return rest;
}

inline uint64_t range_to_bind(uint64_t from, uint64_t to, uint64_t limit) {
    return min_of(align_up(to - from, kBindingGranule), limit - from);
}

inline Binding plan_binding(const BindingRequest &r) {
    Binding b = {};
    const uint64_t end = r.begin + r.bytes, region_end = r.region_offset + r.region_size;
    const uint64_t aligned = align_down(r.begin, r.alignment);
    if (aligned == r.begin && r.minimal == 0) {
        b.way = BindingWay::plain;
        b.offset = r.begin;
        b.range = range_to_bind(b.offset, end, region_end);
        return b;
    }
    const uint32_t stride = r.array_stride;
    if (r.can_index && stride) {
        // Further down by whole alignments, until the distance is a whole number of elements; never below the buffer.
        for (uint64_t at = aligned;; at -= r.alignment) {
            const uint64_t distance = r.begin - at + r.minimal;
            if (remainder_of(distance, stride) == 0 && distance / stride <= 0x7fffffffu) {
                b.way = BindingWay::indexed;
                b.offset = at;
                b.range = range_to_bind(at, end, region_end);
                b.index = (int32_t)(distance / stride);
                return b;
            }
            if (at < r.alignment || aligned - at >= stride) break;
        }
    }
    b.way = BindingWay::bounce;
    if (r.minimal && stride) {
        const uint64_t over = remainder_of(r.minimal, stride);
        b.pad = over ? stride - over : 0;
        b.index = (int32_t)((b.pad + r.minimal) / stride);
    }
    b.range = align_up(b.pad + r.bytes, kBindingGranule);
    return b;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_BINDING_H
