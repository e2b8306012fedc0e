// Freed ranges that are kept for the next request of their size: the same bytes come back, none is handed out twice or
// forgotten, and when all are given back the block is whole.

#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "vulkan_base.h"
#include "vulkan_range_cache.h"

using namespace halide_vulkan;

namespace {

constexpr uint32_t kNone = Ranges::kNone;
constexpr uint64_t kBlock = 1 << 24;

struct Kept : testing::Test {
    Ranges ranges;
    RangeCache cache;
    uint32_t first;
    Kept() {
        ranges.init(64);
        first = ranges.add_block(0, kBlock);
    }
    ~Kept() override { ranges.release(); }
};

TEST_F(Kept, ComesBackWholeAndOnce) {
    const uint32_t range = ranges.allocate(4096);
    const uint64_t offset = ranges.offset(range);
    cache.keep(ranges, range);
    EXPECT_EQ(cache.bytes(), 4096u);
    EXPECT_EQ(cache.take(ranges, 4032), kNone);
    EXPECT_EQ(cache.take(ranges, 4096), range);
    EXPECT_EQ(ranges.offset(range), offset);
    EXPECT_EQ(cache.bytes(), 0u);
    EXPECT_EQ(cache.take(ranges, 4096), kNone);
}

TEST_F(Kept, SixteenSizesThatArePowersOfTwoApartNeverMeet) {
    for (int lowest : {6, 8}) {
        std::vector<uint32_t> kept;
        for (int i = 0; i < 16; i++) kept.push_back(ranges.allocate((uint64_t)1 << (lowest + i)));
        for (uint32_t range : kept) cache.keep(ranges, range);
        for (int i = 0; i < 16; i++) EXPECT_EQ(cache.take(ranges, (uint64_t)1 << (lowest + i)), kept[i]) << i;
        for (uint32_t range : kept) ranges.free(range);
    }
}

TEST_F(Kept, WhatIsStillInUseIsNotTakenForTheProcessor) {
    const uint32_t range = ranges.allocate(4096);
    ranges.touch(range, 7);
    cache.keep(ranges, range);
    EXPECT_EQ(cache.take(ranges, 4096, 6), kNone);
    EXPECT_EQ(cache.bytes(), 4096u);
    EXPECT_EQ(cache.take(ranges, 4096, 7), range);
}

TEST_F(Kept, TheNewestOfAPlaceStays) {
    const uint32_t a = ranges.allocate(4096), b = ranges.allocate(4096);
    cache.keep(ranges, a);
    cache.keep(ranges, b);
    EXPECT_TRUE(ranges.is_free(a));
    EXPECT_EQ(cache.bytes(), 4096u);
    EXPECT_EQ(cache.take(ranges, 4096), b);
}

TEST_F(Kept, NothingIsHandedOutTwiceOrForgotten) {
    std::mt19937 random(4);
    std::map<uint64_t, uint32_t> held;  // by offset
    for (int step = 0; step < 200000; step++) {
        if (held.empty() || random() % 2) {
            const uint64_t size = (uint64_t)64 << random() % 14;
            uint32_t range = cache.take(ranges, size);
            if (range == kNone) range = ranges.allocate(size);
            if (range == kNone && cache.give_back(ranges)) range = ranges.allocate(size);
            if (range == kNone) continue;
            ASSERT_EQ(ranges.size(range), size);
            const auto after = held.lower_bound(ranges.offset(range));
            ASSERT_TRUE(after == held.end() || after->first >= ranges.offset(range) + size);
            if (after != held.begin()) {
                const auto before = std::prev(after);
                ASSERT_LE(before->first + ranges.size(before->second), ranges.offset(range));
            }
            held[ranges.offset(range)] = range;
        } else {
            auto at = held.lower_bound(random() % kBlock);
            if (at == held.end()) at = held.begin();
            cache.keep(ranges, at->second);
            held.erase(at);
        }
        uint64_t bytes = cache.bytes();
        if (step % 1000 == 0) {
            for (const auto &h : held) bytes += ranges.size(h.second);
            ASSERT_EQ(ranges.used_bytes(), bytes);
            ASSERT_TRUE(ranges.check());
        }
    }
    for (const auto &h : held) cache.keep(ranges, h.second);
    EXPECT_FALSE(ranges.block_is_free(first));
    EXPECT_TRUE(cache.give_back(ranges));
    EXPECT_FALSE(cache.give_back(ranges));
    EXPECT_TRUE(ranges.block_is_free(first));
    EXPECT_EQ(ranges.used_bytes(), 0u);
}

}  // namespace
