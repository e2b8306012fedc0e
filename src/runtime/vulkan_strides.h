// vulkan_strides.h: copies between strided N-dimensional views, as few contiguous runs. [pure]
//
// A Halide buffer may have up to 16 dimensions in any order, with gaps, strides of 0 and negative strides; a copy
// engine wants {source, destination, bytes}. plan_copy() brings a pair of views into one normal form, from which the
// runs of three kinds of copy are enumerated:
//   direct runs             both sides contiguous: region to region on the device, memory to memory on the CPU
//   source_to_dense(plan)   one side against the *stream*, all bytes of the copy laid densely one after the other:
//   dense_to_destination()  what lies in staging. The CPU packs one side of it, the device unpacks the other.
// The stream's order is that of one side, the caller's choice: choose the device's. If the device side has no gaps, a
// piece of the stream is then one run for the device, however the host side is strided; the CPU gathers small runs much
// more cheaply than a copy engine.
//
// Normal form: the element is the innermost dimension, of bytes. Dimensions of extent 1 vanish. Dimensions are sorted
// by the ordering side's stride, and turned around where that is negative (both sides alike), so a copy runs upwards
// there. Neighbours that are contiguous on both sides become one. A destination stride of 0 writes one place over and
// over: the last write stands, so only that one is kept. Where both sides have the same stride, and it is smaller than
// the run (rows that overlap), the run grows instead: the same bytes are never copied twice. A destination that
// overlaps itself in any other way is written in an unspecified order.
//
// Planning is O(dims^2), a cursor starts anywhere in O(dims) and steps in O(1) amortised. Nothing is allocated; a set
// of runs is 424 bytes, for the stack. Positions in a stream are size_t: on 32-bit targets, 64-bit division is a
// library call. What spans more than 2^62 bytes is a failure, so that no later sum or product overflows.
// Threads: no shared state.

#ifndef HALIDE_VULKAN_STRIDES_H
#define HALIDE_VULKAN_STRIDES_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

// Halide's own limit for a device copy.
constexpr int kMaxDimensions = 16;
// No memory is that large, and with it one more stride past the end of a view is still a 64-bit number.
constexpr int64_t kMostBytes = (int64_t)1 << 62;

// All in bytes. An extent of 0 or less makes the view empty. The offset is that of the element whose coordinates are
// all minimal, not of the lowest byte: with negative strides it lies above that.
struct StridedView {
    int dims = 0;
    uint64_t element_bytes = 0;
    int64_t extent[kMaxDimensions] = {};
    int64_t stride[kMaxDimensions] = {};
    int64_t offset = 0;
};

// The view of a buffer's dimensions (halide_dimension_t, or anything with extent and stride in elements), offset 0.
template<typename Dimension>
inline bool view_of(const Dimension *dim, int dims, uint64_t element_bytes, StridedView &out, Failure &f) {
    if (dims < 0 || dims > kMaxDimensions) {
        f.because(kExtentsTooLarge) << "a buffer of " << dims << " dimensions was given, the limit is "
                                    << kMaxDimensions;
        return false;
    }
    out.dims = dims;
    out.element_bytes = element_bytes;
    out.offset = 0;
    for (int i = 0; i < dims; i++) {
        out.extent[i] = dim[i].extent;
        if (element_bytes > (uint64_t)kMostBytes ||
            !checked_mul(dim[i].stride, (int64_t)element_bytes, &out.stride[i])) {
            f.because(kExtentsTooLarge) << "the stride of dimension " << i << ", " << (int64_t)dim[i].stride
                                        << " elements of " << element_bytes << " bytes, exceeds 2^63 bytes";
            return false;
        }
    }
    return true;
}

inline bool is_empty(const StridedView &v) {
    for (int i = 0; i < v.dims; i++) {
        if (v.extent[i] <= 0) return true;
    }
    return v.element_bytes == 0;
}

// The bytes that a view touches, [lowest, highest), counted from its minimal element: lowest <= 0. Their number is the
// size of the device region for such a buffer (lowest is where the region begins). False when it exceeds kMostBytes.
inline bool span(const StridedView &v, int64_t *lowest, int64_t *highest) {
    *lowest = *highest = 0;
    if (is_empty(v)) return true;
    if (v.element_bytes > (uint64_t)kMostBytes) return false;
    int64_t low = 0, high = (int64_t)v.element_bytes;
    for (int i = 0; i < v.dims; i++) {
        int64_t reach;
        if (!checked_mul(v.stride[i], v.extent[i] - 1, &reach)) return false;
        if (!checked_add(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)) return false;
    }
    // Also both ends as counted from where the view's own offset counts from.
    if (low < -kMostBytes || high > kMostBytes || high - low > kMostBytes) return false;
    if (v.offset < -kMostBytes - low || v.offset > kMostBytes - high) return false;
    *lowest = low;
    *highest = high;
    return true;
}

// span() with the size as a number, and the failure told. Works for a buffer of which nothing else is known yet.
inline bool measure(const StridedView &v, int64_t *lowest, uint64_t *bytes, Failure &f) {
    int64_t high;
    if (!span(v, lowest, &high)) {
        f.because(kExtentsTooLarge) << "a buffer of " << v.dims << " dimensions and " << v.element_bytes
                                    << " bytes per element spans more than 2^62 bytes";
        return false;
    }
    *bytes = (uint64_t)(high - *lowest);
    return true;
}

// view_of and measure at once, for each buffer of each launch. Numbers of everyday size need no care about overflow.
template<typename Dimension>
inline bool measure_dimensions(const Dimension *dim, int dims, uint64_t element_bytes, int64_t *lowest, uint64_t *bytes,
                               Failure &f) {
    static_assert(sizeof(dim->stride) == 4 && sizeof(dim->extent) == 4, "products must fit");
    // 16 dimensions of 2^40 elements of 2^16 bytes stay below 2^62.
    constexpr int64_t kReach = (int64_t)1 << 40, kElement = 1 << 16;
    int64_t low = 0, high = 1;
    bool everyday = dims >= 0 && dims <= kMaxDimensions && element_bytes > 0 && element_bytes < (uint64_t)kElement;
    for (int i = 0; everyday && i < dims; i++) {
        const int64_t reach = (int64_t)dim[i].stride * ((int64_t)dim[i].extent - 1);
        everyday = dim[i].extent > 0 && reach > -kReach && reach < kReach;
        low += min_of<int64_t>(reach, 0);
        high += max_of<int64_t>(reach, 0);
    }
    if (everyday) {
        *lowest = low * (int64_t)element_bytes;
        *bytes = (uint64_t)(high - low) * element_bytes;
        return true;
    }
    StridedView view;
    return view_of(dim, dims, element_bytes, view, f) && measure(view, lowest, bytes, f);
}

// Whether two views of the same memory may share a byte, judged by their spans: true too often rather than too seldom.
inline bool may_overlap(const StridedView &a, const StridedView &b) {
    if (is_empty(a) || is_empty(b)) return false;
    int64_t a_low, a_high, b_low, b_high;
    if (!span(a, &a_low, &a_high) || !span(b, &b_low, &b_high)) return true;
    return a.offset + a_low < b.offset + b_high && b.offset + b_low < a.offset + a_high;
}

// Bytes to copy in one piece.
struct Run {
    int64_t source, destination;
    size_t bytes;
};

// `count` runs, equally spaced, as they come along one dimension.
struct Strip {
    Run first;
    size_t count;
    int64_t source_step, destination_step;
};

enum class Side : uint32_t { source, destination };

// A set of runs: `run` contiguous bytes at each point of a grid of at most 16 dimensions.
struct Runs {
    enum Dense : uint32_t { kNeither, kSource, kDestination };
    struct Dimension {
        size_t extent;
        int64_t source, destination;  // strides
    };
    size_t bytes = 0;  // of all runs; a position in the stream is in [0, bytes)
    size_t run = 0;
    int dims = 0;
    Dense dense = kNeither;               // which side is the stream
    int64_t source = 0, destination = 0;  // where the first run begins
    Dimension dim[kMaxDimensions];
};

// The number of runs that [begin, begin + bytes) of the stream falls into.
inline size_t number_of_runs(const Runs &r, size_t begin, size_t bytes) {
    if (bytes == 0 || r.run == 0) return 0;
    return (begin + bytes - 1) / r.run - begin / r.run + 1;
}
inline size_t number_of_runs(const Runs &r) { return number_of_runs(r, 0, r.bytes); }

struct CopyPlan {
    Runs direct;
    size_t bytes() const { return direct.bytes; }
};

// Adds a dimension outside of all others, joined with the outermost one where both sides allow it.
inline void append_dimension(Runs &r, const Runs::Dimension &d) {
    if (r.dims == 0) {
        if (d.source == (int64_t)r.run && d.destination == (int64_t)r.run) {
            r.run *= d.extent;
            return;
        }
    } else {
        Runs::Dimension &last = r.dim[r.dims - 1];
        const int64_t extent = (int64_t)last.extent;
        if (d.source == last.source * extent && d.destination == last.destination * extent) {
            last.extent *= d.extent;
            return;
        }
    }
    r.dim[r.dims++] = d;
}

// One side of the plan against the stream. The dense side's positions count from the begin of the cursor's piece.
inline Runs against_stream(const CopyPlan &plan, Runs::Dense dense) {
    const Runs &from = plan.direct;
    Runs r;
    r.bytes = from.bytes;
    r.run = from.run;
    r.dense = dense;
    r.source = dense == Runs::kSource ? 0 : from.source;
    r.destination = dense == Runs::kDestination ? 0 : from.destination;
    int64_t stride = (int64_t)from.run;
    for (int i = 0; i < from.dims; i++) {
        Runs::Dimension d = from.dim[i];
        (dense == Runs::kSource ? d.source : d.destination) = stride;
        stride *= (int64_t)d.extent;
        append_dimension(r, d);
    }
    return r;
}
inline Runs source_to_dense(const CopyPlan &plan) { return against_stream(plan, Runs::kDestination); }
inline Runs dense_to_destination(const CopyPlan &plan) { return against_stream(plan, Runs::kSource); }

// The steps of plan_copy.
struct PlanDimension {
    int64_t extent, source, destination;
    uint64_t key, second;  // distance of neighbours on the ordering side, on the other side
};

inline uint64_t magnitude(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }

// Drops what is not a dimension, turns what runs downwards, moves the offsets accordingly. Returns the number of dims.
inline int collect_dimensions(const StridedView &src, const StridedView &dst, Side order, PlanDimension *to, Runs &r) {
    int n = 0;
    for (int i = 0; i < src.dims; i++) {
        PlanDimension d = {src.extent[i], src.stride[i], dst.stride[i], 0, 0};
        if (d.extent == 1) continue;
        const bool turn = order == Side::source ? d.source < 0 || (d.source == 0 && d.destination < 0)
                                                : d.destination < 0 || (d.destination == 0 && d.source < 0);
        if (d.destination == 0 || turn) {
            r.source += d.source * (d.extent - 1);
            r.destination += d.destination * (d.extent - 1);
        }
        if (d.destination == 0) continue;
        if (turn) {
            d.source = -d.source;
            d.destination = -d.destination;
        }
        d.key = magnitude(order == Side::source ? d.source : d.destination);
        d.second = magnitude(order == Side::source ? d.destination : d.source);
        if (d.key == 0) d.key = d.second;  // a repeated row is repeated as a whole, not byte by byte
        // Insertion sort: at most 16, and mostly in order already.
        int at = n++;
        for (; at > 0; at--) {
            const PlanDimension &p = to[at - 1];
            if (p.key < d.key || (p.key == d.key && p.second <= d.second)) break;
            to[at] = p;
        }
        to[at] = d;
    }
    return n;
}

// False, with the reason in f, when the views do not match or a size does not fit. An empty view gives a plan of 0
// bytes.
inline bool plan_copy(const StridedView &src, const StridedView &dst, Side order, CopyPlan &out, Failure &f) {
    Runs &r = out.direct;
    r = Runs();
    if (src.dims != dst.dims || src.dims < 0 || src.dims > kMaxDimensions) {
        f.because(src.dims == dst.dims ? kExtentsTooLarge : kBufferCopyFailed)
            << "copy between buffers of " << src.dims << " and " << dst.dims
            << " dimensions; they must be as many, at most " << kMaxDimensions;
        return false;
    }
    if (src.element_bytes != dst.element_bytes) {
        f.because(kBufferCopyFailed) << "copy between elements of " << src.element_bytes << " and " << dst.element_bytes
                                     << " bytes";
        return false;
    }
    for (int i = 0; i < src.dims; i++) {
        if (src.extent[i] == dst.extent[i]) continue;
        f.because(kBufferCopyFailed) << "copy between extents of " << src.extent[i] << " and " << dst.extent[i]
                                     << " in dimension " << i;
        return false;
    }
    if (is_empty(src)) return true;
    int64_t low, high;
    if (!span(src, &low, &high) || !span(dst, &low, &high)) {
        f.because(kExtentsTooLarge) << "copy of a buffer that spans more than 2^62 bytes";
        return false;
    }

    PlanDimension dims[kMaxDimensions];
    r.source = src.offset;
    r.destination = dst.offset;
    const int n = collect_dimensions(src, dst, order, dims, r);
    int64_t run = (int64_t)src.element_bytes;  // spans fit, and a run is part of one: no overflow
    int i = 0;
    // Equal strides of no more than the run: overlapping or touching rows are one longer run.
    for (; i < n && dims[i].source == dims[i].destination && dims[i].source >= 0 && dims[i].source <= run; i++) {
        run += dims[i].source * (dims[i].extent - 1);
    }
    int64_t bytes = run;
    for (int k = i; k < n; k++) {
        if (!checked_mul(bytes, dims[k].extent, &bytes)) bytes = INT64_MAX;
    }
    if (bytes > kMostBytes || (uint64_t)bytes > (uint64_t)SIZE_MAX) {
        f.because(kExtentsTooLarge) << "copy of more bytes than an address can hold";
        r = Runs();
        return false;
    }
    r.run = (size_t)run;
    r.bytes = (size_t)bytes;
    for (; i < n; i++) {
        append_dimension(r, {(size_t)dims[i].extent, dims[i].source, dims[i].destination});
    }
    return true;
}

// Enumerates the runs of bytes [begin, begin + bytes) of the stream, in its order. The caller stops when it likes; the
// Runs must outlive the cursor. A begin or end inside a run cuts that run.
class RunCursor {
public:
    RunCursor(const Runs &runs, size_t begin, size_t bytes)
        : runs(runs), source(runs.source), destination(runs.destination) {
        begin = min_of(begin, runs.bytes);
        left = min_of(bytes, runs.bytes - begin);
        if (runs.dense == Runs::kSource) source -= (int64_t)begin;
        if (runs.dense == Runs::kDestination) destination -= (int64_t)begin;
        if (left == 0) return;
        size_t point = begin / runs.run;
        inside = begin - point * runs.run;
        for (int i = 0; i < runs.dims; i++) {
            const Runs::Dimension &d = runs.dim[i];
            const size_t outer = point / d.extent;
            index[i] = point - outer * d.extent;
            point = outer;
            source += d.source * (int64_t)index[i];
            destination += d.destination * (int64_t)index[i];
        }
    }

    // Bytes not enumerated yet.
    size_t remaining() const { return left; }

    bool next(Run &out) {
        if (left == 0) return false;
        const size_t bytes = min_of(runs.run - inside, left);
        out = {source + (int64_t)inside, destination + (int64_t)inside, bytes};
        left -= bytes;
        inside += bytes;
        if (inside == runs.run) {
            inside = 0;
            advance(1);
        }
        return true;
    }

    // The same bytes, but whole runs along the innermost dimension at once: for loops over many short runs.
    bool next(Strip &out) {
        if (left == 0) return false;
        if (inside != 0 || left < runs.run || runs.dims == 0) {
            out.count = 1;
            out.source_step = out.destination_step = 0;
            return next(out.first);
        }
        const Runs::Dimension &d = runs.dim[0];
        size_t count = d.extent - index[0];
        if (count > 1 && count * runs.run > left) count = left / runs.run;
        out.first = {source, destination, runs.run};
        out.count = count;
        out.source_step = d.source;
        out.destination_step = d.destination;
        left -= count * runs.run;
        advance(count);
        return true;
    }

private:
    // By steps along the innermost dimension, not past its end. After the last point the position means nothing;
    // left is 0 then.
    void advance(size_t steps) {
        for (int i = 0; i < runs.dims; i++, steps = 1) {
            const Runs::Dimension &d = runs.dim[i];
            index[i] += steps;
            source += d.source * (int64_t)steps;
            destination += d.destination * (int64_t)steps;
            if (index[i] < d.extent) return;
            index[i] = 0;
            source -= d.source * (int64_t)d.extent;
            destination -= d.destination * (int64_t)d.extent;
        }
    }

    const Runs &runs;
    int64_t source, destination;  // of the current run's begin
    size_t left = 0, inside = 0;  // inside: bytes of the current run that are done
    size_t index[kMaxDimensions] = {};
};

template<size_t N>
inline void copy_elements(char *to, const char *from, const Strip &s) {
    for (size_t i = 0; i < s.count; i++, to += s.destination_step, from += s.source_step) __builtin_memcpy(to, from, N);
}

// Performs the copy of [begin, begin + bytes) on the CPU. The bases are what the runs' offsets count from; for the
// dense side that is where the piece's first byte lies. Source and destination must not overlap.
inline void copy_on_cpu(const Runs &runs, size_t begin, size_t bytes, const void *source_base, void *destination_base) {
    RunCursor cursor(runs, begin, bytes);
    Strip s;
    while (cursor.next(s)) {
        const char *from = (const char *)source_base + (intptr_t)s.first.source;
        char *to = (char *)destination_base + (intptr_t)s.first.destination;
        // Element sizes that occur: a fixed size is a load and a store, not a call.
        switch (s.first.bytes) {
        case 1: copy_elements<1>(to, from, s); break;
        case 2: copy_elements<2>(to, from, s); break;
        case 4: copy_elements<4>(to, from, s); break;
        case 8: copy_elements<8>(to, from, s); break;
        case 16: copy_elements<16>(to, from, s); break;
        default:
            for (size_t i = 0; i < s.count; i++, to += s.destination_step, from += s.source_step) {
                __builtin_memcpy(to, from, s.first.bytes);
            }
        }
    }
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_STRIDES_H
