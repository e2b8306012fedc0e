// The tools every header stands on: arithmetic against 128-bit numbers, text that must not run over, the first failure
// winning, and an array that survives a lack of memory.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

static int allocations = 0;
static bool memory_is_out = false;
static void *counted_malloc(size_t bytes) {
    if (memory_is_out) return nullptr;
    allocations++;
    return malloc(bytes);
}
static void counted_free(void *pointer) {
    allocations--;
    free(pointer);
}
#define HALIDE_VULKAN_MALLOC(bytes) counted_malloc(bytes)
#define HALIDE_VULKAN_FREE(pointer) counted_free(pointer)
#include "vulkan_base.h"

using namespace halide_vulkan;

TEST(Arithmetic, AlignmentMatchesDivision) {
    for (uint64_t alignment : {1ull, 2ull, 16ull, 64ull, 256ull, 1ull << 20}) {
        for (uint64_t value : {0ull, 1ull, 15ull, 16ull, 17ull, 255ull, 257ull, (1ull << 20) - 1, (1ull << 40) + 3}) {
            EXPECT_EQ(align_down(value, alignment), value / alignment * alignment);
            EXPECT_EQ(align_up(value, alignment), (value + alignment - 1) / alignment * alignment);
        }
    }
}

TEST(Arithmetic, PowersAndBits) {
    EXPECT_FALSE(is_power_of_two(0));
    EXPECT_FALSE(is_power_of_two(12));
    for (int bit = 0; bit < 64; bit++) {
        const uint64_t value = 1ull << bit;
        EXPECT_TRUE(is_power_of_two(value));
        EXPECT_EQ(lowest_bit(value), bit);
        EXPECT_EQ(highest_bit(value), bit);
        EXPECT_EQ(lowest_bit(value | 1ull << 63), bit);
        EXPECT_EQ(highest_bit(value | 1), bit);
    }
}

TEST(Arithmetic, CheckedMulMatches128Bit) {
    std::mt19937_64 random(1);
    std::vector<int64_t> values = {0, 1, 2, INT64_MAX, INT64_MIN, INT64_MAX - 1, 1ll << 31, 1ll << 32, 3037000500};
    for (size_t i = 0, count = values.size(); i < count; i++) values.push_back(values[i] == INT64_MIN ? 7 : -values[i]);
    for (int i = 0; i < 300; i++) values.push_back((int64_t)random() >> (random() % 64));
    for (int64_t a : values) {
        for (int64_t b : values) {
            const __int128 exact = (__int128)a * b;
            int64_t result = 77;
            if (checked_mul(a, b, &result)) {
                ASSERT_EQ((__int128)result, exact) << a << " * " << b;
            } else {
                ASSERT_EQ(result, 77) << a << " * " << b;
                // It may also refuse the one product that only a negative number holds, -2^63.
                ASSERT_TRUE(exact > INT64_MAX || exact <= INT64_MIN) << a << " * " << b;
            }
        }
    }
}

TEST(Arithmetic, CheckedAddRefusesOnlyOverflow) {
    int64_t s = 5;
    EXPECT_TRUE(checked_add<int64_t>(INT64_MAX, INT64_MIN, &s));
    EXPECT_EQ(s, -1);
    EXPECT_FALSE(checked_add<int64_t>(INT64_MAX, 1, &s));
    EXPECT_FALSE(checked_add<int64_t>(INT64_MIN, -1, &s));
    EXPECT_EQ(s, -1);
    uint64_t u = 5;
    EXPECT_FALSE(checked_add<uint64_t>(UINT64_MAX, 1, &u));
    EXPECT_EQ(u, 5u);
    EXPECT_TRUE(checked_add<uint64_t>(UINT64_MAX - 1, 1, &u));
    EXPECT_EQ(u, UINT64_MAX);
}

TEST(Words, CompareAndMeasure) {
    EXPECT_TRUE(same_text("", ""));
    EXPECT_TRUE(same_text("auto", "auto"));
    EXPECT_FALSE(same_text("auto", "aut"));
    EXPECT_FALSE(same_text("aut", "auto"));
    EXPECT_EQ(text_length(""), 0u);
    EXPECT_EQ(text_length("fence"), 5u);
}

template<typename T>
static std::string written(T value) {
    char line[64];
    Text(line, sizeof(line)) << value;
    return line;
}

TEST(TextWriter, NumbersMatchTheLibrary) {
    std::mt19937_64 random(2);
    for (int i = 0; i < 2000; i++) {
        const uint64_t v = random() >> (random() % 64);
        EXPECT_EQ(written(v), std::to_string(v));
        EXPECT_EQ(written((int64_t)v), std::to_string((int64_t)v));
        EXPECT_EQ(written((int32_t)v), std::to_string((int32_t)v));
        EXPECT_EQ(written((uint32_t)v), std::to_string((uint32_t)v));
        char ours[32], theirs[32];
        Text(ours, sizeof(ours)).hex(v);
        snprintf(theirs, sizeof(theirs), "0x%llx", (unsigned long long)v);
        EXPECT_STREQ(ours, theirs);
    }
    EXPECT_EQ(written(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
    EXPECT_EQ(written((uint64_t)0), "0");
    EXPECT_EQ(written((const char *)nullptr), "(null)");
}

TEST(TextWriter, NeverWritesPastItsEnd) {
    for (size_t capacity = 1; capacity < 40; capacity++) {
        char line[64];
        memset(line, 'x', sizeof(line));
        Text text(line, capacity);
        text << "offset " << (uint64_t)123456789012 << " of " << (int64_t)-5;
        text.hex(0xabcdef);
        const std::string whole = "offset 123456789012 of -50xabcdef";
        EXPECT_EQ(std::string(line), whole.substr(0, capacity - 1));
        for (size_t i = capacity; i < sizeof(line); i++) ASSERT_EQ(line[i], 'x') << capacity;
    }
}

TEST(Text, QuotesWhatFitsAndSaysThatThereIsMore) {
    auto quoted = [](const std::string &s, size_t most) {
        char line[200];
        Text(line, sizeof(line)).quote(s.c_str(), most) << "|";
        return std::string(line);
    };
    EXPECT_EQ(quoted("", 5), "''|");
    EXPECT_EQ(quoted("12345", 5), "'12345'|");
    EXPECT_EQ(quoted("123456", 5), "'12345...'|");
    EXPECT_EQ(quoted(std::string(5000, '7'), kQuotedBytes), "'" + std::string(kQuotedBytes, '7') + "...'|");
    // Characters of two and three bytes are not cut.
    for (const std::string &one : {std::string("\u00e4"), std::string("\u20ac")}) {
        for (size_t most = 0; most < 12; most++) {
            std::string whole;
            while (whole.size() + one.size() <= most) whole += one;
            const std::string all = one + one + one + one + one + one;
            EXPECT_EQ(quoted(all, most), all.size() <= most ? "'" + all + "'|" : "'" + whole + "...'|") << most;
        }
    }
    // Never past the end.
    for (size_t capacity = 1; capacity < 12; capacity++) {
        char line[16];
        memset(line, 'x', sizeof(line));
        Text(line, capacity).quote("123456", 5);
        EXPECT_EQ(std::string(line), std::string("'12345...'").substr(0, capacity - 1));
        EXPECT_EQ(line[capacity], 'x');
    }
}

TEST(FailureRecord, WithinAnotherItsOriginIsNotRepeated) {
    EXPECT_STREQ(without_origin("Vulkan: vkQueueSubmit failed"), "vkQueueSubmit failed");
    EXPECT_STREQ(without_origin("Vulkan: "), "");
    for (const char *other : {"", "V", "Vulkan", "Vulkan:", "Vulkan is", "vulkan: "})
        EXPECT_STREQ(without_origin(other), other);
}

TEST(FailureRecord, KeepsTheFirstCause) {
    Failure f;
    EXPECT_FALSE(f.failed());
    f.because(kOutOfMemory) << "asked for " << (uint64_t)12;
    f.because(kGenericError) << "a consequence that is longer than the scratch line";
    EXPECT_TRUE(f.failed());
    EXPECT_EQ(f.code, kOutOfMemory);
    EXPECT_STREQ(f.message, "asked for 12");
}

TEST(FailureRecord, CutsWhatDoesNotFit) {
    Failure f;
    Text text = f.because(kGenericError);
    for (int i = 0; i < 200; i++) text << "0123456789";
    EXPECT_EQ(strlen(f.message), sizeof(f.message) - 1);
}

TEST(GrowableArray, MatchesVector) {
    ASSERT_EQ(allocations, 0);
    std::mt19937_64 random(3);
    Array<uint64_t> array;
    std::vector<uint64_t> oracle;
    for (int step = 0; step < 20000; step++) {
        switch (random() % 8) {
        case 0:
            if (!oracle.empty()) {
                array.pop();
                oracle.pop_back();
            }
            break;
        case 1:
            if (!oracle.empty()) {
                const size_t i = random() % oracle.size();
                array.remove_swapping_last(i);
                oracle[i] = oracle.back();
                oracle.pop_back();
            }
            break;
        case 2:
            if (random() % 64 == 0) {
                const size_t size = random() % 500;
                ASSERT_TRUE(array.resize(size));
                oracle.resize(size);
            }
            break;
        case 3:
            if (!oracle.empty()) {
                // The pushed item lives in the array that may move.
                ASSERT_TRUE(array.push(array[0]));
                oracle.push_back(oracle[0]);
            }
            break;
        default: {
            const uint64_t v = random();
            ASSERT_TRUE(array.push(v));
            oracle.push_back(v);
        }
        }
        ASSERT_EQ(array.size(), oracle.size());
        ASSERT_EQ(array.empty(), oracle.empty());
    }
    ASSERT_EQ(std::vector<uint64_t>(array.begin(), array.end()), oracle);
    array.release();
    EXPECT_EQ(allocations, 0);
    EXPECT_EQ(array.size(), 0u);
}

TEST(GrowableArray, LackOfMemoryChangesNothing) {
    Array<int> array;
    for (int i = 0; i < 8; i++) ASSERT_TRUE(array.push(i));
    memory_is_out = true;
    EXPECT_FALSE(array.push(8));
    EXPECT_FALSE(array.resize(100));
    EXPECT_FALSE(array.reserve(9));
    memory_is_out = false;
    ASSERT_EQ(array.size(), 8u);
    for (int i = 0; i < 8; i++) EXPECT_EQ(array[i], i);
    EXPECT_TRUE(array.push(8));
    EXPECT_EQ(array.back(), 8);
    array.release();
}

TEST(GrowableArray, ClearKeepsItsMemory) {
    Array<int> array;
    ASSERT_TRUE(array.resize(100));
    array.clear();
    memory_is_out = true;
    for (int i = 0; i < 100; i++) EXPECT_TRUE(array.push(i));
    memory_is_out = false;
    array.release();
    EXPECT_EQ(allocations, 0);
}
