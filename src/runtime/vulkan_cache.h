// vulkan_cache.h: the VkPipelineCache of a device, and its life on disk.
//
// Compiling a kernel costs 21 ms for the first and 9 for each later one on an H200, in every process anew. With
// HL_VK_PIPELINE_CACHE naming a folder, the device's cache begins with what an earlier process left there
// (vulkan_cache_file.h says what is believed) and is written back: when the device goes, and by a thread of ours after
// a quiet time (vulkan_cache_saver.h). A file is written beside its place, synced, and renamed over it, so a reader
// sees the old one or the new one whole. What another process wrote in between is merged in; of two that write at the
// same moment the later one stays, and the loser's kernels are compiled once more some day.
//
// None of this may cost a launch or be missed where it fails: a folder that is absent, read-only or full, a limit on
// file sizes, a damaged file each leave a note in the statistics (what, why and where), the first of them is printed
// too (in the debug flavour each), and the device goes on with its cache in memory. The functions of the C library are
// looked up by name; a system that lacks them (Windows, a static program) has no cache on disk.
//
// Ownership: the VkPipelineCache lives here, everybody else uses gpu.pipeline_cache. Thread rule: create and destroy
// are the owner's alone; note_pipeline and save may come from any thread, with no lock of the device held; Vulkan lets
// a cache be read and compiled into at the same time.

#ifndef HALIDE_VULKAN_CACHE_H
#define HALIDE_VULKAN_CACHE_H

#include "vulkan_cache_file.h"
#include "vulkan_gpu.h"
#include "vulkan_system_error.h"

namespace halide_vulkan {
namespace {

// The C library's functions for files. Their arguments are the same on every POSIX system, and so are the numbers used.
struct FileCalls {
    int (*open)(const char *path, int flags, ...);
    intptr_t (*read)(int file, void *to, size_t bytes);
    intptr_t (*write)(int file, const void *from, size_t bytes);
    int (*fsync)(int file);
    int (*close)(int file);
    int (*mkstemp)(char *name);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*access)(const char *path, int mode);
    char *(*realpath)(const char *path, char *resolved);
    int (*getrlimit)(int what, unsigned long *limits);  // may be null

    bool load() {
#ifdef WINDOWS
        return false;
#else
        return find(open, "open") && find(read, "read") && find(write, "write") && find(fsync, "fsync") &&
               find(close, "close") && find(mkstemp, "mkstemp") && find(rename, "rename") && find(unlink, "unlink") &&
               find(access, "access") && find(realpath, "realpath") && (find(getrlimit, "getrlimit") || true);
#endif
    }

private:
    template<typename F>
    static bool find(F &function, const char *name) {
        function = (F)halide_get_symbol(name);
        return function != nullptr;
    }
};
constexpr int kReadOnly = 0;       // O_RDONLY
constexpr int kExists = 0;         // F_OK
constexpr int kFileSizeLimit = 1;  // RLIMIT_FSIZE

// Bytes on the heap, behind room for our header.
struct CacheBytes {
    uint8_t *file;
    size_t size;  // of the driver's part

    const uint8_t *data() const { return file + kCacheHeaderBytes; }
    void release() {
        host_free(file);
        file = nullptr;
    }
};

constexpr size_t kCachePathBytes = 4096;  // what Linux allows

class PipelineCache {
public:
    // Guarded by `lock`, but for `made`.
    struct Counts {
        uint64_t made_ns;        // time in vkCreateComputePipelines and what goes with it
        uint64_t read_bytes;     // the driver's part of the file this device began with
        uint64_t written_bytes;  // of all files written
        uint64_t writes;
    };

    halide_mutex lock;  // of the counts, the note and the saver
    Counts counts;
    char note[256];  // what last went wrong with the file; empty: nothing did
    uint32_t made;   // pipelines made, from the file or anew; atomic
    // The thread that writes while the program runs.
    halide_cond wake;
    halide_thread *saver;
    bool stopping;
    bool printed;

    bool create(Gpu &gpu, const InstanceFunctions &vk, uint32_t version, Failure &failure);
    void destroy(Gpu &gpu) {
        if (gpu.pipeline_cache) gpu.vk.vkDestroyPipelineCache(gpu.device, gpu.pipeline_cache, gpu.callbacks);
        gpu.pipeline_cache = VK_NULL_HANDLE;
    }
    bool on_disk() const { return path[0] != 0; }

    // Writes what the file lacks, unless there is nothing, or a write failed and nothing was made since: `again` tries
    // once more then.
    void save(Gpu &gpu, bool again);
    // Pipelines that a save has looked at, successful or not.
    uint32_t tried() const { return __atomic_load_n(&tried_count, __ATOMIC_RELAXED); }

private:
    FileCalls files;
    CacheKey key;
    char path[kCachePathBytes];  // empty: in memory only
    char temporary[kCachePathBytes];
    halide_mutex saving;   // held over a whole save; guards what follows
    uint64_t known_sum;    // of a file whose content the cache in memory contains; 0: none is known to
    uint32_t saved;        // pipelines that are on disk
    uint32_t tried_count;  // atomic
    size_t most_bytes;

    void choose_file(Gpu &gpu, const InstanceFunctions &vk, uint32_t version);
    uint8_t *read_file(const Gpu &gpu, size_t &size);
    bool load_file(const Gpu &gpu, CacheContent &content, uint8_t *&file);
    VkResult make_cache(Gpu &gpu, const CacheContent *initial, VkPipelineCache *cache);
    bool take(Gpu &gpu, VkPipelineCache cache, CacheBytes &out);
    bool merge(Gpu &gpu, const CacheContent &there, CacheBytes &out);
    bool write_changes(Gpu &gpu);
    bool write_file(const CacheBytes &bytes);
    bool fits_limits(size_t bytes);

    // What went wrong, why, and where: with the file, unless another place is given. The place comes last, since it may
    // be long, and the note is short. The first of a device's complaints is printed: much of this happens when the
    // device goes, and then nobody can ask for the note any more.
    HALIDE_VULKAN_COLD void complain(const char *what, const char *why, const char *where = nullptr) {
        char line[1400];
        if (!where) where = path;
        halide_mutex_lock(&lock);
        Text(line, sizeof(line) - 1) << kOrigin << "pipeline cache: " << what << " (" << why << "): " << where;
        Text(note, sizeof(note)) << without_origin(line);
        line[text_length(line) + 1] = 0;
        line[text_length(line)] = '\n';
#ifdef DEBUG_RUNTIME
        const bool say = true;
#else
        const bool say = !printed;
#endif
        printed = true;
        halide_mutex_unlock(&lock);
        if (say) halide_print(nullptr, line);
    }
};

// `version`: of Vulkan, as far as both the instance and the device go.
inline void read_cache_key(Gpu &gpu, const InstanceFunctions &vk, uint32_t version, CacheKey &key) {
    const VkPhysicalDeviceProperties &p = gpu.properties;
    key.vendor = p.vendorID;
    key.device = p.deviceID;
    key.driver_version = p.driverVersion;
    key.pointer_bytes = (uint32_t)sizeof(void *);
    __builtin_memcpy(key.cache_uuid, p.pipelineCacheUUID, 16);
    __builtin_memset(key.driver_uuid, 0, 16);
    if (version < VK_API_VERSION_1_1 || !vk.vkGetPhysicalDeviceProperties2) return;
    VkPhysicalDeviceIDProperties ids = {};
    ids.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
    VkPhysicalDeviceProperties2 all = {};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    all.pNext = &ids;
    vk.vkGetPhysicalDeviceProperties2(gpu.physical, &all);
    __builtin_memcpy(key.driver_uuid, ids.driverUUID, 16);
}

// Leaves `path` empty where there is to be no file. A relative folder is made absolute now: the program may change its
// own later.
inline void PipelineCache::choose_file(Gpu &gpu, const InstanceFunctions &vk, uint32_t version) {
    const char *folder = getenv(pipeline_cache_variable);
    if (!folder || !*folder) return;
    if (!files.load()) {
        complain("no file can be made", "this system's C library does not offer its functions here", folder);
        return;
    }
    char *resolved = files.realpath(folder, nullptr);
    if (!resolved) {
        complain("HL_VK_PIPELINE_CACHE names no folder that is there", system_error(), folder);
        return;
    }
    read_cache_key(gpu, vk, version, key);
    if (!name_cache_file(resolved, key, path, sizeof(path))) {
        path[0] = 0;
        char why[80];
        Text(why, sizeof(why)) << "a file's name has at most " << (uint64_t)sizeof(path) << " bytes here";
        complain("the folder's name is too long", why, resolved);
    }
    free(resolved);  // the C library's
    most_bytes = (size_t)gpu.options.pipeline_cache_mb << 20;
}

// The whole file, to be given back with host_free. Null when there is none, or it cannot be read, or is too large.
inline uint8_t *PipelineCache::read_file(const Gpu &gpu, size_t &size) {
    size = 0;
    if (const char *why = why_no_file(path)) {
        complain("the file cannot be read", why);
        return nullptr;
    }
    const int file = files.open(path, kReadOnly);
    if (file < 0) {
        const char *why = system_error();
        if (files.access(path, kExists) == 0) complain("the file cannot be opened", why);
        return nullptr;
    }
    const size_t most = most_bytes + kCacheHeaderBytes;
    size_t room = min_of<size_t>(most, 256 << 10) + 1;  // one more, so that the end is seen without growing
    uint8_t *bytes = (uint8_t *)host_malloc(room);
    intptr_t got = bytes ? 1 : -1;
    while (got > 0) {
        if (size == room) {
            if (size > most) break;
            const size_t larger = min_of(room * 2, most + 1);
            uint8_t *moved = (uint8_t *)host_malloc(larger);
            if (moved) __builtin_memcpy(moved, bytes, size);
            host_free(bytes);
            bytes = moved;
            room = larger;
            if (!bytes) break;
        }
        got = files.read(file, bytes + size, room - size);
        if (got > 0) size += (size_t)got;
    }
    const bool too_large = size > most;
    if (too_large) {
        char why[80];
        Text(why, sizeof(why)) << "HL_VK_PIPELINE_CACHE_MB allows " << gpu.options.pipeline_cache_mb << " MiB";
        complain("the file is too large to be read", why);
    } else if (!bytes || got < 0) {
        complain("the file cannot be read", bytes ? system_error() : "out of host memory");
    }
    files.close(file);
    if (bytes && got >= 0 && !too_large) return bytes;
    host_free(bytes);
    return nullptr;
}

// The file's content, if it may be given to this driver; `file` owns the bytes.
inline bool PipelineCache::load_file(const Gpu &gpu, CacheContent &content, uint8_t *&file) {
    size_t size = 0;
    file = read_file(gpu, size);
    if (!file) return false;
    const CacheVerdict verdict = read_cache_file(key, file, size, content);
    if (verdict == CacheVerdict::good) return true;
    char why[96];
    Text(why, sizeof(why)) << "it " << verdict_text(verdict);
    complain("the file is of no use, and will be written anew", why);
    host_free(file);
    file = nullptr;
    return false;
}

inline VkResult PipelineCache::make_cache(Gpu &gpu, const CacheContent *initial, VkPipelineCache *cache) {
    VkPipelineCacheCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
    if (initial) {
        info.initialDataSize = initial->size;
        info.pInitialData = initial->data;
    }
    const VkResult result = gpu.vk.vkCreatePipelineCache(gpu.device, &info, gpu.callbacks, cache);
    if (result != VK_SUCCESS) *cache = VK_NULL_HANDLE;
    if (*cache) name_object(gpu, VK_OBJECT_TYPE_PIPELINE_CACHE, *cache, "pipeline cache");
    return result;
}

inline bool PipelineCache::create(Gpu &gpu, const InstanceFunctions &vk, uint32_t version, Failure &failure) {
    choose_file(gpu, vk, version);
    CacheContent content;
    uint8_t *file = nullptr;
    if (on_disk() && load_file(gpu, content, file)) {
        const VkResult taken = make_cache(gpu, &content, &gpu.pipeline_cache);
        if (taken == VK_SUCCESS) {
            known_sum = content.checksum;
            counts.read_bytes = content.size;
        } else {
            complain("the driver does not take the file's content", result_name(taken));
        }
        host_free(file);
    }
    if (gpu.pipeline_cache) return true;
    const VkResult result = make_cache(gpu, nullptr, &gpu.pipeline_cache);
    if (result == VK_SUCCESS) return true;
    gpu_failed(gpu, failure, "vkCreatePipelineCache", result);
    return false;
}

// What a cache holds now. It may grow between the two calls, other threads compile meanwhile.
inline bool PipelineCache::take(Gpu &gpu, VkPipelineCache cache, CacheBytes &out) {
    out = {};
    VkResult result = VK_INCOMPLETE;
    for (int i = 0; i < 8 && result == VK_INCOMPLETE; i++) {
        out.release();
        result = gpu.vk.vkGetPipelineCacheData(gpu.device, cache, &out.size, nullptr);
        if (result != VK_SUCCESS) break;
        if (out.size > most_bytes) {
            char why[96];
            Text(why, sizeof(why)) << (uint64_t)out.size << " bytes; HL_VK_PIPELINE_CACHE_MB allows "
                                   << gpu.options.pipeline_cache_mb << " MiB";
            complain("what the driver compiled is too large to be kept", why);
            return false;
        }
        out.file = (uint8_t *)host_malloc(kCacheHeaderBytes + out.size);
        result = out.file ? gpu.vk.vkGetPipelineCacheData(gpu.device, cache, &out.size, out.file + kCacheHeaderBytes)
                          : VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (result == VK_SUCCESS && is_driver_cache(key, out.data(), out.size)) return true;
    out.release();
    complain("the driver does not give out what it compiled",
             result == VK_SUCCESS ? "its bytes have not the header that Vulkan asks for" : result_name(result));
    return false;
}

// The file's content and ours together, through a cache of its own: ours may be compiled into at this moment.
inline bool PipelineCache::merge(Gpu &gpu, const CacheContent &there, CacheBytes &out) {
    VkPipelineCache both = VK_NULL_HANDLE;
    VkResult result = make_cache(gpu, &there, &both);
    if (result == VK_SUCCESS) result = gpu.vk.vkMergePipelineCaches(gpu.device, both, 1, &gpu.pipeline_cache);
    if (result != VK_SUCCESS)
        complain("what another process wrote cannot be merged in, and is replaced", result_name(result));
    const bool good = result == VK_SUCCESS && take(gpu, both, out);
    if (both) gpu.vk.vkDestroyPipelineCache(gpu.device, both, gpu.callbacks);
    return good;
}

// A write beyond the process's limit would not fail but kill it (SIGXFSZ).
inline bool PipelineCache::fits_limits(size_t bytes) {
    unsigned long limits[4] = {};  // the soft limit first; room for systems whose numbers are twice as wide
    if (!files.getrlimit || files.getrlimit(kFileSizeLimit, limits) != 0 || limits[0] >= bytes) return true;
    char why[96];
    Text(why, sizeof(why)) << "it has " << (uint64_t)bytes << " bytes; RLIMIT_FSIZE allows " << (uint64_t)limits[0];
    complain("the file is too large to be written", why);
    return false;
}

// All or nothing, whatever the disk does.
inline bool PipelineCache::write_file(const CacheBytes &bytes) {
    const size_t total = kCacheHeaderBytes + bytes.size;
    if (!fits_limits(total)) return false;
    write_cache_header(key, bytes.data(), bytes.size, bytes.file);
    Text(temporary, sizeof(temporary)) << path << kTemporaryEnding;
    const int file = files.mkstemp(temporary);
    if (file < 0) {
        complain("no file can be made in the folder", system_error());
        return false;
    }
    size_t done = 0;
    intptr_t went = 1;
    while (done < total && went > 0) {
        went = files.write(file, bytes.file + done, total - done);
        if (went > 0) done += (size_t)went;
    }
    char what[80] = "the new file cannot be put in its place";
    const char *why = nullptr;
    if (done != total || files.fsync(file) != 0) why = went == 0 ? "a write wrote nothing" : system_error();
    if (files.close(file) != 0 && !why) why = system_error();
    if (why)
        Text(what, sizeof(what)) << "the disk did not take a file of " << (uint64_t)total << " bytes";
    else if (files.rename(temporary, path) != 0)
        why = system_error();
    if (!why) return true;
    files.unlink(temporary);
    complain(what, why);
    return false;
}

// True when the file has everything, whether or not it had to be written.
inline bool PipelineCache::write_changes(Gpu &gpu) {
    CacheBytes mine;
    if (!take(gpu, gpu.pipeline_cache, mine)) return false;
    const uint64_t sum = checksum_of(mine.data(), mine.size);
    bool needed = sum != known_sum, merged = false;
    CacheContent there;
    uint8_t *file = nullptr;
    if (needed && load_file(gpu, there, file)) {
        CacheBytes both;
        needed = there.checksum != sum;
        if (needed && there.checksum != known_sum && merge(gpu, there, both)) {
            mine.release();
            mine = both;
            merged = true;
            needed = checksum_of(mine.data(), mine.size) != there.checksum;
        }
        host_free(file);
    }
    bool good = true;
    if (needed) {
        good = write_file(mine);
        if (good) {
            halide_mutex_lock(&lock);
            counts.writes++;
            counts.written_bytes += mine.size;
            halide_mutex_unlock(&lock);
        }
    }
    // A merged file holds more than our memory does: the next save must merge again.
    if (good && !merged) known_sum = sum;
    mine.release();
    return good;
}

inline void PipelineCache::save(Gpu &gpu, bool again) {
    if (!on_disk()) return;
    halide_mutex_lock(&saving);
    const uint32_t now = __atomic_load_n(&made, __ATOMIC_ACQUIRE);
    if (now != saved && (again || now != tried())) {
        __atomic_store_n(&tried_count, now, __ATOMIC_RELAXED);
        if (write_changes(gpu)) saved = now;
    }
    halide_mutex_unlock(&saving);
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_CACHE_H
