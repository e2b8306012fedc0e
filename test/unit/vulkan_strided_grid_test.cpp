// The grid of a strided copy against the cursor that lists its runs: every byte from and to the same place.

#include "vulkan_strided_grid.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

using namespace halide_vulkan;

namespace {

using Moves = std::vector<std::pair<uint64_t, uint64_t>>;  // for each byte of the piece: from, to

Moves by_cursor(const Runs &runs, size_t begin, size_t bytes, int64_t from_base, int64_t to_base) {
    Moves moves;
    RunCursor cursor(runs, begin, bytes);
    Run run;
    while (cursor.next(run)) {
        for (size_t i = 0; i < run.bytes; i++)
            moves.emplace_back(from_base + run.source + i, to_base + run.destination + i);
    }
    return moves;
}

Moves by_grid(const StridedGrid &grid, uint32_t unit) {
    Moves moves;
    for (uint32_t n = 0; n < grid.count; n++) {
        uint32_t from, to;
        offsets_of(grid, n, &from, &to);
        for (uint32_t i = 0; i < unit; i++) moves.emplace_back((uint64_t)from * unit + i, (uint64_t)to * unit + i);
    }
    return moves;
}

CopyPlan random_plan(std::mt19937 &random, int64_t *from_base, int64_t *to_base) {
    StridedView from, to;
    from.dims = to.dims = (int)(random() % 6);
    from.element_bytes = to.element_bytes = 1u << random() % 5;
    for (int i = 0; i < from.dims; i++) {
        from.extent[i] = to.extent[i] = 1 + (int64_t)(random() % 7);
        from.stride[i] = ((int64_t)(random() % 60) - 20) * (int64_t)from.element_bytes;
        to.stride[i] = ((int64_t)(random() % 60) - 20) * (int64_t)from.element_bytes;
        if (random() % 8 == 0) from.stride[i] = 0;
        if (random() % 8 == 0) to.stride[i] = 0;
    }
    int64_t low = 0, high = 0;
    span(from, &low, &high);
    *from_base = -low + (int64_t)(random() % 5) * 4;
    span(to, &low, &high);
    *to_base = -low + (int64_t)(random() % 5) * 4;
    CopyPlan plan;
    Failure failure;
    EXPECT_TRUE(plan_copy(from, to, random() % 2 ? Side::source : Side::destination, plan, failure));
    return plan;
}

TEST(VulkanStridedGrid, MovesWhatTheCursorMoves) {
    std::mt19937 random(7);
    int words = 0, bytes_alone = 0;
    for (int round = 0; round < 20000; round++) {
        int64_t from_base, to_base;
        const CopyPlan plan = random_plan(random, &from_base, &to_base);
        Runs runs = plan.direct;
        if (random() % 3 == 1) {
            runs = source_to_dense(plan);
            to_base = (int64_t)(random() % 3) * 16;
        } else if (random() % 3 == 1) {
            runs = dense_to_destination(plan);
            from_base = (int64_t)(random() % 3) * 16;
        }
        size_t begin = random() % runs.bytes;
        if (random() % 2) begin -= begin % 4;
        const size_t bytes = 1 + random() % (runs.bytes - begin);
        StridedGrid grid;
        uint32_t unit = 0;
        ASSERT_TRUE(plan_grid(runs, begin, bytes, from_base, to_base, true, grid, &unit));
        (unit == 4 ? words : bytes_alone)++;
        const Moves want = by_cursor(runs, begin, bytes, from_base, to_base);
        ASSERT_EQ(by_grid(grid, unit), want) << "round " << round;
        StridedGrid again;
        EXPECT_EQ(plan_grid(runs, begin, bytes, from_base, to_base, false, again, &unit), unit == 4);
    }
    EXPECT_GT(words, 1000);
    EXPECT_GT(bytes_alone, 1000);
}

// Far into a long stream: positions over 2^32 on the dense side, offsets over 2^32 on neither.
TEST(VulkanStridedGrid, FarIntoALongStream) {
    StridedView from, to;
    from.dims = to.dims = 2;
    from.element_bytes = to.element_bytes = 4;
    from.extent[0] = to.extent[0] = 1 << 20;
    from.extent[1] = to.extent[1] = 1 << 12;
    from.stride[0] = 8, from.stride[1] = 0;  // one row, repeated
    to.stride[0] = 4, to.stride[1] = 4ll << 20;
    CopyPlan plan;
    Failure failure;
    ASSERT_TRUE(plan_copy(from, to, Side::destination, plan, failure));
    const Runs runs = source_to_dense(plan);
    const size_t begin = ((size_t)9 << 30) + 4096;
    StridedGrid grid;
    uint32_t unit = 0;
    ASSERT_TRUE(plan_grid(runs, begin, 40000, 0, 64, true, grid, &unit));
    EXPECT_EQ(by_grid(grid, unit), by_cursor(runs, begin, 40000, 0, 64));
}

TEST(VulkanStridedGrid, RefusesWhat32BitsCannotCount) {
    Runs runs;
    runs.run = 4;
    runs.bytes = (size_t)1 << 35;
    runs.dims = 1;
    runs.dim[0] = {(size_t)1 << 33, 8, 4};
    StridedGrid grid;
    uint32_t unit = 0;
    EXPECT_FALSE(plan_grid(runs, 0, 4096, 0, 0, true, grid, &unit)) << "an extent of 2^33";
    runs.dim[0].extent = 1000;
    EXPECT_FALSE(plan_grid(runs, 0, (size_t)1 << 34, 0, 0, true, grid, &unit)) << "2^32 words";
    EXPECT_FALSE(plan_grid(runs, 0, 0, 0, 0, true, grid, &unit)) << "nothing";
    EXPECT_TRUE(plan_grid(runs, 0, 4000, 0, 0, true, grid, &unit));
}

}  // namespace
