// The reader of the pipeline cache's file beside an oracle: what is believed is, byte for byte, what was written for
// this driver. Nothing that is damaged, torn or another driver's ever comes out of it.
//
// An input that begins as our files do is such a file, read as it is; the mutator makes its checksums fit again now and
// then, without which nothing would get past them. Any other input is a program: it writes a file, then damages copies
// of it.

#include "fuzz.h"

#include <string.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "vulkan_base.h"

#include "vulkan_cache_file.h"

using namespace halide_vulkan;

namespace {

using Bytes = std::vector<uint8_t>;

constexpr CacheKey kOurs = {0x10de, 0x2335, 0x91270100, 8, {1, 2, 3, 4, 5}, {9, 8, 7}};

// The header, as the table in vulkan_cache_file.h has it. Little-endian, as is whoever runs this.
struct Header {
    uint8_t magic[8];
    uint32_t format, header_bytes;
    uint64_t data_bytes, data_sum;
    uint32_t vendor, device, driver_version, pointer_bytes;
    uint8_t cache_uuid[16], driver_uuid[16];
    uint8_t zeros[40];
    uint64_t header_sum;
};
static_assert(sizeof(Header) == 128 && offsetof(Header, header_sum) == 120, "the layout of the file");
struct DriverHeader {
    uint32_t bytes, version, vendor, device;
    uint8_t uuid[16];
};

bool oracle_believes(const CacheKey &key, const Bytes &file) {
    Header h;
    DriverHeader d;
    if (file.size() < sizeof(h) + sizeof(d)) return false;
    const uint8_t *data = file.data() + sizeof(h);
    const uint64_t size = file.size() - sizeof(h);
    memcpy(&h, file.data(), sizeof(h));
    memcpy(&d, data, sizeof(d));
    return memcmp(h.magic, "HVKP\r\n\x1a", 8) == 0 && h.format == 1 && h.header_bytes == 128 && h.data_bytes == size &&
           h.data_sum == checksum_of(data, (size_t)size) && h.header_sum == checksum_of(file.data(), 120) &&
           h.vendor == key.vendor && h.device == key.device && h.driver_version == key.driver_version &&
           h.pointer_bytes == key.pointer_bytes && memcmp(h.cache_uuid, key.cache_uuid, 16) == 0 &&
           memcmp(h.driver_uuid, key.driver_uuid, 16) == 0 && d.bytes >= 32 && d.bytes <= size && d.version == 1 &&
           d.vendor == key.vendor && d.device == key.device && memcmp(d.uuid, key.cache_uuid, 16) == 0;
}

// Reads a copy whose end is known to the address sanitizer, and which no word of is aligned.
CacheVerdict read(const CacheKey &key, const Bytes &file) {
    const std::unique_ptr<uint8_t, decltype(&free)> room((uint8_t *)malloc(file.size() + 1), &free);
    uint8_t *const exact = room.get() + 1;
    if (!file.empty()) memcpy(exact, file.data(), file.size());
    CacheContent content = {nullptr, 0, 0};
    const CacheVerdict verdict = read_cache_file(key, exact, file.size(), content);
    FUZZ_CHECK((verdict == CacheVerdict::good) == oracle_believes(key, file));
    FUZZ_CHECK(*verdict_text(verdict) != 0);
    if (verdict == CacheVerdict::good) {
        FUZZ_CHECK(content.data == exact + kCacheHeaderBytes && content.size == file.size() - kCacheHeaderBytes);
        FUZZ_CHECK(content.checksum == checksum_of(content.data, content.size));
    } else {
        FUZZ_CHECK(content.data == nullptr && content.size == 0);
    }
    return verdict;
}

void draw(Input &in, uint8_t *to, size_t size) {
    for (size_t i = 0; i < size; i++) to[i] = in.byte();
}

Bytes draw_driver_data(Input &in, const CacheKey &key) {
    Bytes data(sizeof(DriverHeader) + (size_t)in.below(600));
    DriverHeader d = {32, 1, key.vendor, key.device, {}};
    memcpy(d.uuid, key.cache_uuid, 16);
    memcpy(data.data(), &d, sizeof(d));
    draw(in, data.data() + sizeof(d), data.size() - sizeof(d));
    return data;
}
Bytes file_of(const CacheKey &key, const Bytes &data) {
    Bytes file(kCacheHeaderBytes);
    write_cache_header(key, data.data(), data.size(), file.data());
    file.insert(file.end(), data.begin(), data.end());
    return file;
}

// A key that differs in one place from this one.
CacheKey foreign(Input &in, CacheKey key) {
    const uint32_t change = 1u << in.below(32);
    switch (in.below(6)) {
    case 0: key.vendor ^= change; break;
    case 1: key.device ^= change; break;
    case 2: key.driver_version ^= change; break;
    case 3: key.pointer_bytes ^= change; break;
    case 4: key.cache_uuid[in.below(16)] ^= (uint8_t)(1 << in.below(8)); break;
    default: key.driver_uuid[in.below(16)] ^= (uint8_t)(1 << in.below(8));
    }
    return key;
}

std::string name_of(const CacheKey &key) {
    char name[256];
    FUZZ_CHECK(name_cache_file("/folder", key, name, sizeof(name)));
    return name;
}

void damage(Input &in, const CacheKey &key, const Bytes &good) {
    Bytes file = good;
    switch (in.below(6)) {
    case 0: file[(size_t)in.below(file.size())] ^= (uint8_t)(1 << in.below(8)); break;
    case 1: file.resize((size_t)in.below(file.size())); break;
    case 2: file.resize(file.size() + 1 + (size_t)in.below(300), in.byte()); break;
    case 3: {  // a page that never reached the disk
        const size_t from = (size_t)in.below(file.size()), n = 1 + (size_t)in.below(file.size() - from);
        memset(&file[from], in.byte(), n);
        break;
    }
    case 4: {  // the head of one file, the rest of another
        const Bytes other = file_of(key, draw_driver_data(in, key));
        const size_t from = (size_t)in.below(std::min(file.size(), other.size()));
        file.resize(from);
        file.insert(file.end(), other.begin() + (long)from, other.end());
        if (file == other) return;
        break;
    }
    default: {
        const CacheKey another = foreign(in, key);
        FUZZ_CHECK(read(another, good) == CacheVerdict::other_driver);
        FUZZ_CHECK(name_of(another) != name_of(key));
        return;
    }
    }
    if (file != good) FUZZ_CHECK(read(key, file) != CacheVerdict::good);
}

void run_program(Input &in) {
    CacheKey key = kOurs;
    key.driver_version = in.word();
    draw(in, key.cache_uuid, 16);
    const Bytes good = file_of(key, draw_driver_data(in, key));
    FUZZ_CHECK(read(key, good) == CacheVerdict::good);
    for (int n = 0; n < 64 && !in.empty(); n++) damage(in, key, good);

    // A name that does not fit whole, with room for mkstemp's ending, is no name.
    const std::string folder((size_t)in.below(300), 'f');
    char name[256];
    const size_t capacity = (size_t)in.below(sizeof(name) + 1);
    if (name_cache_file(folder.c_str(), key, name, capacity))
        FUZZ_CHECK(strlen(name) + strlen(kTemporaryEnding) < capacity &&
                   strncmp(name, folder.c_str(), folder.size()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size >= 4 && memcmp(data, kCacheMagic, 4) == 0) {
        read(kOurs, Bytes(data, data + size));
        return 0;
    }
    Input in(data, size);
    run_program(in);
    return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    std::minstd_rand random(seed);
    size = LLVMFuzzerMutate(data, size, most);
    if (size < kCacheHeaderBytes || memcmp(data, kCacheMagic, 4) != 0) return size;
    const size_t rest = size - kCacheHeaderBytes;
    if (random() % 2) put_u64(data + 16, rest);
    if (random() % 2) put_u64(data + 24, checksum_of(data + kCacheHeaderBytes, rest));
    if (random() % 4 == 0) put_key(data + kKeyAt, kOurs);
    if (random() % 4) put_u64(data + kHeaderSumAt, checksum_of(data, kHeaderSumAt));
    return size;
}
