// vulkan_cache_file.h: what is read back is what was written, and nothing else is believed.

#include "vulkan_cache_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace halide_vulkan;

namespace {

using Bytes = std::vector<uint8_t>;

CacheKey key() {
    CacheKey k = {0x10de, 0x2335, 0x91270100, 8, {}, {}};
    for (int i = 0; i < 16; i++) k.cache_uuid[i] = uint8_t(100 + i), k.driver_uuid[i] = uint8_t(200 + i);
    return k;
}

// What a driver might give out: Vulkan's header, then bytes of its own.
Bytes driver_data(const CacheKey &k, size_t size) {
    Bytes data(size);
    std::mt19937 random(42);
    for (uint8_t &byte : data) byte = uint8_t(random());
    put_u32(data.data(), kDriverHeaderBytes);
    put_u32(data.data() + 4, kDriverHeaderVersion);
    put_u32(data.data() + 8, k.vendor);
    put_u32(data.data() + 12, k.device);
    memcpy(data.data() + 16, k.cache_uuid, 16);
    return data;
}

Bytes file_of(const CacheKey &k, const Bytes &data) {
    Bytes file(kCacheHeaderBytes);
    write_cache_header(k, data.data(), data.size(), file.data());
    file.insert(file.end(), data.begin(), data.end());
    return file;
}

// The bytes live in memory of exactly their size, so that a sanitizer sees a read behind them.
CacheVerdict read(const CacheKey &k, const Bytes &file, Bytes *data = nullptr) {
    std::unique_ptr<uint8_t[]> exact(new uint8_t[file.size()]);
    if (!file.empty()) memcpy(exact.get(), file.data(), file.size());
    CacheContent content = {nullptr, 0, 0};
    const CacheVerdict verdict = read_cache_file(k, exact.get(), file.size(), content);
    EXPECT_EQ(verdict == CacheVerdict::good, content.data != nullptr);
    if (data && content.data) data->assign(content.data, content.data + content.size);
    return verdict;
}

// Changes the header and makes its checksum fit again: what only a writer of ours can do.
Bytes forged(Bytes file, size_t at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) file[at + i] = uint8_t(value >> (8 * i));
    put_u64(file.data() + kHeaderSumAt, checksum_of(file.data(), kHeaderSumAt));
    return file;
}

}  // namespace

TEST(CacheFile, RoundTrip) {
    for (size_t size : {32, 33, 39, 40, 41, 1000, 100000}) {
        const Bytes data = driver_data(key(), size);
        Bytes back;
        ASSERT_EQ(read(key(), file_of(key(), data), &back), CacheVerdict::good) << size;
        EXPECT_EQ(back, data);
    }
}

// The layout is a promise to files that are already on disks. The two sums were computed by another program.
TEST(CacheFile, TheLayoutStays) {
    Bytes data = driver_data(key(), 43);
    for (size_t i = 32; i < data.size(); i++) data[i] = uint8_t(i - 32);
    const Bytes file = file_of(key(), data);
    const uint8_t begin[] = {'H', 'V', 'K', 'P', 13, 10, 26, 0, 1, 0, 0, 0, 128, 0, 0, 0, 43, 0, 0, 0, 0, 0, 0, 0};
    EXPECT_EQ(memcmp(file.data(), begin, sizeof(begin)), 0);
    const uint8_t driver[] = {0xde, 0x10, 0, 0, 0x35, 0x23, 0, 0, 0, 1, 0x27, 0x91, 8, 0, 0, 0, 100, 101};
    EXPECT_EQ(memcmp(file.data() + 32, driver, sizeof(driver)), 0);
    EXPECT_EQ(file[64], 200);
    EXPECT_EQ(get_u64(file.data() + 24), 0x15007b95e2c739feull);
    EXPECT_EQ(get_u64(file.data() + 120), 0xa583adbf7697425bull);
}

TEST(CacheFile, CutAnywhere) {
    const Bytes whole = file_of(key(), driver_data(key(), 100));
    for (size_t size = 0; size < whole.size(); size++) {
        const CacheVerdict verdict = read(key(), Bytes(whole.begin(), whole.begin() + size));
        EXPECT_EQ(verdict, size ? CacheVerdict::torn : CacheVerdict::empty) << size;
    }
    Bytes longer = whole;
    longer.push_back(0);
    EXPECT_EQ(read(key(), longer), CacheVerdict::torn);
    longer.insert(longer.end(), whole.begin(), whole.end());
    EXPECT_EQ(read(key(), longer), CacheVerdict::torn) << "two files in one";
}

TEST(CacheFile, AnyBitFlipped) {
    const Bytes whole = file_of(key(), driver_data(key(), 100));
    for (size_t bit = 0; bit < whole.size() * 8; bit++) {
        Bytes file = whole;
        file[bit / 8] ^= uint8_t(1 << bit % 8);
        const CacheVerdict verdict = read(key(), file);
        const size_t at = bit / 8;
        const CacheVerdict wanted = at < 8    ? CacheVerdict::not_ours
                                    : at < 12 ? CacheVerdict::other_format
                                              : CacheVerdict::damaged;
        EXPECT_EQ(verdict, wanted) << "bit " << bit;
    }
}

// What a disk does: a page of zeros, a page of the file before, two pages exchanged.
TEST(CacheFile, PagesLost) {
    const Bytes whole = file_of(key(), driver_data(key(), 5 * 4096));
    for (size_t page = 0; page < 5; page++) {
        Bytes file = whole;
        std::fill(file.begin() + page * 4096, file.begin() + (page + 1) * 4096, 0);
        EXPECT_EQ(read(key(), file), page ? CacheVerdict::damaged : CacheVerdict::not_ours);
        file = whole;
        std::copy(file.begin() + 4096, file.begin() + 8192, file.begin() + page * 4096);
        if (page != 1) {
            EXPECT_EQ(read(key(), file), page ? CacheVerdict::damaged : CacheVerdict::not_ours);
        }
        if (page < 2) continue;
        file = whole;
        std::swap_ranges(file.begin() + 4096, file.begin() + 8192, file.begin() + page * 4096);
        EXPECT_EQ(read(key(), file), CacheVerdict::damaged);
    }
}

TEST(CacheFile, AnotherDriver) {
    const Bytes file = file_of(key(), driver_data(key(), 100));
    const auto changed = [&](auto change) {
        CacheKey k = key();
        change(k);
        return read(k, file);
    };
    EXPECT_EQ(changed([](CacheKey &) {}), CacheVerdict::good);
    EXPECT_EQ(changed([](CacheKey &k) { k.vendor++; }), CacheVerdict::other_driver);
    EXPECT_EQ(changed([](CacheKey &k) { k.device++; }), CacheVerdict::other_driver);
    EXPECT_EQ(changed([](CacheKey &k) { k.driver_version++; }), CacheVerdict::other_driver);
    EXPECT_EQ(changed([](CacheKey &k) { k.pointer_bytes = 4; }), CacheVerdict::other_driver);
    for (int i = 0; i < 16; i++) {
        EXPECT_EQ(changed([&](CacheKey &k) { k.cache_uuid[i] ^= 1; }), CacheVerdict::other_driver);
        EXPECT_EQ(changed([&](CacheKey &k) { k.driver_uuid[i] ^= 1; }), CacheVerdict::other_driver);
    }
}

// A header that is whole, and wrong all the same.
TEST(CacheFile, HeadersOfOthers) {
    const Bytes file = file_of(key(), driver_data(key(), 100));
    EXPECT_EQ(read(key(), forged(file, 8, 2, 4)), CacheVerdict::other_format);
    EXPECT_EQ(read(key(), forged(file, 12, 136, 4)), CacheVerdict::other_format);
    for (uint64_t size : {0ull, 99ull, 101ull, 1ull << 32, ~0ull, ~0ull - 127})
        EXPECT_EQ(read(key(), forged(file, 16, size, 8)), CacheVerdict::torn) << size;
    EXPECT_EQ(read(key(), forged(file, 24, 0, 8)), CacheVerdict::damaged);
    EXPECT_EQ(read(key(), Bytes(100, 'x')), CacheVerdict::not_ours);
    EXPECT_EQ(read(key(), Bytes(5, 'H')), CacheVerdict::not_ours);
    EXPECT_EQ(read(key(), Bytes(100000, 0)), CacheVerdict::not_ours);
}

// Well kept, but not what Vulkan promises of a driver: such bytes are for no driver.
TEST(CacheFile, TheDriversHeaderIsChecked) {
    const auto verdict_for = [](Bytes data) { return read(key(), file_of(key(), data)); };
    const auto with = [](size_t at, uint32_t value) {
        Bytes data = driver_data(key(), 100);
        put_u32(data.data() + at, value);
        return data;
    };
    EXPECT_EQ(verdict_for(with(0, 32)), CacheVerdict::good);
    EXPECT_EQ(verdict_for(with(0, 100)), CacheVerdict::good) << "a driver's header may be longer";
    EXPECT_EQ(verdict_for(with(0, 101)), CacheVerdict::not_of_vulkan);
    EXPECT_EQ(verdict_for(with(0, 31)), CacheVerdict::not_of_vulkan);
    EXPECT_EQ(verdict_for(with(4, 2)), CacheVerdict::not_of_vulkan);
    EXPECT_EQ(verdict_for(with(8, 0x1002)), CacheVerdict::not_of_vulkan);
    EXPECT_EQ(verdict_for(with(12, 1)), CacheVerdict::not_of_vulkan);
    EXPECT_EQ(verdict_for(with(28, 1)), CacheVerdict::not_of_vulkan);
    for (size_t size = 0; size < 32; size++) {
        Bytes data = driver_data(key(), 32);
        data.resize(size);
        EXPECT_EQ(verdict_for(data), CacheVerdict::not_of_vulkan) << size;
    }
}

TEST(CacheFile, RandomBytes) {
    std::mt19937 random(7);
    const Bytes whole = file_of(key(), driver_data(key(), 300));
    for (int round = 0; round < 20000; round++) {
        Bytes file = whole;
        file.resize(random() % (whole.size() + 50));
        for (int i = 1 + random() % 20; i > 0 && !file.empty(); i--) file[random() % file.size()] = uint8_t(random());
        if (file == whole) continue;
        EXPECT_NE(read(key(), file), CacheVerdict::good);
    }
}

TEST(CacheFile, EachDriverHasAName) {
    char path[4096], other[4096];
    ASSERT_TRUE(name_cache_file("/some/folder", key(), path, sizeof(path)));
    EXPECT_EQ(std::string(path).substr(0, 27), "/some/folder/halide-vulkan-");
    EXPECT_EQ(strlen(path), 27 + 16 + strlen(".cache"));
    ASSERT_TRUE(name_cache_file("/some/folder/", key(), other, sizeof(other)));
    EXPECT_STREQ(path, other);
    CacheKey k = key();
    k.driver_version++;
    ASSERT_TRUE(name_cache_file("/some/folder", k, other, sizeof(other)));
    EXPECT_STRNE(path, other);
}

TEST(CacheFile, ANameIsNeverCut) {
    char path[200];
    int fitting = 0;
    for (size_t length = 1; length < 300; length++) {
        const std::string folder(length, 'f');
        if (!name_cache_file(folder.c_str(), key(), path, sizeof(path))) continue;
        fitting++;
        EXPECT_EQ(std::string(path).substr(0, length + 1), folder + "/");
        EXPECT_EQ(std::string(path).substr(strlen(path) - 6), ".cache");
        EXPECT_LT(strlen(path) + strlen(kTemporaryEnding), sizeof(path));
    }
    EXPECT_EQ(fitting, 200 - 64);
    EXPECT_FALSE(name_cache_file("", key(), path, sizeof(path)));
}

TEST(SavePolicy, WritesOnceAfterAQuietTime) {
    SavePolicy policy;
    uint32_t made = 0, saved = 0, writes = 0, at = 0;
    for (uint32_t ms = 0; ms < 20000; ms += 100) {
        if (ms < 5000 && ms % 500 == 0) made++;  // ten kernels in five seconds
        if (policy.should_save(made, saved, 100)) writes++, at = ms, saved = made;
    }
    EXPECT_EQ(writes, 1u);
    EXPECT_GE(at, 4500 + kCacheQuiet_ms - 100);
    EXPECT_LE(at, 4500 + kCacheQuiet_ms + 200);
}

TEST(SavePolicy, DoesNotWaitForEver) {
    SavePolicy policy;
    uint32_t made = 0, saved = 0, writes = 0;
    for (uint32_t ms = 0; ms < 10 * kCacheLatest_ms; ms += 100) {
        made++;
        if (policy.should_save(made, saved, 100)) writes++, saved = made;
    }
    EXPECT_GE(writes, 9u);
    EXPECT_LE(writes, 10u);
}

TEST(SavePolicy, ARefusedWriteIsNotTriedAgainUntilThereIsMore) {
    SavePolicy policy;
    uint32_t made = 1, tried = 0, writes = 0;
    for (uint32_t ms = 0; ms < 10000; ms += 100) {
        if (policy.should_save(made, tried, 100)) writes++, tried = made;  // the write failed, but was tried
    }
    EXPECT_EQ(writes, 1u);
    made++;
    for (uint32_t ms = 0; ms < 10000; ms += 100) {
        if (policy.should_save(made, tried, 100)) writes++, tried = made;
    }
    EXPECT_EQ(writes, 2u);
}
