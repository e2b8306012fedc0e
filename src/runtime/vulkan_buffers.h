// vulkan_buffers.h: the life of a halide_buffer_t's device side: malloc, free, crop, and wrapped VkBuffers.
//
// malloc and free are bookkeeping: no Vulkan call once blocks are there. free does not wait, whatever the GPU is doing,
// unless halide_can_reuse_device_allocations is false: then it waits for that region's own work and gives the memory
// back. Freeing a handle whose device was released, or that was freed already, succeeds and balances the module count.
//
// A wrapped buffer is the application's VkBuffer (the native handle is the VkBuffer itself). Nothing here ever destroys
// it; the application waits (halide_device_sync) before it does.
//
// Thread rule: entered by any number of threads. Errors: false or a code, with the reason in failure.

#ifndef HALIDE_VULKAN_BUFFERS_H
#define HALIDE_VULKAN_BUFFERS_H

#include "vulkan_context.h"
#include "vulkan_strides.h"

namespace halide_vulkan {
namespace {

inline uint64_t element_bytes(const halide_buffer_t *buf) { return (uint64_t)((buf->type.bits + 7) / 8); }

inline bool check_dimensions(const halide_buffer_t *buf, Failure &failure) {
    if (buf->dim || buf->dimensions == 0) return true;
    failure.because(kBufferIsNull) << "Vulkan: a buffer of " << buf->dimensions << " dimensions has no list of them";
    return false;
}

// Size in bytes of a buffer's data and the distance from its lowest byte to its minimal element.
inline bool measure_buffer(const halide_buffer_t *buf, uint64_t *bytes, uint64_t *minimal, Failure &failure) {
    int64_t lowest;
    if (!check_dimensions(buf, failure)) return false;
    if (!measure_dimensions(buf->dim, buf->dimensions, element_bytes(buf), &lowest, bytes, failure)) return false;
    *minimal = (uint64_t)-lowest;
    return true;
}

// Adds the bytes from the element of minimal coordinates to the one at `position` in a dimension. A distance that is no
// number leads outside of any allocation.
constexpr int64_t kNowhere = INT64_MIN;
inline void add_distance(const halide_buffer_t *buf, int dimension, int position, int64_t *delta) {
    const halide_dimension_t &dim = buf->dim[dimension];
    int64_t bytes;
    if (*delta == kNowhere ||
        !checked_mul((int64_t)position - dim.min, (int64_t)dim.stride * (int64_t)element_bytes(buf), &bytes) ||
        !checked_add(*delta, bytes, delta))
        *delta = kNowhere;
}

// How many bytes a handle's memory holds; 0 for a handle that leads nowhere. Takes no lock: this is asked before every
// launch, of every buffer.
inline uint64_t device_bytes(uint64_t number) {
    const Handle *h = handles.find(number);
    return h && handles.device_of(h) ? h->bytes : 0;
}

// A device in use by a call that names a buffer, and the buffer's handle.
class Pinned {
public:
    explicit Pinned(uint64_t number, bool take = false) { device = pin_device_of(number, &handle, take); }
    ~Pinned() {
        if (device) drop_user(device);
    }
    Pinned(const Pinned &) = delete;
    Pinned &operator=(const Pinned &) = delete;

    Device *device;  // null: the handle is stale, or its device was released
    Handle handle;

    bool check(const char *what, Failure &failure) const {
        if (device || !check_not_forked(failure)) return device != nullptr;
        failure.because(kNoDevice) << "Vulkan: " << what << ": the buffer was freed, or its device was released";
        return false;
    }
};

// Fills a new region as HL_VK_ZERO_FILL or HL_VK_POISON asks. In a session with an open batch.
inline bool fill_region(Session &session, uint32_t id) {
    Device &d = *session.device;
    const uint32_t byte = d.gpu.options.poison;
    Region &region = d.memory.region(id);
    const Access access = {region.memory, region.offset, region.offset + region.size, true};
    d.submissions.order(d.gpu, &access, 1);
    {
        const CommandMark mark(d.gpu, d.submissions, TraceKind::gpu_copy, "fill", region.size);
        d.gpu.vk.vkCmdFillBuffer(d.submissions.commands(), region.buffer, region.offset, region.size,
                                 byte * 0x01010101u);
    }
    d.memory.touch(region, d.submissions, true);
    return session.recorded(0);
}

// A new region for `bytes` with a handle for it. 0 with the reason in failure.
inline uint64_t allocate_buffer(void *user_context, uint64_t bytes, uint64_t origin, Failure &failure) {
    for (Shortage shortage;;) {
        Session session(user_context, failure);
        if (!session.begin(Need::device)) return 0;
        Device &d = *session.device;
        if (!check_not_lost(d.gpu, failure)) return 0;
        const bool fill = d.gpu.options.zero_fill || d.gpu.options.poison;
        if (fill && !session.try_open_batch()) {
            session.end();
            if (failure.failed() || !session.begin(Need::batch)) return 0;
        }
        Device &now = *session.device;
        uint64_t wait_for = 0;
        Failure refused;
        const uint32_t region = now.memory.allocate(now.gpu, bytes, now.submissions.completed, &wait_for, refused);
        if (region == kNoIndex) {
            if (shortage.make_room(session, wait_for, refused)) continue;
            return 0;
        }
        const uint64_t number =
            handles.make(&now, &now.releasing, region, now.memory.region(region).size, origin, false);
        if (number == 0) failure.because(kOutOfMemory) << "Vulkan: out of host memory for a buffer handle";
        const bool filled = number != 0 && (!fill || fill_region(session, region));
        if (filled) return number;
        now.memory.drop_reference(now.deferred, region);
        handles.drop(number);
        return 0;
    }
}

// Ends a handle. `give_back`: if it was the region's last, wait for its work and return the memory to the driver.
inline void end_handle(void *user_context, uint64_t number, bool give_back, Failure &failure) {
    Pinned pinned(number, true);
    Device *d = pinned.device;
    if (!d) return;
    const uint32_t region_id = pinned.handle.region;
    d->lock.lock();
    give_back = give_back && d->memory.region(region_id).references == 1;
    if (give_back) {
        const uint64_t last_use = d->memory.last_use(d->memory.region(region_id));
        const bool unsubmitted = last_use > d->submissions.submitted;
        d->lock.unlock();
        if (unsubmitted) {
            Session session(user_context, failure);
            if (session.begin(Need::existing, d)) session.submit();
        }
        // A failure here is an earlier call's: freeing goes on, and does not report it.
        wait_until(*d, last_use, failure);
        d->lock.lock();
    }
    d->memory.drop_reference(d->deferred, region_id);
    if (give_back) {
        d->memory.trim(d->gpu, d->submissions.completed);
        d->staging.trim(d->gpu, d->submissions.completed);
    }
    d->lock.unlock();
}

// Ends a handle as a free does: it never fails, and waits only where reuse is off.
inline void free_handle(void *user_context, uint64_t number) {
    Failure ignored;
    end_handle(user_context, number, !halide_can_reuse_device_allocations(user_context), ignored);
}

// A handle for the part of a region that begins `delta` bytes after the parent's minimal element.
inline uint64_t crop_handle(uint64_t parent, int64_t delta, Failure &failure) {
    Pinned pinned(parent);
    if (!pinned.check("crop", failure)) return 0;
    Device &d = *pinned.device;
    int64_t origin = kNowhere;
    checked_add((int64_t)pinned.handle.origin, delta, &origin);
    d.lock.lock();
    const bool inside = origin >= 0 && (uint64_t)origin <= pinned.handle.bytes;
    if (inside) d.memory.add_reference(pinned.handle.region);
    d.lock.unlock();
    if (!inside) {
        failure.because(kCropFailed) << "Vulkan: a crop at byte " << origin << " of a device allocation of "
                                     << pinned.handle.bytes << " bytes was asked for";
        return 0;
    }
    const uint64_t number = handles.make(&d, &d.releasing, pinned.handle.region, pinned.handle.bytes, (uint64_t)origin,
                                         pinned.handle.wrapped);
    if (number == 0) {
        failure.because(kOutOfMemory) << "Vulkan: out of host memory for a buffer handle";
        d.lock.lock();
        d.memory.drop_reference(d.deferred, pinned.handle.region);
        d.lock.unlock();
    }
    return number;
}

// A handle for an application's VkBuffer on the context's device; its data begins at the buffer's first byte.
inline uint64_t wrap_buffer(void *user_context, uint64_t native, uint64_t bytes, uint64_t origin, Failure &failure) {
    Session session(user_context, failure);
    if (!session.begin(Need::device)) return 0;
    Device &d = *session.device;
    const VkBuffer buffer = (VkBuffer)native;
    VkMemoryRequirements needs;
    d.gpu.vk.vkGetBufferMemoryRequirements(d.gpu.device, buffer, &needs);
    // The exact size cannot be asked of Vulkan; what its memory needs is the size rounded up.
    if (bytes > needs.size) {
        failure.because(kWrapNativeFailed) << "Vulkan: a VkBuffer of at most " << (uint64_t)needs.size
                                           << " bytes was given for " << bytes << " bytes of data";
        return 0;
    }
    // What native_buffer gave comes back as the region that it stands for: these are the same bytes, and work on either
    // must be ordered behind work on the other.
    uint32_t region = d.memory.region_of_alias(buffer);
    if (region != kNoIndex)
        d.memory.add_reference(region);
    else
        region = d.memory.wrap(buffer, max_of<uint64_t>(bytes, 1), failure);
    if (region == kNoIndex) return 0;
    const uint64_t number = handles.make(&d, &d.releasing, region, d.memory.region(region).size, origin, true);
    if (number) return number;
    d.memory.drop_reference(d.deferred, region);
    failure.because(kOutOfMemory) << "Vulkan: out of host memory for a buffer handle";
    return 0;
}

// The VkBuffer behind a handle: the application's own, or, of our allocations, an alias that begins at the data.
// Borrowed: it lives as long as the allocation. Open work is submitted first, so that what the application submits next
// comes after it.
inline uint64_t native_buffer(void *user_context, const halide_buffer_t *buf, Failure &failure) {
    uint64_t bytes = 0, minimal = 0;
    if (!measure_buffer(buf, &bytes, &minimal, failure)) return 0;
    Pinned pinned(buf->device);
    if (!pinned.check("get_vk_buffer", failure)) return 0;
    Session session(user_context, failure);
    if (!session.begin(Need::existing, pinned.device)) return 0;
    if (session.device->submissions.open && !session.submit()) return 0;
    return handle_number(session.device->memory.native_buffer(session.device->gpu, pinned.handle.region,
                                                              (int64_t)(pinned.handle.origin - minimal), failure));
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_BUFFERS_H
