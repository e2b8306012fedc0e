// The range allocator against an oracle, an interval map per block: the same bytes are free and used, no range overlaps
// another, last uses are split and joined, and in the end every block is whole again.

#include <stdlib.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

static int allocations = 0;
static bool memory_is_out = false;
static void *counted_malloc(size_t bytes) {
    if (memory_is_out) return nullptr;
    allocations++;
    return malloc(bytes);
}
static void counted_free(void *pointer) { free(pointer); }
#define HALIDE_VULKAN_MALLOC(bytes) counted_malloc(bytes)
#define HALIDE_VULKAN_FREE(pointer) counted_free(pointer)
#include "vulkan_base.h"
#include "vulkan_ranges.h"

using namespace halide_vulkan;

namespace {

constexpr uint32_t kNone = Ranges::kNone;

struct Span {
    uint64_t size, last_use;
    bool used;
};

// One block: offset -> span; the spans tile it.
struct OracleBlock {
    uint64_t size;
    std::map<uint64_t, Span> spans;

    explicit OracleBlock(uint64_t size) : size(size) { spans[0] = {size, 0, false}; }

    // Takes [offset, offset + size) from the free span that begins there, or says why not.
    testing::AssertionResult take(uint64_t offset, uint64_t size) {
        const auto at = spans.find(offset);
        if (at == spans.end()) return testing::AssertionFailure() << "no span begins at " << offset;
        if (at->second.used) return testing::AssertionFailure() << "in use at " << offset;
        if (at->second.size < size) return testing::AssertionFailure() << "too small at " << offset;
        if (at->second.size > size) {
            spans[offset + size] = {at->second.size - size, at->second.last_use, false};
            at->second.size = size;
        }
        at->second.used = true;
        return testing::AssertionSuccess();
    }

    // Returns the offset of the joined free span.
    uint64_t give(uint64_t offset) {
        auto at = spans.find(offset);
        at->second.used = false;
        const auto swallow_next = [&](std::map<uint64_t, Span>::iterator low) {
            const auto high = std::next(low);
            if (high == spans.end() || high->second.used) return;
            low->second.size += high->second.size;
            low->second.last_use = std::max(low->second.last_use, high->second.last_use);
            spans.erase(high);
        };
        swallow_next(at);
        if (at != spans.begin() && !std::prev(at)->second.used) {
            at = std::prev(at);
            swallow_next(at);
        }
        return at->first;
    }

    bool is_free() const { return spans.size() == 1 && !spans.begin()->second.used; }
    uint64_t largest() const {
        uint64_t most = 0;
        for (const auto &s : spans) {
            if (!s.second.used) most = std::max(most, s.second.size);
        }
        return most;
    }
};

struct Taken {
    uint32_t id, block;
    uint64_t offset, size;
};

struct Mix {
    uint64_t alignment, block_size, largest_request;
    uint32_t blocks;
    int operations;
    int check_every;
};

void compare_with_oracle(const Mix &mix, uint64_t seed) {
    std::mt19937_64 random(seed);
    Ranges ranges;
    ranges.init(mix.alignment);
    std::vector<OracleBlock> oracle;
    std::vector<uint32_t> first;
    uint64_t capacity = 0;
    for (uint32_t b = 0; b < mix.blocks; b++) {
        const uint64_t size = mix.block_size - b * mix.alignment;
        first.push_back(ranges.add_block(100 + b, size + random() % mix.alignment));
        ASSERT_NE(first.back(), kNone);
        oracle.emplace_back(size);
        capacity += size;
    }
    std::vector<Taken> taken;
    uint64_t used = 0, epoch = 0;
    int failures = 0;
    for (int step = 0; step < mix.operations; step++) {
        // Swings between growing and shrinking, so that both a full and a nearly empty allocator are met.
        const bool growing = (step / 5000) % 2 == 0;
        if (taken.empty() || random() % 10 < (growing ? 6u : 4u)) {
            uint64_t size = 1 + random() % (random() % 4 == 0 ? mix.largest_request : mix.largest_request / 16 + 1);
            const uint64_t rounded = (size + mix.alignment - 1) / mix.alignment * mix.alignment;
            const uint32_t id = ranges.allocate(size);
            if (id == kNone) {
                failures++;
                // Only a range of the request's own class may have been passed over.
                uint64_t largest = 0;
                for (const OracleBlock &b : oracle) largest = std::max(largest, b.largest());
                ASSERT_LT(largest, rounded + rounded / 16 + mix.alignment);
                continue;
            }
            const uint32_t block = ranges.block(id) - 100;
            ASSERT_LT(block, mix.blocks);
            ASSERT_EQ(ranges.size(id), rounded);
            ASSERT_TRUE(oracle[block].take(ranges.offset(id), rounded));
            ASSERT_EQ(ranges.last_use(id), oracle[block].spans[ranges.offset(id)].last_use);
            ASSERT_TRUE(ranges.is_used(id));
            used += rounded;
            taken.push_back({id, block, ranges.offset(id), rounded});
            if (random() % 2 == 0) {
                epoch += random() % 3;
                const uint64_t used_in = epoch - random() % (epoch + 1) / 2;
                ranges.touch(id, used_in);
                Span &s = oracle[block].spans[ranges.offset(id)];
                s.last_use = std::max(s.last_use, used_in);
            }
        } else {
            const size_t i = random() % taken.size();
            const Taken t = taken[i];
            taken[i] = taken.back();
            taken.pop_back();
            ASSERT_EQ(ranges.offset(t.id), t.offset);
            ASSERT_EQ(ranges.size(t.id), t.size);
            const uint64_t joined_at = oracle[t.block].give(t.offset);
            const uint32_t joined = ranges.free(t.id);
            ASSERT_NE(joined, kNone);
            const Span &s = oracle[t.block].spans[joined_at];
            ASSERT_EQ(ranges.offset(joined), joined_at);
            ASSERT_EQ(ranges.size(joined), s.size);
            ASSERT_EQ(ranges.last_use(joined), s.last_use);
            ASSERT_EQ(ranges.block(joined), t.block + 100);
            used -= t.size;
            ASSERT_EQ(ranges.block_is_free(first[t.block]), oracle[t.block].is_free());
        }
        ASSERT_EQ(ranges.used_bytes(), used);
        ASSERT_EQ(ranges.free_bytes(), capacity - used);
        if (step % mix.check_every == 0) {
            ASSERT_TRUE(ranges.check()) << "step " << step;
            uint64_t largest = 0;
            for (const OracleBlock &b : oracle) largest = std::max(largest, b.largest());
            ASSERT_EQ(ranges.largest_free(), largest);
        }
    }
    EXPECT_GT(failures, 0) << "the blocks were never full";
    std::shuffle(taken.begin(), taken.end(), random);
    for (const Taken &t : taken) ASSERT_NE(ranges.free(t.id), kNone);
    ASSERT_TRUE(ranges.check());
    ASSERT_EQ(ranges.free_bytes(), capacity);
    ASSERT_EQ(ranges.largest_free(), mix.block_size);
    for (uint32_t b = 0; b < mix.blocks; b++) {
        ASSERT_TRUE(ranges.block_is_free(first[b]));
        ASSERT_EQ(ranges.size(first[b]), oracle[b].size);
        ASSERT_TRUE(ranges.remove_block(first[b]));
    }
    ASSERT_EQ(ranges.free_bytes(), 0u);
    ASSERT_EQ(ranges.largest_free(), 0u);
    ASSERT_EQ(ranges.allocate(1), kNone);
    ASSERT_TRUE(ranges.check());
    ranges.release();
}

}  // namespace

TEST(Ranges, MillionOperationsMatchTheOracle) { compare_with_oracle({64, 64 << 20, 4 << 20, 4, 1000000, 5000}, 1); }

TEST(Ranges, SmallBlocksOfFewUnitsMatchTheOracle) {
    // Every class up to 4096 units is met, and ranges join all the time.
    compare_with_oracle({1, 4096, 300, 3, 100000, 100}, 2);
    compare_with_oracle({256, 256 * 100, 256 * 40, 5, 100000, 100}, 3);
}

TEST(Ranges, BlocksBeyondFourGigabytesMatchTheOracle) {
    compare_with_oracle({256, 48ull << 30, 9ull << 30, 3, 100000, 100}, 4);
    compare_with_oracle({16, 1ull << 61, 1ull << 60, 2, 20000, 100}, 5);
}

TEST(Ranges, RoundsSizesAndBlocksToTheAlignment) {
    Ranges ranges;
    ranges.init(256);
    EXPECT_EQ(ranges.alignment(), 256u);
    EXPECT_EQ(ranges.add_block(0, 255), kNone);
    const uint32_t first = ranges.add_block(0, 1023);
    ASSERT_NE(first, kNone);
    EXPECT_EQ(ranges.free_bytes(), 768u);
    EXPECT_EQ(ranges.allocate(0), kNone);
    EXPECT_EQ(ranges.allocate(769), kNone);
    EXPECT_EQ(ranges.allocate(UINT64_MAX), kNone);
    const uint32_t a = ranges.allocate(1);
    EXPECT_EQ(ranges.size(a), 256u);
    const uint32_t b = ranges.allocate(512);
    EXPECT_EQ(ranges.offset(b), 256u);
    EXPECT_EQ(ranges.free_bytes(), 0u);
    EXPECT_EQ(ranges.largest_free(), 0u);
    ranges.release();
}

TEST(Ranges, TheIdOfABlocksFirstRangeNeverChanges) {
    Ranges ranges;
    ranges.init(16);
    const uint32_t first = ranges.add_block(7, 1024);
    EXPECT_TRUE(ranges.block_is_free(first));
    const uint32_t a = ranges.allocate(100), b = ranges.allocate(100), c = ranges.allocate(100);
    EXPECT_EQ(ranges.offset(first), 0u);
    EXPECT_FALSE(ranges.block_is_free(first));
    EXPECT_FALSE(ranges.remove_block(first));
    ranges.touch(b, 42);
    ranges.free(a);
    ranges.free(c);
    EXPECT_FALSE(ranges.block_is_free(first));
    EXPECT_EQ(ranges.free(b), first);
    EXPECT_TRUE(ranges.block_is_free(first));
    EXPECT_EQ(ranges.last_use(first), 42u);
    EXPECT_EQ(ranges.block(first), 7u);
    EXPECT_TRUE(ranges.remove_block(first));
    EXPECT_FALSE(ranges.remove_block(first));
    ranges.release();
}

TEST(Ranges, FreeingTwiceOrNothingChangesNothing) {
    Ranges ranges;
    ranges.init(16);
    ASSERT_NE(ranges.add_block(0, 1024), kNone);
    const uint32_t a = ranges.allocate(16), b = ranges.allocate(16);
    EXPECT_NE(ranges.free(a), kNone);
    EXPECT_EQ(ranges.free(a), kNone);
    EXPECT_EQ(ranges.free(kNone), kNone);
    EXPECT_EQ(ranges.free(12345), kNone);
    EXPECT_EQ(ranges.used_bytes(), 16u);
    EXPECT_TRUE(ranges.check());
    EXPECT_NE(ranges.free(b), kNone);
    ranges.release();
}

TEST(Ranges, ASplitCopiesTheLastUseAndAJoinTakesTheLarger) {
    Ranges ranges;
    ranges.init(16);
    const uint32_t first = ranges.add_block(0, 64);
    uint32_t a = ranges.allocate(64);
    ranges.touch(a, 9);
    ranges.touch(a, 3);
    EXPECT_EQ(ranges.last_use(a), 9u);
    ranges.free(a);
    a = ranges.allocate(16);
    const uint32_t b = ranges.allocate(16);
    EXPECT_EQ(ranges.last_use(a), 9u);
    EXPECT_EQ(ranges.last_use(b), 9u);
    ranges.touch(b, 12);
    ranges.free(b);
    EXPECT_EQ(ranges.last_use(a), 9u);
    ranges.free(a);
    EXPECT_EQ(ranges.last_use(first), 12u);
    ranges.release();
}

TEST(Ranges, TheRangeFreedLastIsTakenAgain) {
    Ranges ranges;
    ranges.init(64);
    ASSERT_NE(ranges.add_block(0, 1 << 20), kNone);
    std::vector<uint32_t> ids;
    for (int i = 0; i < 64; i++) ids.push_back(ranges.allocate(1000 + 64 * (i % 7)));
    for (int i = 1; i < 63; i += 2) {
        const uint64_t offset = ranges.offset(ids[i]);
        ranges.free(ids[i]);
        ids[i] = ranges.allocate(1000 + 64 * (i % 7));
        EXPECT_EQ(ranges.offset(ids[i]), offset);
    }
    ranges.release();
}

TEST(Ranges, LackOfHostMemoryChangesNothing) {
    Ranges ranges;
    ranges.init(16);
    memory_is_out = true;
    EXPECT_EQ(ranges.add_block(0, 1024), kNone);
    memory_is_out = false;
    const uint32_t first = ranges.add_block(0, 1 << 20);
    ASSERT_NE(first, kNone);
    memory_is_out = true;
    std::vector<uint32_t> ids;
    for (uint32_t id; (id = ranges.allocate(16)) != kNone;) ids.push_back(id);
    EXPECT_LT(ids.size(), 100u);  // the pool's first memory was used up
    EXPECT_TRUE(ranges.check());
    EXPECT_EQ(ranges.used_bytes(), ids.size() * 16);
    EXPECT_EQ(ranges.free_bytes(), (1u << 20) - ids.size() * 16);
    // What needs no further range still works: all that is left, to the byte.
    const uint32_t rest = ranges.allocate(ranges.free_bytes());
    EXPECT_NE(rest, kNone);
    EXPECT_NE(ranges.free(rest), kNone);
    for (uint32_t id : ids) EXPECT_NE(ranges.free(id), kNone);
    EXPECT_TRUE(ranges.block_is_free(first));
    EXPECT_TRUE(ranges.check());
    memory_is_out = false;
    ranges.release();
}

TEST(Ranges, SteadyStateAllocatesNoHostMemory) {
    Ranges ranges;
    ranges.init(64);
    ASSERT_NE(ranges.add_block(0, 1 << 20), kNone);
    std::vector<uint32_t> ids;
    for (int i = 0; i < 100; i++) ids.push_back(ranges.allocate(64));
    const int before = allocations;
    for (int round = 0; round < 1000; round++) {
        for (uint32_t &id : ids) ranges.free(id);
        for (uint32_t &id : ids) id = ranges.allocate(64 + round % 5 * 64);
    }
    EXPECT_EQ(allocations, before);
    ranges.release();
    ranges.init(32);  // and it may begin anew
    EXPECT_NE(ranges.add_block(0, 64), kNone);
    EXPECT_TRUE(ranges.check());
    ranges.release();
}
