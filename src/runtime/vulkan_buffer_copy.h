// vulkan_buffer_copy.h: copies between two halide_buffer_t, in any direction.
//
// What is copied is the part that both buffers have, by coordinates; their strides may differ. Plain copies to and from
// the device are the same thing with one buffer on both sides.
//
// Thread rule: entered by any number of threads.

#ifndef HALIDE_VULKAN_BUFFER_COPY_H
#define HALIDE_VULKAN_BUFFER_COPY_H

#include "vulkan_buffers.h"
#include "vulkan_copies.h"

namespace halide_vulkan {
namespace {

HALIDE_VULKAN_COLD inline bool move_along(StridedView &view, int dimension, int64_t steps) {
    int64_t bytes;
    return checked_mul(view.stride[dimension], steps, &bytes) && checked_add(view.offset, bytes, &view.offset);
}

// The part of the two buffers that both have, by coordinates. An empty overlap is a copy of nothing.
inline bool plan_overlap(const halide_buffer_t *src, const halide_buffer_t *dst, StridedView &from, StridedView &to,
                         Failure &failure) {
    if (src->dimensions != dst->dimensions || element_bytes(src) != element_bytes(dst)) {
        failure.because(kBufferCopyFailed)
            << "Vulkan: a copy from " << src->dimensions << " dimensions of " << element_bytes(src)
            << "-byte elements to " << dst->dimensions << " of " << element_bytes(dst) << " bytes was asked for";
        return false;
    }
    if (!view_of(src->dim, src->dimensions, element_bytes(src), from, failure) ||
        !view_of(dst->dim, dst->dimensions, element_bytes(dst), to, failure)) {
        return false;
    }
    for (int i = 0; i < src->dimensions; i++) {
        const int64_t s0 = src->dim[i].min, d0 = dst->dim[i].min;
        const int64_t begin = max_of(s0, d0), end = min_of(s0 + src->dim[i].extent, d0 + dst->dim[i].extent);
        from.extent[i] = to.extent[i] = max_of<int64_t>(0, end - begin);
        if (end <= begin) continue;  // nothing is copied; where that would be may be no number
        if ((begin != s0 && !move_along(from, i, begin - s0)) || (begin != d0 && !move_along(to, i, begin - d0))) {
            failure.because(kExtentsTooLarge) << "Vulkan: a copy of a buffer that spans more than 2^63 bytes";
            return false;
        }
    }
    return true;
}

// The sides are known to have what they are asked for.
// Buffers of two Vulkan devices: "bounce it through host memory", a code without a message.
inline int copy_buffer(void *user_context, halide_buffer_t *src, bool from_host, bool to_host, halide_buffer_t *dst,
                       Failure &failure) {
    DeviceView from, to;
    if (!plan_overlap(src, dst, from.view, to.view, failure)) return failure.code;
    if (from_host && to_host) {
        CopyPlan plan;
        if (plan_copy(from.view, to.view, Side::destination, plan, failure)) {
            copy_on_cpu(plan.direct, 0, plan.bytes(), src->host, dst->host);
        }
        return failure.code;
    }
    Pinned source(from_host ? 0 : src->device), destination(to_host ? 0 : dst->device);
    if ((!from_host && !source.check("copy from", failure)) || (!to_host && !destination.check("copy to", failure)))
        return failure.code;
    if (!from_host) {
        from.region = source.handle.region;
        from.view.offset += (int64_t)source.handle.origin;
    }
    if (!to_host) {
        to.region = destination.handle.region;
        to.view.offset += (int64_t)destination.handle.origin;
    }
    if (from_host) {
        Copier(user_context, *destination.device, failure).upload(src->host, from.view, to);
    } else if (to_host) {
        Copier(user_context, *source.device, failure).download(from, dst->host, to.view);
    } else if (source.device != destination.device) {
        return kIncompatibleDeviceInterface;
    } else {
        Copier(user_context, *source.device, failure).device_copy(from, to);
    }
    return failure.code;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_BUFFER_COPY_H
