// vulkan_strided_grid.h: a strided copy as numbers for a kernel. [pure]
//
// vulkan_strides.h brings any copy into runs on a grid of at most 16 dimensions. Where these are thousands (every
// second element, one channel of an interleaved image), a copy command would name each of them; a kernel needs the grid
// alone, whatever their number. One invocation moves one unit: 4 bytes, or single bytes where a run, a stride or an
// offset is no multiple of 4 (then kernels must be able to address bytes). The n-th unit of the piece belongs to
//
//     point = (inside + n) / run           and, dimension by dimension from the innermost on,
//     index = (point + first) % extent     with point = (point + first) / extent for the next,
//
// where `inside` and `first` say at which point of the grid the piece begins. Offsets are sums of index * stride in
// wrapping 32-bit arithmetic, so that strides may be negative, and the dense side's positions may lie above 2^32 as
// long as the result does not.
//
// Threads: no shared state.

#ifndef HALIDE_VULKAN_STRIDED_GRID_H
#define HALIDE_VULKAN_STRIDED_GRID_H

#include "vulkan_strides.h"

namespace halide_vulkan {
namespace {

// As the kernel's uniform block has it (std140).
struct StridedGrid {
    struct Dimension {
        uint32_t extent, first, from, to;  // the strides in units
    };
    uint32_t count;    // units to move
    uint32_t threads;  // how far an invocation's next unit is
    uint32_t run, inside;
    uint32_t from, to;
    uint32_t dims, unused;
    Dimension dim[kMaxDimensions];
};

// Bytes [begin, begin + bytes) of the stream. The bases are where the runs' offsets count from (as in copy_on_cpu),
// seen from the first byte of what the kernel is bound to. False where 32 bits are too few, or where single bytes would
// have to be moved and `may_move_bytes` says no.
inline bool plan_grid(const Runs &runs, size_t begin, size_t bytes, int64_t from_base, int64_t to_base,
                      bool may_move_bytes, StridedGrid &out, uint32_t *unit_bytes) {
    if (bytes == 0 || runs.run == 0) return false;
    int64_t from = from_base + runs.source, to = to_base + runs.destination;
    if (runs.dense == Runs::kSource) from -= (int64_t)begin;
    if (runs.dense == Runs::kDestination) to -= (int64_t)begin;
    uint64_t bits = (uint64_t)runs.run | begin | bytes | (uint64_t)from | (uint64_t)to;
    uint64_t largest = runs.run;
    for (int i = 0; i < runs.dims; i++) {
        bits |= (uint64_t)runs.dim[i].source | (uint64_t)runs.dim[i].destination;
        largest = max_of<uint64_t>(largest, runs.dim[i].extent);
    }
    const int shift = (bits & 3) == 0 ? 2 : 0;
    // No sum of the kernel's wraps but those of offsets.
    constexpr uint64_t kMost = (uint64_t)1 << 31;
    if ((shift == 0 && !may_move_bytes) || largest >= kMost || (bytes >> shift) >= kMost) return false;
    size_t point = begin / runs.run;
    out.count = (uint32_t)(bytes >> shift);
    out.threads = 0;
    out.run = (uint32_t)(runs.run >> shift);
    out.inside = (uint32_t)((begin - point * runs.run) >> shift);
    out.from = (uint32_t)(from >> shift);
    out.to = (uint32_t)(to >> shift);
    out.dims = (uint32_t)runs.dims;
    out.unused = 0;
    for (int i = 0; i < runs.dims; i++) {
        const Runs::Dimension &d = runs.dim[i];
        const size_t outer = point / d.extent;
        out.dim[i] = {(uint32_t)d.extent, (uint32_t)(point - outer * d.extent), (uint32_t)(d.source >> shift),
                      (uint32_t)(d.destination >> shift)};
        point = outer;
    }
    *unit_bytes = 1u << shift;
    return true;
}

// What the kernel computes, for tests.
inline void offsets_of(const StridedGrid &g, uint32_t n, uint32_t *from, uint32_t *to) {
    uint32_t point = (g.inside + n) / g.run;
    const uint32_t at = g.inside + n - point * g.run;
    *from = g.from + at;
    *to = g.to + at;
    for (uint32_t k = 0; k < g.dims; k++) {
        point += g.dim[k].first;
        const uint32_t outer = point / g.dim[k].extent, index = point - outer * g.dim[k].extent;
        *from += index * g.dim[k].from;
        *to += index * g.dim[k].to;
        point = outer;
    }
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_STRIDED_GRID_H
