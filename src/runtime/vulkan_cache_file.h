// vulkan_cache_file.h: the file of compiled pipelines, its layout, and what a reader may believe. [pure]
//
// Problem: what vkCreatePipelineCache is given goes to a driver, and drivers are known to crash on bytes that are not
// their own. Files get torn by full disks and killed processes, copied from other machines, and outlive the driver that
// wrote them. So nothing reaches the driver that is not, byte for byte, what this driver once gave out:
//
//   header, 128 bytes, little-endian          then the driver's bytes
//     0  magic            8                     0  headerSize      4   VkPipelineCacheHeaderVersionOne,
//     8  format version   4                     4  headerVersion   4   checked as well
//    12  header bytes     4                     8  vendorID        4
//    16  data bytes       8                    12  deviceID        4
//    24  data checksum    8                    16  cache UUID     16
//    32  vendor, device   4 + 4
//    40  driver version   4
//    44  pointer bytes    4
//    48  cache UUID      16
//    64  driver UUID     16
//    80  zeros           40
//   120  header checksum  8
//
// The name of the file is made from the same key, so that two devices, or a driver and its successor, do not take turns
// in throwing out each other's files. Which of several devices of one model it was is not in the key: the driver takes
// the bytes of any, and a file made on one machine shall serve another of its kind. Reading is a function from bytes to
// a verdict; vulkan_cache.h does what must be done with a real disk.
//
// The checksum finds accidents. It is no signature: who can write into the folder can feed the driver, which is why the
// folder is for the user to name and why files are made readable for the user alone.

#ifndef HALIDE_VULKAN_CACHE_FILE_H
#define HALIDE_VULKAN_CACHE_FILE_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

constexpr uint32_t kCacheFormat = 1;          // of our header; another number is another file's business
constexpr size_t kCacheHeaderBytes = 128;     // ours, in front of the driver's bytes
constexpr size_t kDriverHeaderBytes = 32;     // VkPipelineCacheHeaderVersionOne
constexpr uint32_t kDriverHeaderVersion = 1;  // VK_PIPELINE_CACHE_HEADER_VERSION_ONE
// The line ends are changed by whatever takes the file for text; the zero byte stops what takes it for a string.
constexpr uint8_t kCacheMagic[8] = {'H', 'V', 'K', 'P', '\r', '\n', 0x1a, 0};

// What a driver's bytes are good for: this driver, on this device, in a process of this width.
struct CacheKey {
    uint32_t vendor, device, driver_version;
    uint32_t pointer_bytes;  // drivers have been seen to share one UUID between 32 and 64 bits
    uint8_t cache_uuid[16];
    uint8_t driver_uuid[16];  // zeros where the driver is too old to tell
};

enum class CacheVerdict {
    good,
    empty,          // no byte at all
    not_ours,       // another kind of file
    other_format,   // ours, of another version
    torn,           // shorter or longer than it says
    damaged,        // a checksum does not fit
    other_driver,   // of another device, driver or process width
    not_of_vulkan,  // whole, but without the header that Vulkan asks of a driver
};

inline const char *verdict_text(CacheVerdict verdict) {
    switch (verdict) {
    case CacheVerdict::good: return "is good";
    case CacheVerdict::empty: return "is empty";
    case CacheVerdict::not_ours: return "is no pipeline cache of Halide";
    case CacheVerdict::other_format: return "has the format of another version";
    case CacheVerdict::torn: return "is torn";
    case CacheVerdict::damaged: return "is damaged: its checksum does not fit";
    case CacheVerdict::other_driver: return "is another driver's";
    case CacheVerdict::not_of_vulkan: return "does not hold what Vulkan calls a pipeline cache";
    }
    return "";
}

inline void put_u32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (8 * i));
}
inline void put_u64(uint8_t *to, uint64_t value) {
    for (int i = 0; i < 8; i++) to[i] = (uint8_t)(value >> (8 * i));
}
inline uint32_t get_u32(const uint8_t *from) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)from[i] << (8 * i);
    return value;
}
inline uint64_t get_u64(const uint8_t *from) { return (uint64_t)get_u32(from) | (uint64_t)get_u32(from + 4) << 32; }

// 64 bits over bytes, a word at a time. Each step can be undone, so a change within one word never goes unseen; others
// do once in 2^64. 64 MiB take some 20 ms.
inline uint64_t checksum_of(const uint8_t *bytes, size_t size) {
    uint64_t h = 0xcbf29ce484222325ull ^ size;
    for (; size >= 8; size -= 8, bytes += 8) {
        h = (h ^ get_u64(bytes)) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    for (; size > 0; size--, bytes++) {
        h = (h ^ *bytes) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    return h;
}

constexpr size_t kKeyAt = 32, kKeyBytes = 48, kHeaderSumAt = 120;

inline void put_key(uint8_t *to, const CacheKey &key) {
    put_u32(to, key.vendor);
    put_u32(to + 4, key.device);
    put_u32(to + 8, key.driver_version);
    put_u32(to + 12, key.pointer_bytes);
    __builtin_memcpy(to + 16, key.cache_uuid, 16);
    __builtin_memcpy(to + 32, key.driver_uuid, 16);
}

// Our header for these bytes of the driver, kCacheHeaderBytes long.
inline void write_cache_header(const CacheKey &key, const uint8_t *data, size_t size, uint8_t *header) {
    __builtin_memset(header, 0, kCacheHeaderBytes);
    __builtin_memcpy(header, kCacheMagic, sizeof(kCacheMagic));
    put_u32(header + 8, kCacheFormat);
    put_u32(header + 12, (uint32_t)kCacheHeaderBytes);
    put_u64(header + 16, size);
    put_u64(header + 24, checksum_of(data, size));
    put_key(header + kKeyAt, key);
    put_u64(header + kHeaderSumAt, checksum_of(header, kHeaderSumAt));
}

// Whether these are bytes that Vulkan says a driver will look at: with a header of the first version, of this device.
inline bool is_driver_cache(const CacheKey &key, const uint8_t *data, size_t size) {
    return size >= kDriverHeaderBytes && get_u32(data) >= kDriverHeaderBytes && get_u32(data) <= size &&
           get_u32(data + 4) == kDriverHeaderVersion && get_u32(data + 8) == key.vendor &&
           get_u32(data + 12) == key.device && __builtin_memcmp(data + 16, key.cache_uuid, 16) == 0;
}

// The driver's bytes within a file.
struct CacheContent {
    const uint8_t *data;
    size_t size;
    uint64_t checksum;
};

// Reads a whole file. `out` is set only for a good one, and points into `file`.
inline CacheVerdict read_cache_file(const CacheKey &key, const uint8_t *file, size_t size, CacheContent &out) {
    if (size == 0) return CacheVerdict::empty;
    if (__builtin_memcmp(file, kCacheMagic, min_of(size, sizeof(kCacheMagic))) != 0) return CacheVerdict::not_ours;
    if (size < 12) return CacheVerdict::torn;
    if (get_u32(file + 8) != kCacheFormat) return CacheVerdict::other_format;
    if (size < kCacheHeaderBytes) return CacheVerdict::torn;
    if (get_u64(file + kHeaderSumAt) != checksum_of(file, kHeaderSumAt)) return CacheVerdict::damaged;
    // From here on the header is as it was written.
    if (get_u32(file + 12) != kCacheHeaderBytes) return CacheVerdict::other_format;
    uint8_t wanted[kKeyBytes];
    put_key(wanted, key);
    if (__builtin_memcmp(file + kKeyAt, wanted, kKeyBytes) != 0) return CacheVerdict::other_driver;
    if (get_u64(file + 16) != size - kCacheHeaderBytes) return CacheVerdict::torn;
    const uint8_t *data = file + kCacheHeaderBytes;
    const uint64_t sum = checksum_of(data, size - kCacheHeaderBytes);
    if (get_u64(file + 24) != sum) return CacheVerdict::damaged;
    if (!is_driver_cache(key, data, size - kCacheHeaderBytes)) return CacheVerdict::not_of_vulkan;
    out = {data, size - kCacheHeaderBytes, sum};
    return CacheVerdict::good;
}

// "FOLDER/halide-vulkan-0123456789abcdef.cache". False when it does not fit, with room for an ending that mkstemp fills
// in: a name that is cut would be another file's.
constexpr const char *kTemporaryEnding = ".XXXXXX";
inline bool name_cache_file(const char *folder, const CacheKey &key, char *path, size_t capacity) {
    constexpr size_t kNameBytes = 64;  // more than what is added
    const size_t length = text_length(folder);
    if (length == 0 || length + kNameBytes > capacity) return false;
    uint8_t bytes[kKeyBytes];
    put_key(bytes, key);
    const uint64_t sum = checksum_of(bytes, kKeyBytes);
    char digits[17];
    for (int i = 0; i < 16; i++) digits[i] = "0123456789abcdef"[sum >> (60 - 4 * i) & 15];
    digits[16] = 0;
    const char *slash = folder[length - 1] == '/' ? "" : "/";
    Text(path, capacity) << folder << slash << "halide-vulkan-" << digits << ".cache";
    return true;
}

// When to write, apart from the end of the device: what a process that is killed has compiled shall not all be lost,
// and a process that compiles fifty kernels in a row shall write once. So after a quiet time, and at the latest some
// time after the first pipeline that the file lacks.
constexpr uint32_t kCacheQuiet_ms = 2000;    // kernels of one program follow each other within less
constexpr uint32_t kCacheLatest_ms = 30000;  // what a crash costs at most: half a minute of compiling
class SavePolicy {
public:
    // Called every so often; `made`: pipelines made so far, `saved`: of them, those known to be on disk.
    bool should_save(uint32_t made, uint32_t saved, uint32_t elapsed_ms) {
        if (made == saved) {
            quiet_ms = waited_ms = 0;
            seen = made;
            return false;
        }
        waited_ms += elapsed_ms;
        quiet_ms = made == seen ? quiet_ms + elapsed_ms : 0;
        seen = made;
        if (quiet_ms < kCacheQuiet_ms && waited_ms < kCacheLatest_ms) return false;
        quiet_ms = waited_ms = 0;
        return true;
    }

private:
    uint32_t seen = 0, quiet_ms = 0, waited_ms = 0;
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_CACHE_FILE_H
