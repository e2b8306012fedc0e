// vulkan_modules.h: kernel blobs as pipelines hand them over.
//
// halide_vulkan_initialize_kernels runs at the start of every pipeline call, bounds queries included. Its state word is
// the address of a Module: a copy of the blob, read once. A pipeline that is unloaded says nothing, and another may
// later lie at its address; so modules are found by content, never by address, and hold no pointer into the blob. The
// record itself is freed with the runtime only (state words keep its address); its content is, when the modules that no
// pipeline is running exceed kKeepBytes, least recently used first.
//
// Modules belong to no device: what a device compiled from them is in vulkan_kernels.h.
//
// Thread rule: entered by any number of threads. A module with users does not change. To become a user of a module
// whose content is there takes one atomic addition; dropping content takes a module without users out of reach first.

#ifndef HALIDE_VULKAN_MODULES_H
#define HALIDE_VULKAN_MODULES_H

#include "vulkan_blob.h"
#include "vulkan_process.h"
#include "vulkan_spirv.h"

namespace halide_vulkan {
namespace {

struct Module {
    Module *next;  // of the same bucket
    uint64_t hash;
    uint64_t last_used;  // order of the calls that had to look it up
    uint32_t users;      // pipeline calls under way; atomic
    uint32_t size;
    uint32_t loads;  // times the content was read
    uint8_t *bytes;  // null: the content was dropped
    Blob blob;
    SpirvInfo *infos;  // one for each kernel
};

class Modules {
public:
    // The module of this blob, with one more user. `known` is the state word's value, null the first time.
    Module *acquire(Module *known, const void *blob, size_t size, Failure &failure) {
        if (known && add_user_of(known)) return known;
        if (!check_not_forked(failure)) return nullptr;
        halide_mutex_lock(&lock);
        const uint64_t hash = known ? known->hash : hash_of(blob, size);
        Module *m = known ? known : find(hash, blob, size);
        if (!m || !m->bytes) m = load(m, hash, blob, size, failure);
        if (m) {
            // Others count without the lock; only the mark of dropped content is the lock's alone.
            if (__atomic_load_n(&m->users, __ATOMIC_RELAXED) & kDropped)
                __atomic_store_n(&m->users, 1, __ATOMIC_RELEASE);
            else
                __atomic_add_fetch(&m->users, 1, __ATOMIC_ACQ_REL);
            m->last_used = ++clock;
        }
        halide_mutex_unlock(&lock);
        return m;
    }

    // The same for a pipeline's state word, which holds its module from the first call on. It is written once, whoever
    // races for it: the pipeline reads it without atomics, and gives what it read back to finalize_kernels.
    void acquire_for(void **word, const void *blob, size_t size, Failure &failure) {
        Module *known = (Module *)__atomic_load_n(word, __ATOMIC_ACQUIRE);
        Module *m = acquire(known, blob, size, failure);
        if (!m || known) return;
        halide_mutex_lock(&lock);
        Module *first = (Module *)__atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (!first) __atomic_store_n(word, (void *)m, __ATOMIC_RELEASE);
        halide_mutex_unlock(&lock);
        // Another call was first, with a record whose content has been dropped since.
        if (first && first != m) {
            release_use(m);
            acquire(first, blob, size, failure);
        }
    }

    // Whether the content was dropped: then no pipeline call uses the module. It may come back at any time.
    static bool is_dropped(const Module *m) { return (__atomic_load_n(&m->users, __ATOMIC_ACQUIRE) & kDropped) != 0; }

    void release_use(Module *m) {
        __atomic_sub_fetch(&m->users, 1, __ATOMIC_ACQ_REL);
        if (__atomic_load_n(&kept_bytes, __ATOMIC_RELAXED) <= kKeepBytes || is_forked_child()) return;
        halide_mutex_lock(&lock);
        drop_unused();
        halide_mutex_unlock(&lock);
    }

    // When this runtime is unloaded: the pipelines whose state words lead here went before it.
    void forget_all() {
        for (Module *&bucket : buckets) {
            while (Module *m = bucket) {
                bucket = m->next;
                drop_content(*m);
                host_free(m);
            }
        }
        keep_bytes(0);
    }

private:
    // A large program has some hundred kernels of 10 to 100 KiB.
    static constexpr size_t kKeepBytes = (size_t)64 << 20;
    static constexpr uint32_t kBuckets = 256;
    // In Module::users: the content was dropped.
    static constexpr uint32_t kDropped = 1u << 31;

    halide_mutex lock;
    Module *buckets[kBuckets];
    uint64_t clock;
    size_t kept_bytes;  // changed with the lock; atomic, since release_use looks without

    void keep_bytes(size_t bytes) { __atomic_store_n(&kept_bytes, bytes, __ATOMIC_RELAXED); }

    static bool add_user_of(Module *m) {
        uint32_t seen = __atomic_load_n(&m->users, __ATOMIC_RELAXED);
        while (!(seen & kDropped)) {
            if (__atomic_compare_exchange_n(&m->users, &seen, seen + 1, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                return true;
        }
        return false;
    }

    // FNV-1a over words. Equal hashes are told apart by comparing the bytes.
    static uint64_t hash_of(const void *blob, size_t size) {
        const uint8_t *p = (const uint8_t *)blob;
        uint64_t h = 0xcbf29ce484222325ull ^ size;
        for (; size >= 4; size -= 4, p += 4) {
            uint32_t word;
            __builtin_memcpy(&word, p, 4);
            h = (h ^ word) * 0x100000001b3ull;
        }
        for (; size > 0; size--, p++) h = (h ^ *p) * 0x100000001b3ull;
        return h;
    }

    Module *find(uint64_t hash, const void *blob, size_t size) {
        for (Module *m = buckets[hash & (kBuckets - 1)]; m; m = m->next) {
            if (m->hash == hash && m->bytes && m->size == size && __builtin_memcmp(m->bytes, blob, size) == 0) return m;
        }
        return nullptr;
    }

    // Reads the blob into `m`, or into a new record. Null with the reason in failure, and nothing kept.
    Module *load(Module *m, uint64_t hash, const void *blob, size_t size, Failure &failure) {
        Module *to = m;
        if (!to) {
            to = (Module *)host_malloc(sizeof(Module));
            if (!to) {
                failure.because(kOutOfMemory) << "Vulkan: out of host memory for a kernel record";
                return nullptr;
            }
            __builtin_memset((void *)to, 0, sizeof(Module));
            to->hash = hash;
        }
        if (!read_content(*to, blob, size, failure)) {
            drop_content(*to);
            if (!m) host_free(to);
            return nullptr;
        }
        to->loads++;
        keep_bytes(kept_bytes + size);
        if (!m) {
            to->next = buckets[hash & (kBuckets - 1)];
            buckets[hash & (kBuckets - 1)] = to;
        }
        return to;
    }

    static bool read_content(Module &m, const void *blob, size_t size, Failure &failure) {
        m.bytes = (uint8_t *)host_malloc(max_of<size_t>(size, 1));
        if (m.bytes) {
            m.size = (uint32_t)size;
            __builtin_memcpy(m.bytes, blob, size);
            if (!parse_blob(m.bytes, size, m.blob, failure)) return false;
            m.infos = (SpirvInfo *)host_malloc(max_of<size_t>(m.blob.kernels.size(), 1) * sizeof(SpirvInfo));
        }
        if (!m.bytes || !m.infos) {
            failure.because(kOutOfMemory)
                << "Vulkan: out of host memory for a kernel blob of " << (uint64_t)size << " bytes";
            return false;
        }
        __builtin_memset((void *)m.infos, 0, m.blob.kernels.size() * sizeof(SpirvInfo));
        for (size_t i = 0; i < m.blob.kernels.size(); i++) {
            const BlobKernel &kernel = m.blob.kernels[i];
            if (!read_spirv(kernel.spirv, kernel.spirv_words, m.infos[i], failure)) return false;
        }
        return true;
    }

    static void drop_content(Module &m) {
        if (m.infos) {
            for (size_t i = 0; i < m.blob.kernels.size(); i++) m.infos[i].release();
        }
        host_free(m.infos);
        m.blob.release();
        host_free(m.bytes);
        m.infos = nullptr;
        m.bytes = nullptr;
        m.size = 0;
    }

    // The unused module that was used longest ago loses its content, until enough is gone.
    void drop_unused() {
        while (kept_bytes > kKeepBytes) {
            Module *oldest = nullptr;
            for (Module *bucket : buckets) {
                for (Module *m = bucket; m; m = m->next) {
                    if (m->bytes && __atomic_load_n(&m->users, __ATOMIC_RELAXED) == 0 &&
                        (!oldest || m->last_used < oldest->last_used))
                        oldest = m;
                }
            }
            uint32_t none = 0;
            if (!oldest || !__atomic_compare_exchange_n(&oldest->users, &none, kDropped, false, __ATOMIC_ACQ_REL,
                                                        __ATOMIC_RELAXED))
                return;
            keep_bytes(kept_bytes - oldest->size);
            drop_content(*oldest);
        }
    }
};

Modules modules;  // zero-initialised

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_MODULES_H
