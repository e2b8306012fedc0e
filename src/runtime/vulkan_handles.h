// vulkan_handles.h: what halide_buffer_t::device holds.
//
// The field is a number: an index into a table and the generation of that entry. So a handle that was freed, or whose
// device was released, is recognised: freeing it is harmless, using it is an error, and neither touches memory that is
// gone. The table outlives device_release; its entries are 40 bytes and are reused.
//
// Several handles may name one region: crops and slices hold a reference and their own origin, the byte at which their
// element of minimal coordinates lies.
//
// Thread rule: every function here locks for itself. An entry's fields change only under that lock, and only when the
// handle is made, freed or orphaned, none of which a correct program does while it uses the handle.

#ifndef HALIDE_VULKAN_HANDLES_H
#define HALIDE_VULKAN_HANDLES_H

#include "vulkan_lock.h"

namespace halide_vulkan {
namespace {

struct Device;

struct Handle {
    Device *device;   // null: orphaned by device_release; atomic, since that may happen beside a call
    uint64_t origin;  // bytes from the region's start to the element of minimal coordinates
    uint64_t bytes;   // of the region
    uint32_t region;
    uint32_t generation;
    uint32_t next_unused;
    bool live;
    bool wrapped;  // detach ends it, not free
};

class Handles {
public:
    // 0 when host memory is out.
    // `releasing` is the device's flag: device_release sets it, then orphans all handles. A handle made after that is
    // an orphan from the start.
    uint64_t make(Device *device, const uint32_t *releasing, uint32_t region, uint64_t bytes, uint64_t origin,
                  bool wrapped) {
        lock.lock();
        uint32_t index = unused;
        if (index != 0) {
            unused = at(index)->next_unused;
        } else if (count + 1 < kChunk * kChunks && ensure_chunk((count + 1) / kChunk)) {
            index = count + 1;
            at(index)->generation = 0;
            __atomic_store_n(&count, index, __ATOMIC_RELEASE);  // find reads it without the lock
        }
        uint64_t number = 0;
        if (index != 0) {
            Handle &h = *at(index);
            Device *leads_to = __atomic_load_n(releasing, __ATOMIC_ACQUIRE) ? nullptr : device;
            __atomic_store_n(&h.device, leads_to, __ATOMIC_RELAXED);
            h.origin = origin;
            h.bytes = bytes;
            h.region = region;
            h.generation = (h.generation + 1) & kGenerationMask;
            h.live = true;
            h.wrapped = wrapped;
            number = kTag | ((uint64_t)h.generation << 32) | index;
        }
        lock.unlock();
        return number;
    }

    // The live entry of this number, orphaned ones included; null when the number is stale or was never ours.
    Handle *find(uint64_t number) {
        const uint32_t index = (uint32_t)number;
        if ((number & kTagMask) != kTag || index == 0 || index > __atomic_load_n(&count, __ATOMIC_ACQUIRE))
            return nullptr;
        Handle *h = at(index);
        return h->live && h->generation == ((uint32_t)(number >> 32) & kGenerationMask) ? h : nullptr;
    }

    // The device that a found entry leads to, null for an orphan. Without the lock it is a hint, unless the caller
    // keeps that device from being released.
    static Device *device_of(const Handle *h) { return __atomic_load_n(&h->device, __ATOMIC_RELAXED); }

    // False when the number is stale: then there is nothing to end.
    bool drop(uint64_t number) {
        lock.lock();
        Handle *h = find(number);
        if (h) drop_locked(h, number);
        lock.unlock();
        return h != nullptr;
    }
    // With the table locked.
    void drop_locked(Handle *h, uint64_t number) {
        h->live = false;
        h->device = nullptr;
        h->next_unused = unused;
        unused = (uint32_t)number;
    }

    void lock_table() { lock.lock(); }
    void unlock_table() { lock.unlock(); }

    // For device_release: the device's handles stay, to be freed, but lead nowhere.
    void orphan_all(const Device *device) {
        lock.lock();
        for (uint32_t i = 1; i <= count; i++) {
            Handle *h = at(i);
            if (h->live && h->device == device) __atomic_store_n(&h->device, nullptr, __ATOMIC_RELAXED);
        }
        lock.unlock();
    }

    // When this runtime is unloaded. All numbers are stale afterwards.
    void forget_all() {
        count = unused = 0;
        for (Handle *&chunk : chunks) {
            host_free(chunk);
            chunk = nullptr;
        }
    }

private:
    // 4096 chunks of 1024 entries: 4 million buffers, far above what a device's memory holds in regions of use. Chunks
    // never move, so that a found entry stays where it is.
    static constexpr uint32_t kChunk = 1024, kChunks = 4096;
    // A mark in the upper byte tells our numbers from pointers and small integers that others may have put there.
    static constexpr uint64_t kTag = 0xb5ull << 56, kTagMask = 0xffull << 56;
    static constexpr uint32_t kGenerationMask = 0xffffff;

    Lock lock;
    uint32_t count;   // entries ever made; the first is number 1; atomic
    uint32_t unused;  // list of reusable entries, 0 = none
    Handle *chunks[kChunks];

    Handle *at(uint32_t index) { return &chunks[index / kChunk][index & (kChunk - 1)]; }
    bool ensure_chunk(uint32_t chunk) {
        if (chunks[chunk]) return true;
        Handle *fresh = (Handle *)host_malloc(kChunk * sizeof(Handle));
        if (!fresh) return false;
        __builtin_memset((void *)fresh, 0, kChunk * sizeof(Handle));
        chunks[chunk] = fresh;
        return true;
    }
};

Handles handles;  // zero-initialised

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_HANDLES_H
