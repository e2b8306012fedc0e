// Strided copies against nested loops over every element: random shapes of 0 to 16 dimensions with gaps, permuted,
// negative and zero strides; the stream is cut at random places. What the copy must not touch is checked byte by byte.

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "vulkan_base.h"
#include "vulkan_strides.h"

using namespace halide_vulkan;

namespace {

using Bytes = std::vector<uint8_t>;
using OneRun = halide_vulkan::Run;  // testing::Test has a Run of its own
using Random = std::mt19937_64;

// Calls what(source offset, destination offset) for each element, the first dimension innermost.
template<typename What>
void nested_loops(const StridedView &src, const StridedView &dst, What what) {
    if (is_empty(src)) return;
    std::vector<int64_t> at(src.dims, 0);
    for (;;) {
        int64_t s = src.offset, d = dst.offset;
        for (int i = 0; i < src.dims; i++) s += at[i] * src.stride[i], d += at[i] * dst.stride[i];
        what(s, d);
        int i = 0;
        while (i < src.dims && ++at[i] == src.extent[i]) at[i++] = 0;
        if (i == src.dims) return;
    }
}

// Whether two elements may share bytes: none, those along a stride of 0, any.
enum Sharing { kApart, kZeros, kOverlaps };

// Lies at [0, bytes) of its memory.
StridedView random_view(Random &random, const std::vector<int64_t> &extents, uint64_t element, Sharing sharing,
                        size_t *bytes) {
    StridedView v;
    v.dims = (int)extents.size();
    v.element_bytes = element;
    std::vector<int> order(v.dims);
    std::iota(order.begin(), order.end(), 0);
    if (random() % 2) std::shuffle(order.begin(), order.end(), random);
    int64_t stride = (int64_t)element;
    const bool gaps = random() % 2, negative = random() % 3 == 0;
    for (int i : order) {
        v.extent[i] = extents[i];
        v.stride[i] = sharing != kApart && random() % 4 == 0 ? 0 : stride;
        if (sharing == kOverlaps && random() % 4 == 0) v.stride[i] = (int64_t)(element * (random() % 8));
        if (gaps && random() % 3 == 0) v.stride[i] += v.stride[i] ? (int64_t)element * (random() % 3) : 0;
        stride = std::max(stride, v.stride[i] * std::max<int64_t>(extents[i], 1));
        if (negative && random() % 2) v.stride[i] = -v.stride[i];
    }
    int64_t low, high;
    EXPECT_TRUE(span(v, &low, &high));
    v.offset = (int64_t)(random() % 20) - low;
    *bytes = (size_t)(v.offset + high + random() % 20);
    return v;
}

std::vector<int64_t> random_extents(Random &random) {
    std::vector<int64_t> extents(random() % 17);
    int64_t volume = 1;
    for (int64_t &e : extents) {
        e = random() % 3 == 0 ? 1 : 1 + (int64_t)(random() % 6);
        if (extents.size() < 4 && random() % 3 == 0) e += (int64_t)(random() % 20);
        if (volume * e > 3000) e = 1;
        volume *= e;
    }
    if (!extents.empty() && random() % 50 == 0) extents[random() % extents.size()] = 0;
    return extents;
}

Bytes noise(Random &random, size_t size) {
    Bytes b(size);
    for (uint8_t &x : b) x = (uint8_t)random();
    return b;
}

// Performs runs one by one, with every access checked against the memory's size.
void perform(const Runs &runs, size_t begin, size_t bytes, const Bytes &from, Bytes &to) {
    RunCursor cursor(runs, begin, bytes);
    size_t done = 0, count = 0;
    for (OneRun r; cursor.next(r); count++) {
        ASSERT_GT(r.bytes, 0u);
        ASSERT_GE(r.source, 0);
        ASSERT_GE(r.destination, 0);
        ASSERT_LE((uint64_t)r.source + r.bytes, from.size());
        ASSERT_LE((uint64_t)r.destination + r.bytes, to.size());
        ASSERT_TRUE(runs.dense != Runs::kSource || (size_t)r.source == done);
        ASSERT_TRUE(runs.dense != Runs::kDestination || (size_t)r.destination == done);
        memcpy(&to[r.destination], &from[r.source], r.bytes);
        done += r.bytes;
        ASSERT_EQ(cursor.remaining(), bytes - done);
    }
    ASSERT_EQ(done, bytes);
    ASSERT_EQ(count, number_of_runs(runs, begin, bytes));
}

std::vector<size_t> random_cuts(Random &random, size_t bytes) {
    std::set<size_t> cuts = {0, bytes};
    for (int i = (int)(random() % 5); i > 0 && bytes > 0; i--) cuts.insert(random() % bytes);
    return {cuts.begin(), cuts.end()};
}

void compare_all_ways(Random &random, const StridedView &src, size_t src_size, const StridedView &dst,
                      size_t dst_size) {
    const Bytes from = noise(random, src_size), before = noise(random, dst_size);
    Bytes expected = before;
    nested_loops(src, dst, [&](int64_t s, int64_t d) { memcpy(&expected[d], &from[s], src.element_bytes); });
    for (Side order : {Side::source, Side::destination}) {
        Failure f;
        CopyPlan plan;
        ASSERT_TRUE(plan_copy(src, dst, order, plan, f)) << f.message;
        ASSERT_EQ(is_empty(src), plan.bytes() == 0);
        const Runs pack = source_to_dense(plan), unpack = dense_to_destination(plan);
        const std::vector<size_t> cuts = random_cuts(random, plan.bytes());
        Bytes direct = before, staged = before, on_cpu = before, staged_on_cpu = before;
        for (size_t i = 0; i + 1 < cuts.size(); i++) {
            const size_t begin = cuts[i], bytes = cuts[i + 1] - begin;
            ASSERT_NO_FATAL_FAILURE(perform(plan.direct, begin, bytes, from, direct));
            Bytes staging(bytes, 0xEE), staging_on_cpu(bytes, 0xEE);
            ASSERT_NO_FATAL_FAILURE(perform(pack, begin, bytes, from, staging));
            ASSERT_NO_FATAL_FAILURE(perform(unpack, begin, bytes, staging, staged));
            copy_on_cpu(plan.direct, begin, bytes, from.data(), on_cpu.data());
            copy_on_cpu(pack, begin, bytes, from.data(), staging_on_cpu.data());
            ASSERT_EQ(staging, staging_on_cpu);
            copy_on_cpu(unpack, begin, bytes, staging_on_cpu.data(), staged_on_cpu.data());
        }
        ASSERT_EQ(direct, expected);
        ASSERT_EQ(staged, expected);
        ASSERT_EQ(on_cpu, expected);
        ASSERT_EQ(staged_on_cpu, expected);
    }
}

StridedView view(uint64_t element, std::vector<int64_t> extents, std::vector<int64_t> strides, int64_t offset = 0) {
    StridedView v;
    v.dims = (int)extents.size();
    v.element_bytes = element;
    v.offset = offset;
    std::copy(extents.begin(), extents.end(), v.extent);
    std::copy(strides.begin(), strides.end(), v.stride);
    return v;
}

CopyPlan plan_of(const StridedView &src, const StridedView &dst, Side order) {
    Failure f;
    CopyPlan plan;
    EXPECT_TRUE(plan_copy(src, dst, order, plan, f)) << f.message;
    return plan;
}

OneRun only_run(const Runs &runs, size_t begin, size_t bytes) {
    RunCursor cursor(runs, begin, bytes);
    OneRun r = {}, more;
    EXPECT_TRUE(cursor.next(r));
    EXPECT_FALSE(cursor.next(more));
    return r;
}

struct Dimension {
    int32_t min, extent, stride;
    uint32_t flags;
};

}  // namespace

TEST(Strides, RandomCopiesMatchNestedLoops) {
    Random random(21);
    int with_runs = 0;
    for (int i = 0; i < 4000; i++) {
        const std::vector<int64_t> extents = random_extents(random);
        const uint64_t element = 1 + random() % 16;
        size_t src_size, dst_size;
        const StridedView src = random_view(random, extents, element, i % 2 ? kZeros : kOverlaps, &src_size);
        const StridedView dst = random_view(random, extents, element, i % 4 < 2 ? kApart : kZeros, &dst_size);
        ASSERT_NO_FATAL_FAILURE(compare_all_ways(random, src, src_size, dst, dst_size)) << "round " << i;
        with_runs += !is_empty(src);
    }
    EXPECT_GT(with_runs, 3000);
}

TEST(Strides, TheSameLayoutOnBothSidesMatchesNestedLoops) {
    Random random(22);
    for (int i = 0; i < 1000; i++) {
        size_t size;
        const StridedView v = random_view(random, random_extents(random), 1 + random() % 16, kOverlaps, &size);
        ASSERT_NO_FATAL_FAILURE(compare_all_ways(random, v, size, v, size)) << "round " << i;
    }
}

TEST(Strides, RowsThatOverlapAreCopiedOnce) {
    Random random(23);
    const StridedView v = view(4, {10, 8}, {4, 12});  // rows of 40 bytes, 12 apart
    ASSERT_NO_FATAL_FAILURE(compare_all_ways(random, v, 130, v, 130));
    const CopyPlan plan = plan_of(v, v, Side::destination);
    EXPECT_EQ(plan.bytes(), 7u * 12 + 40);
    EXPECT_EQ(number_of_runs(plan.direct), 1u);
}

TEST(Strides, SixteenDimensionsOfTwo) {
    Random random(24);
    size_t src_size, dst_size;
    for (int i = 0; i < 3; i++) {
        const std::vector<int64_t> extents(16, 2);
        const StridedView src = random_view(random, extents, 2, kApart, &src_size);
        const StridedView dst = random_view(random, extents, 2, kApart, &dst_size);
        ASSERT_NO_FATAL_FAILURE(compare_all_ways(random, src, src_size, dst, dst_size));
    }
}

TEST(Strides, ADenseDeviceSideIsOneRunHoweverTheHostLooks) {
    // Host interleaved RGB with padded rows, device planar.
    const StridedView host = view(1, {640, 480, 3}, {3, 2048, 1});
    const StridedView device = view(1, {640, 480, 3}, {1, 640, 640 * 480}, 64);
    const CopyPlan up = plan_of(host, device, Side::destination);
    const Runs unpack = dense_to_destination(up);
    EXPECT_EQ(up.bytes(), 640u * 480 * 3);
    EXPECT_EQ(number_of_runs(unpack), 1u);
    const OneRun piece = only_run(unpack, 100001, 5555);
    EXPECT_EQ(piece.source, 0);
    EXPECT_EQ(piece.destination, 64 + 100001);
    EXPECT_EQ(piece.bytes, 5555u);
    EXPECT_EQ(number_of_runs(source_to_dense(up)), up.bytes());

    const CopyPlan down = plan_of(device, host, Side::source);
    const OneRun back = only_run(source_to_dense(down), 7, 99);
    EXPECT_EQ(back.source, 64 + 7);
    EXPECT_EQ(back.destination, 0);
    // In the host's order the device would be asked for a run per byte.
    EXPECT_EQ(number_of_runs(source_to_dense(plan_of(device, host, Side::destination))), down.bytes());
}

TEST(Strides, ADenseDeviceSideThatRunsDownwardsIsOneRunToo) {
    const StridedView host = view(4, {100, 50}, {4, 400}), device = view(4, {100, 50}, {-4, -400}, 100 * 50 * 4 - 4);
    const CopyPlan plan = plan_of(host, device, Side::destination);
    const OneRun r = only_run(dense_to_destination(plan), 0, plan.bytes());
    EXPECT_EQ(r.destination, 0);
    EXPECT_EQ(r.bytes, 100u * 50 * 4);
    EXPECT_EQ(number_of_runs(source_to_dense(plan)), 5000u);
    const OneRun back = only_run(source_to_dense(plan_of(device, host, Side::source)), 0, plan.bytes());
    EXPECT_EQ(back.source, 0);
    EXPECT_EQ(back.bytes, 100u * 50 * 4);
    // And against itself, all of it is direct.
    EXPECT_EQ(number_of_runs(plan_of(device, device, Side::destination).direct), 1u);
}

TEST(Strides, ACropHasARunPerRowAndABatchOfPlanesMerges) {
    const StridedView crop = view(4, {100, 50, 8}, {4, 1024, 1024 * 50});
    const StridedView dense = view(4, {100, 50, 8}, {4, 400, 20000});
    const CopyPlan plan = plan_of(crop, dense, Side::destination);
    EXPECT_EQ(plan.direct.run, 400u);
    EXPECT_EQ(plan.direct.dims, 1);  // 50 rows of 8 planes are 400 rows
    EXPECT_EQ(number_of_runs(plan.direct), 400u);
    EXPECT_EQ(number_of_runs(plan.direct, 399, 2), 2u);
    EXPECT_EQ(number_of_runs(plan.direct, 400, 400), 1u);
    EXPECT_EQ(number_of_runs(plan.direct, 5, 0), 0u);
}

TEST(Strides, AStripCoversARow) {
    const StridedView src = view(2, {100, 3}, {8, 1000}), dst = view(2, {100, 3}, {2, 200});
    const CopyPlan plan = plan_of(src, dst, Side::destination);
    RunCursor cursor(plan.direct, 3, 450);
    std::vector<size_t> counts;
    for (Strip s; cursor.next(s);) counts.push_back(s.count);
    // Half an element, the row's rest, a row, 24 elements, and half of one.
    EXPECT_EQ(counts, (std::vector<size_t>{1, 98, 100, 26, 1}));
}

TEST(Strides, ABroadcastRowIsRepeatedAsAWhole) {
    const StridedView src = view(1, {64, 10}, {1, 0}), dst = view(1, {64, 10}, {1, 64});
    for (Side order : {Side::source, Side::destination}) {
        EXPECT_EQ(number_of_runs(plan_of(src, dst, order).direct), 10u);
    }
}

TEST(Strides, ARepeatedPlaneDoesNotTearTheOtherSideApart) {
    // The source has two dimensions that seem equally wide: one by its own stride, one (repeated) by the other's.
    const StridedView src = view(4, {16, 16, 16}, {4, 64, 0}), dst = view(4, {16, 16, 16}, {4, 1024, 64});
    EXPECT_EQ(number_of_runs(dense_to_destination(plan_of(src, dst, Side::source))), 1u);
}

TEST(Strides, DimensionsOfOneElementDoNotStandBetweenRows) {
    const StridedView src = view(4, {10, 1, 20, 1}, {4, 8, 40, -4000}), dst = view(4, {10, 1, 20, 1}, {4, 999, 40, 0});
    EXPECT_EQ(number_of_runs(plan_of(src, dst, Side::destination).direct), 1u);
    EXPECT_EQ(number_of_runs(plan_of(src, dst, Side::source).direct), 1u);
}

TEST(Strides, ScalarsAndNothing) {
    const StridedView scalar = view(8, {}, {}, 24);
    const OneRun r = only_run(plan_of(scalar, scalar, Side::source).direct, 0, 100);
    EXPECT_EQ(r.source, 24);
    EXPECT_EQ(r.bytes, 8u);
    for (int64_t none : {0, -3}) {
        const StridedView empty = view(8, {5, none}, {8, 40});
        const CopyPlan plan = plan_of(empty, empty, Side::source);
        EXPECT_EQ(plan.bytes(), 0u);
        EXPECT_EQ(number_of_runs(plan.direct), 0u);
        EXPECT_EQ(number_of_runs(source_to_dense(plan)), 0u);
        OneRun run;
        Strip strip;
        EXPECT_FALSE(RunCursor(plan.direct, 0, 100).next(run));
        EXPECT_FALSE(RunCursor(dense_to_destination(plan), 0, 100).next(strip));
    }
    // Past the end there is nothing either.
    OneRun run;
    EXPECT_FALSE(RunCursor(plan_of(scalar, scalar, Side::source).direct, 8, 1).next(run));
    EXPECT_FALSE(RunCursor(plan_of(scalar, scalar, Side::source).direct, 100, 1).next(run));
}

TEST(Strides, WhatDoesNotMatchIsRefusedByName) {
    CopyPlan plan;
    {
        Failure f;
        EXPECT_FALSE(plan_copy(view(4, {5}, {4}), view(4, {5, 1}, {4, 20}), Side::source, plan, f));
        EXPECT_EQ(f.code, kBufferCopyFailed);
    }
    {
        Failure f;
        EXPECT_FALSE(plan_copy(view(4, {5}, {4}), view(2, {5}, {2}), Side::source, plan, f));
        EXPECT_EQ(f.code, kBufferCopyFailed);
        EXPECT_STREQ(f.message, "copy between elements of 4 and 2 bytes");
    }
    {
        Failure f;
        EXPECT_FALSE(plan_copy(view(4, {5, 6}, {4, 20}), view(4, {5, 7}, {4, 20}), Side::source, plan, f));
        EXPECT_EQ(f.code, kBufferCopyFailed);
        EXPECT_STREQ(f.message, "copy between extents of 6 and 7 in dimension 1");
    }
    {
        Failure f;
        StridedView v;
        const Dimension seventeen[17] = {};
        EXPECT_FALSE(view_of(seventeen, 17, 4, v, f));
        EXPECT_EQ(f.code, kExtentsTooLarge);
        EXPECT_STREQ(f.message, "a buffer of 17 dimensions was given, the limit is 16");
    }
}

TEST(Strides, SizesThatDoNotFitAreRefused) {
    const int64_t huge = (int64_t)1 << 61;
    CopyPlan plan;
    for (const StridedView &v : {view(4, {3, 3}, {4, huge}), view(4, {3, 3}, {4, -huge}), view(4, {huge, 4}, {4, 4}),
                                 view(4, {INT64_MAX}, {INT64_MIN}), view(4, {2}, {-INT64_MAX}),
                                 view(4, {2}, {INT64_MIN + 8}), view((uint64_t)1 << 63, {1}, {0}),
                                 view(4, {2}, {huge}, (int64_t)1 << 62), view(4, {2}, {-huge}, INT64_MIN / 2)}) {
        Failure f;
        EXPECT_FALSE(plan_copy(v, v, Side::source, plan, f));
        EXPECT_EQ(f.code, kExtentsTooLarge);
    }
    // A broadcast source spans little, but the stream would be too long.
    Failure f;
    const int64_t many = (int64_t)1 << 31;
    const StridedView one = view(4, {many, many, 4}, {0, 0, 0}), large = view(4, {many, many, 4}, {4, 4, 0x7fffffff});
    EXPECT_FALSE(plan_copy(one, large, Side::source, plan, f));
    EXPECT_EQ(f.code, kExtentsTooLarge);
    EXPECT_EQ(plan.bytes(), 0u);
    // Broadcast on both sides is one element, however often.
    EXPECT_EQ(plan_of(one, one, Side::source).bytes(), 4u);
    // And the largest that fits can be walked at both ends.
    const StridedView wide = view(4, {2, 2}, {huge, huge / 2}, -5);
    const CopyPlan fits = plan_of(wide, wide, Side::source);
    EXPECT_EQ(only_run(fits.direct, 12, 4).source, huge + huge / 2 - 5);
}

TEST(Strides, SpansMatchEveryElement) {
    Random random(25);
    for (int i = 0; i < 2000; i++) {
        size_t size;
        const StridedView v = random_view(random, random_extents(random), 1 + random() % 16, kOverlaps, &size);
        int64_t lowest = 0, highest = 0, at_least = 0, at_most = 0;
        ASSERT_TRUE(span(v, &lowest, &highest));
        nested_loops(v, v, [&](int64_t s, int64_t) {
            at_least = std::min(at_least, s - v.offset);
            at_most = std::max(at_most, s - v.offset + (int64_t)v.element_bytes);
        });
        ASSERT_EQ(lowest, at_least);
        ASSERT_EQ(highest, at_most);
        uint64_t bytes = 0;
        Failure f;
        ASSERT_TRUE(measure(v, &lowest, &bytes, f));
        ASSERT_EQ(bytes, (uint64_t)(at_most - at_least));
    }
}

TEST(Strides, DimensionsInElementsAreMeasuredInBytes) {
    // The documented formula: (highest - lowest) * element bytes, not extents multiplied.
    const Dimension dim[3] = {{5, 10, 1, 0}, {-2, 4, -100, 0}, {0, 3, 1000, 0}};
    StridedView v;
    Failure f;
    ASSERT_TRUE(view_of(dim, 3, 4, v, f));
    int64_t lowest;
    uint64_t bytes;
    ASSERT_TRUE(measure(v, &lowest, &bytes, f));
    EXPECT_EQ(lowest, -300 * 4);
    EXPECT_EQ(bytes, (uint64_t)(9 + 2000 + 1 + 300) * 4);
    // Extents and strides of 2^31 fit as long as their product does.
    const Dimension large[2] = {{0, INT32_MAX, INT32_MAX, 0}, {0, 2, INT32_MIN, 0}};
    EXPECT_FALSE(view_of(large, 2, 4, v, f) && measure(v, &lowest, &bytes, f));
    EXPECT_EQ(f.code, kExtentsTooLarge);
    Failure g;
    EXPECT_TRUE(view_of(large + 1, 1, 16, v, g) && measure(v, &lowest, &bytes, g));
    EXPECT_EQ(lowest, (int64_t)INT32_MIN * 16);
}

TEST(Strides, ABufferIsMeasuredAsItsViewIs) {
    struct Dimension {
        int32_t extent, stride;
    };
    Random random(17);
    int refused = 0, everyday = 0;
    const auto number = [&] {
        const int32_t extremes[] = {INT32_MIN, INT32_MIN + 1, -1,        0,       1,
                                    2,         INT32_MAX - 1, INT32_MAX, 1 << 20, -(1 << 20)};
        const uint64_t r = random();
        return r % 4 == 0 ? extremes[(r >> 8) % 10] : (int32_t)((r >> 8) % 300) - (r % 4 == 1 ? 50 : 0);
    };
    for (int round = 0; round < 200000; round++) {
        Dimension dim[kMaxDimensions + 1];
        for (Dimension &d : dim) d = {number(), number()};
        const int dims = round % 97 == 0 ? (int)(random() % 40) - 10 : (int)(random() % (kMaxDimensions + 1));
        const uint64_t sizes[] = {0, 1, 2, 4, 8, 16, 65535, 65536, 1ull << 33, 1ull << 62, 1ull << 63};
        const uint64_t element_bytes = sizes[random() % 11];
        if (dims > kMaxDimensions + 1) continue;
        StridedView view;
        Failure wanted_failure, failure;
        int64_t wanted_lowest = 0, lowest = 0;
        uint64_t wanted_bytes = 0, bytes = 0;
        const bool wanted = view_of(dim, dims, element_bytes, view, wanted_failure) &&
                            measure(view, &wanted_lowest, &wanted_bytes, wanted_failure);
        ASSERT_EQ(measure_dimensions(dim, dims, element_bytes, &lowest, &bytes, failure), wanted);
        if (!wanted) {
            ASSERT_STREQ(failure.message, wanted_failure.message);
            refused++;
            continue;
        }
        ASSERT_EQ(lowest, wanted_lowest);
        ASSERT_EQ(bytes, wanted_bytes);
        everyday += bytes > 0;
    }
    EXPECT_GT(refused, 1000);
    EXPECT_GT(everyday, 1000);
}

TEST(Strides, OverlapOfSpansIsNeverMissed) {
    Random random(26);
    int apart = 0, shared = 0;
    for (int i = 0; i < 2000; i++) {
        size_t size;
        const std::vector<int64_t> extents(random() % 3, 1 + (int64_t)(random() % 4));
        StridedView a = random_view(random, extents, 1 + random() % 4, kOverlaps, &size), b = a;
        b.offset += (int64_t)(random() % 100) - 50;
        std::set<int64_t> bytes;
        bool share = false;
        nested_loops(a, a, [&](int64_t s, int64_t) {
            for (uint64_t k = 0; k < a.element_bytes; k++) bytes.insert(s + (int64_t)k);
        });
        nested_loops(b, b, [&](int64_t s, int64_t) {
            for (uint64_t k = 0; k < b.element_bytes; k++) share |= bytes.count(s + (int64_t)k) != 0;
        });
        const bool said = may_overlap(a, b);
        if (share) {
            ASSERT_TRUE(said);
        }
        shared += share;
        apart += !said;
    }
    EXPECT_GT(shared, 100);
    EXPECT_GT(apart, 100);
}
