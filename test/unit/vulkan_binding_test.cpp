// vulkan_binding.h: every way of binding reaches the right element, within the buffer, at a legal offset.

#include "vulkan_binding.h"

#include <gtest/gtest.h>

#include <random>

using namespace halide_vulkan;

namespace {

BindingRequest request(uint64_t begin, uint64_t bytes, uint64_t minimal, uint64_t alignment, uint32_t stride,
                       bool can_index) {
    return {0, 1 << 20, begin, bytes, minimal, alignment, stride, can_index};
}

// What must hold of any answer, for element 0 of the kernel's array and the argument's last byte.
void check(const BindingRequest &r, const Binding &b) {
    const uint64_t stride = r.array_stride ? r.array_stride : 1;
    if (b.way == BindingWay::bounce) {
        EXPECT_EQ((b.pad + r.minimal) % stride, 0u);
        EXPECT_EQ(b.pad + r.minimal, (uint64_t)b.index * stride);
        EXPECT_GE(b.range, b.pad + r.bytes);
        return;
    }
    EXPECT_EQ(b.offset % r.alignment, 0u);
    EXPECT_GE(b.offset, 0u);
    EXPECT_EQ(b.offset + (uint64_t)b.index * stride, r.begin + r.minimal) << "index 0 is the minimal element";
    EXPECT_GE(b.offset + b.range, r.begin + r.bytes);
    EXPECT_LE(b.offset + b.range, r.region_offset + r.region_size);
    EXPECT_EQ(b.way == BindingWay::plain, b.index == 0);
}

}  // namespace

TEST(Binding, AlignedIsPlain) {
    const Binding b = plan_binding(request(512, 100, 0, 256, 4, true));
    EXPECT_EQ(b.way, BindingWay::plain);
    EXPECT_EQ(b.offset, 512u);
    EXPECT_EQ(b.range, 112u) << "rounded up to whole vectors";
}

TEST(Binding, TheRangeEndsWithTheRegion) {
    BindingRequest r = request(1024, 100, 0, 256, 1, true);
    r.region_offset = 1024;
    r.region_size = 100;
    EXPECT_EQ(plan_binding(r).range, 100u);
}

TEST(Binding, UnalignedIsIndexed) {
    const Binding b = plan_binding(request(516, 100, 0, 256, 4, true));
    EXPECT_EQ(b.way, BindingWay::indexed);
    EXPECT_EQ(b.offset, 512u);
    EXPECT_EQ(b.index, 1);
}

TEST(Binding, AVectorArrayIsReachedFurtherDown) {
    // 520 is 8 over 512; with vectors of 16 bytes and an alignment of 8, 504 is 16 below.
    const Binding b = plan_binding(request(520, 64, 0, 8, 16, true));
    EXPECT_EQ(b.way, BindingWay::plain);
    const Binding c = plan_binding(request(520, 64, 0, 256, 16, true));
    EXPECT_EQ(c.way, BindingWay::bounce) << "no multiple of 256 is a whole number of vectors away";
}

TEST(Binding, WithoutAnIndexThereIsOnlyTheBounce) {
    EXPECT_EQ(plan_binding(request(516, 100, 0, 256, 4, false)).way, BindingWay::bounce);
    EXPECT_EQ(plan_binding(request(516, 100, 0, 256, 0, true)).way, BindingWay::bounce);
}

TEST(Binding, NegativeStridesBeginAboveTheLowestByte) {
    const Binding b = plan_binding(request(512, 400, 396, 256, 4, true));
    EXPECT_EQ(b.way, BindingWay::indexed);
    EXPECT_EQ(b.offset, 512u);
    EXPECT_EQ(b.index, 99);
}

TEST(Binding, RandomRequests) {
    std::mt19937 random(1);
    int seen[3] = {0, 0, 0};
    for (int i = 0; i < 200000; i++) {
        const uint32_t strides[] = {0, 1, 2, 4, 8, 16, 32, 12};
        BindingRequest r;
        r.alignment = 1ull << (random() % 9);
        r.region_offset = align_up(random() % 100000, 256);
        r.region_size = 1 + random() % 5000;
        r.begin = r.region_offset + random() % r.region_size;
        r.bytes = 1 + random() % (r.region_offset + r.region_size - r.begin);
        r.array_stride = strides[random() % 8];
        r.minimal = random() % 3 ? 0 : random() % r.bytes;
        r.can_index = random() % 4 != 0;
        const Binding b = plan_binding(r);
        seen[(int)b.way]++;
        // A bounce without a stride cannot move its index: such a kernel is refused by the launch.
        if (b.way == BindingWay::bounce && (!r.array_stride || !r.can_index) && r.minimal) continue;
        check(r, b);
        if (::testing::Test::HasFailure()) break;
    }
    for (int n : seen) EXPECT_GT(n, 1000);
}
