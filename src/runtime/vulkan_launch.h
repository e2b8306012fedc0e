// vulkan_launch.h: the way of a launch.
//
// run -> session with an open batch -> kernel and its variant -> scalars into the slot's arena -> a descriptor set of
// the kernel's shape, kept by the slot -> a barrier if the batch conflicts -> dispatch -> flush policy. Once warm,
// nothing is created, allocated, mapped or waited for on this way.
//
// Scalars and descriptors belong to the submission, so a second launch of a kernel never changes what the first one
// reads. A launch that finds its batch full submits it and starts over in the next slot.
//
// Two kinds of kernels exist: those of Halide 19 to 21 have their scalars alone in the uniform block, newer ones add an
// int32 index offset for each buffer. The number of members tells them apart, kernel by kernel.
//
// Thread rule: run_kernel may be entered by any number of threads.

#ifndef HALIDE_VULKAN_LAUNCH_H
#define HALIDE_VULKAN_LAUNCH_H

#include "vulkan_buffers.h"
#include "vulkan_strides.h"

namespace halide_vulkan {
namespace {

struct LaunchRequest {
    const Module *module;
    const char *entry;
    uint32_t blocks[3], threads[3];
    uint32_t shared_bytes;
    const size_t *sizes;
    void *const *args;
    uint32_t buffers, scalars;  // how many of each
};

// Buffers come first, then scalars; an entry of size 0 ends the list.
inline bool count_arguments(LaunchRequest &request, const int8_t *is_buffer, Failure &failure) {
    uint32_t n = 0;
    for (; request.sizes[n] != 0; n++) {
        if (is_buffer[n] && request.scalars) {
            failure.because(kInternalError)
                << "Vulkan: kernel '" << request.entry << "': argument " << n << " is a buffer behind a scalar";
            return false;
        }
        (is_buffer[n] ? request.buffers : request.scalars)++;
    }
    return true;
}

class Launch {
public:
    Launch(void *user_context, const LaunchRequest &request, Failure &failure)
        : user_context(user_context), request(request), failure(failure), span(TraceKind::launch, request.entry) {}

    bool run() {
        while (!failure.failed()) {
            Session session(user_context, failure);
            if (!session.begin(Need::batch)) return false;
            switch (attempt(session)) {
            case Outcome::done: return true;
            case Outcome::again: break;
            case Outcome::failed: return false;
            }
        }
        return false;
    }

private:
    enum class Outcome {
        done,
        again,  // something had to happen outside the session: a compilation, a submit, a wait
        failed,
    };

    void *user_context;
    const LaunchRequest &request;
    Failure &failure;
    TraceSpan span;
    Kernel *kernel = nullptr;
    bool has_index_members = false;  // the newer kind of kernel
    bool has_bounces = false;        // an argument goes through a copy
    Shortage shortage;
    uint64_t uniform_bytes = 0;

    Outcome attempt(Session &session);
    bool check_arguments(const Gpu &gpu);
    bool check_limits(const Gpu &gpu);
    bool check_features(const Gpu &gpu);
    bool over_limit(const Gpu &gpu) const {
        const uint32_t *limit = gpu.limits().maxComputeWorkGroupCount;
        return request.blocks[0] > limit[0] || request.blocks[1] > limit[1] || request.blocks[2] > limit[2];
    }
    bool make_key(VariantKey &key);
    void refuse_relocation(const Gpu &gpu);
    bool place_argument(Device &d, uint32_t index, BoundArgument &out, bool &relocated);
    bool check_aliases(Device &d, const LaunchScratch &scratch);
    Outcome allocate_bounces(Session &session, LaunchScratch &scratch);
    void free_bounces(Device &d, LaunchScratch &scratch);
    Outcome compile(Session &session, const VariantKey &key);
    void write_scalars(uint8_t *to, const LaunchScratch &scratch);
    void copy_bounces(Device &d, const LaunchScratch &scratch, bool back);
    void record(Device &d, LaunchScratch &scratch, Variant &variant, VkDescriptorSet set, uint64_t uniform_offset);
    void dispatch(Device &d, LaunchScratch &scratch, bool relocated);
    Text failed(int code) { return failure.because(code) << "Vulkan: kernel '" << request.entry << "': "; }
};

inline bool Launch::check_arguments(const Gpu &gpu) {
    const BlobKernel &code = *kernel->code;
    const Array<uint32_t> &members = kernel->info->uniform_offsets;
    if (request.buffers != code.storage_buffers) {
        failed(kInternalError) << request.buffers << " buffers were given, it takes " << code.storage_buffers;
        return false;
    }
    has_index_members = request.buffers > 0 && members.size() == (size_t)request.scalars + request.buffers;
    if (!has_index_members && members.size() != request.scalars) {
        failed(kInternalError) << request.scalars << " scalars were given for a uniform block of "
                               << (uint64_t)members.size() << " members";
        return false;
    }
    if ((code.uniform_buffers != 0) != !members.empty()) {
        failed(kInternalError) << "its header promises " << code.uniform_buffers << " uniform buffers, its code has "
                               << (members.empty() ? 0 : 1);
        return false;
    }
    // The kernel's code says where each member lies; the end must fit a descriptor and a slot's arena.
    uniform_bytes = 0;
    for (uint32_t i = 0; i < members.size(); i++) {
        const uint64_t size = i < request.scalars ? request.sizes[request.buffers + i] : 4;
        if (size != 1 && size != 2 && size != 4 && size != 8) {
            failed(kInternalError) << "scalar " << i << " has " << size << " bytes, 1, 2, 4 or 8 are possible";
            return false;
        }
        uniform_bytes = max_of(uniform_bytes, (uint64_t)members[i] + size);
    }
    const uint64_t limit = min_of<uint64_t>(gpu.limits().maxUniformBufferRange, kScalarBytes);
    if (uniform_bytes > limit) {
        failed(kDeviceRunFailed) << "its scalar arguments take " << uniform_bytes << " bytes, the limit is " << limit;
        return false;
    }
    return true;
}

inline bool Launch::check_limits(const Gpu &gpu) {
    const VkPhysicalDeviceLimits &l = gpu.limits();
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        if (request.threads[i] == 0 || request.threads[i] > l.maxComputeWorkGroupSize[i]) {
            failed(kDeviceRunFailed) << "a workgroup of " << request.threads[0] << " x " << request.threads[1] << " x "
                                     << request.threads[2] << " threads was asked for; the limit in dimension " << i
                                     << " is " << l.maxComputeWorkGroupSize[i];
            return false;
        }
        threads *= request.threads[i];
    }
    if (threads > l.maxComputeWorkGroupInvocations) {
        failed(kDeviceRunFailed) << "a workgroup of " << request.threads[0] << " x " << request.threads[1] << " x "
                                 << request.threads[2] << " = " << threads << " threads was asked for; the limit is "
                                 << l.maxComputeWorkGroupInvocations;
        return false;
    }
    if (request.shared_bytes > l.maxComputeSharedMemorySize) {
        failed(kDeviceRunFailed) << request.shared_bytes << " bytes of shared memory were asked for; the limit is "
                                 << l.maxComputeSharedMemorySize;
        return false;
    }
    return true;
}

inline bool Launch::check_features(const Gpu &gpu) {
    const uint32_t missing = kernel->info->features & ~gpu.abilities.features;
    if (!missing) return true;
    Text text = failed(kDeviceRunFailed);
    text << "it needs what this device does not have: ";
    tell_features(missing, text);
    return false;
}

// Which variant the launch needs, but for relocation, which depends on where its buffers lie.
inline bool Launch::make_key(VariantKey &key) {
    for (int i = 0; i < 3; i++) key.local_size[i] = request.threads[i];
    key.shared_elements = 0;
    key.relocated = false;
    const BlobKernel &code = *kernel->code;
    uint64_t fixed = 0;
    const BlobShared *dynamic = nullptr;
    for (uint32_t i = 0; i < code.shared_count; i++) {
        const BlobShared &s = kernel->module->blob.shared[code.shared_begin + i];
        if (s.constant_id == 0)
            fixed += (uint64_t)s.element_bytes * s.elements;
        else
            dynamic = &s;
    }
    if (!dynamic) return true;
    // The launch gives the total; what is not fixed belongs to the one dynamic allocation.
    if (request.shared_bytes < fixed || dynamic->element_bytes == 0) {
        failed(kInternalError) << request.shared_bytes
                               << " bytes of shared memory were given, its fixed allocations alone take " << fixed;
        return false;
    }
    key.shared_elements = max_of(1u, (request.shared_bytes - (uint32_t)fixed) / dynamic->element_bytes);
    return true;
}

// Finds the region of a buffer argument and how to bind it.
inline bool Launch::place_argument(Device &d, uint32_t index, BoundArgument &out, bool &relocated) {
    const halide_buffer_t *buf = (const halide_buffer_t *)request.args[index];
    const SpirvInfo &info = *kernel->info;
    if (!buf || !buf->device) {
        failed(kNoDevice) << "buffer argument " << index << " has no device allocation";
        return false;
    }
    if (buf->device_interface != halide_vulkan_device_interface()) {
        failed(kIncompatibleDeviceInterface) << "buffer argument " << index << " belongs to another device API";
        return false;
    }
    const Handle *h = handles.find(buf->device);
    if (!h || handles.device_of(h) != &d) {
        failed(kNoDevice) << "buffer argument " << index
                          << (h && handles.device_of(h) ? " belongs to another Vulkan device"
                                                        : " was freed, or its device was released");
        return false;
    }
    int64_t lowest;
    uint64_t bytes;
    if (!measure_dimensions(buf->dim, buf->dimensions, element_bytes(buf), &lowest, &bytes, failure)) return false;
    Region &region = d.memory.region(h->region);
    const uint64_t minimal = (uint64_t)-lowest;
    if (h->origin < minimal || h->origin - minimal + bytes > region.size) {
        failed(kDeviceRunFailed) << "buffer argument " << index << " spans " << bytes << " bytes from byte "
                                 << (int64_t)(h->origin - minimal) << " of an allocation of " << region.size;
        return false;
    }
    const uint32_t binding = kernel->code->uniform_buffers + index;
    out = {};
    out.region = h->region;
    out.bounce_region = kNoIndex;
    out.begin = region.offset + h->origin - minimal;
    out.bytes = bytes;
    out.place = info.place_of(binding);
    if (out.place >= info.buffers.size() || info.buffers[out.place].binding != binding) out.place = kNoIndex;
    const bool mentioned = out.place != kNoIndex;
    out.written = mentioned && info.buffers[out.place].written;
    if (bytes == 0 || !mentioned) {
        // Nothing of it is accessed; a descriptor needs some range all the same.
        out.begin = region.offset;
        out.bytes = 0;
        out.binding.way = BindingWay::plain;
        out.binding.offset = region.offset;
        out.binding.range = min_of(kBindingGranule, region.size);
        return true;
    }
    if (info.buffers[out.place].read && d.memory.is_lost(region, d.submissions)) {
        failed(kDeviceRunFailed) << "the contents of buffer argument " << index
                                 << " were lost: " << d.submissions.lost_cause();
        return false;
    }
    BindingRequest r;
    r.region_offset = region.offset;
    r.region_size = region.size;
    r.begin = out.begin;
    r.bytes = bytes;
    r.minimal = minimal;
    r.alignment = max_of<uint64_t>(1, d.gpu.limits().minStorageBufferOffsetAlignment);
    r.array_stride = info.buffers[out.place].array_stride;
    r.can_index = has_index_members || (info.relocatable && kernel->shape->push_bytes > 0);
    out.binding = plan_binding(r);
    has_bounces |= out.binding.way == BindingWay::bounce;
    relocated |= out.binding.index != 0 && !has_index_members;
    if (out.binding.range > d.gpu.storage_range) {
        failed(kDeviceRunFailed) << "buffer argument " << index << " has " << out.binding.range
                                 << " bytes; maxStorageBufferRange of this device is " << d.gpu.storage_range;
        return false;
    }
    return true;
}

// A bounced argument is a copy while the kernel runs: another argument over the same bytes would not see its writes.
inline bool Launch::check_aliases(Device &d, const LaunchScratch &scratch) {
    for (uint32_t i = 0; i < request.buffers; i++) {
        const BoundArgument &a = scratch.arguments[i];
        if (a.binding.way != BindingWay::bounce) continue;
        for (uint32_t k = 0; k < request.buffers; k++) {
            const BoundArgument &b = scratch.arguments[k];
            if (k == i || d.memory.region(a.region).memory != d.memory.region(b.region).memory) continue;
            if (a.begin >= b.begin + b.bytes || b.begin >= a.begin + a.bytes || !(a.written || b.written)) continue;
            failed(kDeviceRunFailed) << "buffer argument " << i << " begins at byte " << a.begin
                                     << ", which this kernel can only reach through a copy (descriptors "
                                     << "begin at multiples of "
                                     << (uint64_t)d.gpu.limits().minStorageBufferOffsetAlignment << "), and argument "
                                     << k << " overlaps it";
            return false;
        }
    }
    return true;
}

inline void Launch::free_bounces(Device &d, LaunchScratch &scratch) {
    for (BoundArgument &a : scratch.arguments) {
        if (a.bounce_region != kNoIndex) d.memory.drop_reference(d.deferred, a.bounce_region);
        a.bounce_region = kNoIndex;
    }
}

inline Launch::Outcome Launch::allocate_bounces(Session &session, LaunchScratch &scratch) {
    Device &d = *session.device;
    for (BoundArgument &a : scratch.arguments) {
        if (a.binding.way != BindingWay::bounce) continue;
        if (d.memory.region(a.region).cpu_writers > 0) {
            // The copy back would overwrite what a direct upload writes beside this argument at this moment.
            free_bounces(d, scratch);
            session.end();
            halide_thread_yield();
            return Outcome::again;
        }
        uint64_t wait_for = 0;
        Failure refused;
        a.bounce_region = d.memory.allocate(d.gpu, a.binding.range, d.submissions.completed, &wait_for, refused);
        if (a.bounce_region != kNoIndex) continue;
        free_bounces(d, scratch);
        return shortage.make_room(session, wait_for, refused) ? Outcome::again : Outcome::failed;
    }
    return Outcome::done;
}

inline Launch::Outcome Launch::compile(Session &session, const VariantKey &key) {
    Device *d = session.device;
    add_user(d);  // keeps the device while no lock is held
    session.end();
    TraceSpan compilation(TraceKind::compile, request.entry);
    const uint64_t begin = now_ns(d->gpu.rare_clock);
    const VkPipeline pipeline = compile_variant(d->gpu, *kernel, key, failure);
    compilation.tell(key.local_size[0], key.local_size[1], key.local_size[2]);
    Outcome outcome = Outcome::failed;
    if (pipeline) {
        note_stage(OwnContext::compiled);
        note_pipeline(*d, now_ns(d->gpu.rare_clock) - begin);
        d->lock.lock();
        if (d->kernels.add(d->gpu, d->deferred, *kernel, key, pipeline, d->submissions.open_epoch())) {
            outcome = Outcome::again;
        } else {
            failed(kOutOfMemory) << "out of host memory for a pipeline";
        }
        d->lock.unlock();
    }
    drop_user(d);
    return outcome;
}

// Says why a launch that only the relocated variant could serve is refused.
inline void Launch::refuse_relocation(const Gpu &gpu) {
    const char *why = kernel->info->why_not ? kernel->info->why_not : "too many buffers for push constants";
    if (!over_limit(gpu)) {
        failed(kDeviceRunFailed) << "an argument has negative strides, and its indices cannot be moved: " << why;
        return;
    }
    const uint32_t *limit = gpu.limits().maxComputeWorkGroupCount;
    failed(kDeviceRunFailed) << request.blocks[0] << " x " << request.blocks[1] << " x " << request.blocks[2]
                             << " groups were asked for; the device's limits are " << limit[0] << " x " << limit[1]
                             << " x " << limit[2] << ", and the grid cannot be cut: " << why;
}

inline Launch::Outcome Launch::attempt(Session &session) {
    Device &d = *session.device;
    LaunchScratch &scratch = d.scratch;
    kernel = d.kernels.find(request.module, request.entry, failure);
    if (!kernel || !check_arguments(d.gpu) || !check_limits(d.gpu)) return Outcome::failed;
    if (!kernel->shape) {  // once for each kernel
        if (!check_features(d.gpu)) return Outcome::failed;
        kernel->shape = d.shapes.find(d.gpu, kernel->code->uniform_buffers, kernel->code->storage_buffers, failure);
    }
    VariantKey key;
    if (!kernel->shape || !make_key(key)) return Outcome::failed;
    if (!scratch.reserve(request.buffers)) {
        failed(kOutOfMemory) << "out of host memory for " << request.buffers << " arguments";
        return Outcome::failed;
    }
    has_bounces = false;
    for (uint32_t i = 0; i < request.buffers; i++) {
        if (!place_argument(d, i, scratch.arguments[i], key.relocated)) return Outcome::failed;
    }
    if (has_bounces && !check_aliases(d, scratch)) return Outcome::failed;
    key.relocated |= over_limit(d.gpu);
    if (key.relocated && !(kernel->info->relocatable && kernel->shape->push_bytes > 0)) {
        refuse_relocation(d.gpu);
        return Outcome::failed;
    }
    Variant *variant = kernel->find(key);
    if (!variant) return compile(session, key);

    // Before anything is taken from the batch: it may have to be tried many times, and a batch without a command is
    // never submitted, so that what is used up of it would not come back.
    if (has_bounces) {
        const Outcome bounced = allocate_bounces(session, scratch);
        if (bounced != Outcome::done) return bounced;
    }
    uint64_t uniform_offset = 0;
    uint8_t *uniforms = nullptr;
    VkDescriptorSet set = kernel->shape->next_set(d.submissions);
    if (set && uniform_bytes)
        uniforms = d.submissions.scalar_space(d.gpu, align_up(uniform_bytes, kBindingGranule), &uniform_offset);
    if (!set || (uniform_bytes && !uniforms)) {
        if (has_bounces) free_bounces(d, scratch);
        return session.submit() ? Outcome::again : Outcome::failed;
    }
    if (uniforms) write_scalars(uniforms, scratch);
    if (has_bounces) copy_bounces(d, scratch, false);
    record(d, scratch, *variant, set, uniform_offset);
    d.submissions.note_run(d.gpu, variant->has_run);
    if (has_bounces) {
        copy_bounces(d, scratch, true);
        free_bounces(d, scratch);
    }
    return session.recorded(0) ? Outcome::done : Outcome::failed;
}

inline void Launch::write_scalars(uint8_t *to, const LaunchScratch &scratch) {
    const Array<uint32_t> &members = kernel->info->uniform_offsets;
    for (uint32_t i = 0; i < request.scalars; i++) {
        __builtin_memcpy(to + members[i], request.args[request.buffers + i], request.sizes[request.buffers + i]);
    }
    if (!has_index_members) return;
    for (uint32_t i = 0; i < request.buffers; i++) {
        __builtin_memcpy(to + members[request.scalars + i], &scratch.arguments[i].binding.index, 4);
    }
}

// Into the bounce regions before the dispatch; what the kernel may have written back out of them after it.
inline void Launch::copy_bounces(Device &d, const LaunchScratch &scratch, bool back) {
    Submissions &s = d.submissions;
    for (const BoundArgument &a : scratch.arguments) {
        if (a.bounce_region == kNoIndex || (back && !a.written)) continue;
        Region &region = d.memory.region(a.region), &bounce = d.memory.region(a.bounce_region);
        const uint64_t there = bounce.offset + a.binding.pad;
        const Access accesses[2] = {{region.memory, a.begin, a.begin + a.bytes, back},
                                    {bounce.memory, there, there + a.bytes, !back}};
        s.order(d.gpu, accesses, 2);
        const CommandMark mark(d.gpu, s, TraceKind::gpu_copy, back ? "argument, back" : "argument, aligned", a.bytes);
        VkBufferCopy copy = {a.begin, there, a.bytes};
        if (back) copy = {there, a.begin, a.bytes};
        d.gpu.vk.vkCmdCopyBuffer(s.commands(), back ? bounce.buffer : region.buffer,
                                 back ? region.buffer : bounce.buffer, 1, &copy);
        d.memory.touch(region, d.submissions, back);
        d.memory.touch(bounce, d.submissions, !back);
    }
}

inline void Launch::record(Device &d, LaunchScratch &scratch, Variant &variant, VkDescriptorSet set,
                           uint64_t uniform_offset) {
    Submissions &s = d.submissions;
    const DeviceFunctions &vk = d.gpu.vk;
    const uint64_t epoch = s.open_epoch();
    const uint32_t uniforms = kernel->shape->uniforms;
    if (uniforms) scratch.descriptors[0] = {s.scalars.buffer, uniform_offset, align_up(uniform_bytes, kBindingGranule)};
    for (uint32_t i = 0; i < request.buffers; i++) {
        const BoundArgument &a = scratch.arguments[i];
        const bool bounced = a.bounce_region != kNoIndex;
        Region &region = d.memory.region(bounced ? a.bounce_region : a.region);
        const uint64_t offset = bounced ? region.offset : a.binding.offset;
        const uint64_t begin = bounced ? region.offset + a.binding.pad : a.begin;
        scratch.descriptors[uniforms + i] = {region.buffer, offset, a.binding.range};
        scratch.accesses[i] = {region.memory, begin, begin + a.bytes, a.written};
        d.memory.touch(region, d.submissions, a.written);
        // A kernel that writes all of it without reading makes good what an earlier loss left undone.
        if (a.written && !kernel->info->buffers[a.place].read && a.bytes >= region.wanted) d.memory.repaired(region);
    }
    s.order(d.gpu, scratch.accesses.data(), request.buffers);
    const CommandMark mark(d.gpu, s, TraceKind::gpu_kernel, request.entry);

    // Consecutive bindings of one type are updated by one write.
    VkWriteDescriptorSet writes[2] = {};
    uint32_t count = 0;
    if (uniforms) {
        writes[count].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
        writes[count].dstSet = set;
        writes[count].descriptorCount = 1;
        writes[count].descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
        writes[count++].pBufferInfo = scratch.descriptors.data();
    }
    if (request.buffers) {
        writes[count].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
        writes[count].dstSet = set;
        writes[count].dstBinding = uniforms;
        writes[count].descriptorCount = request.buffers;
        writes[count].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
        writes[count++].pBufferInfo = scratch.descriptors.data() + uniforms;
    }
    if (count) vk.vkUpdateDescriptorSets(d.gpu.device, count, writes, 0, nullptr);
    s.bind_pipeline(d.gpu, variant.pipeline);
    vk.vkCmdBindDescriptorSets(s.commands(), VK_PIPELINE_BIND_POINT_COMPUTE, kernel->shape->layout, 0, 1, &set, 0,
                               nullptr);
    variant.last_use = epoch;
    d.gpu.last_kernels.note(kernel->code->name, kernel->name_bytes);
    dispatch(d, scratch, variant.key.relocated);
    span.set_launch(epoch, request.blocks, request.threads);
}

// One dispatch, or for a grid over the device's limits as many as it takes.
inline void Launch::dispatch(Device &d, LaunchScratch &scratch, bool relocated) {
    const DeviceFunctions &vk = d.gpu.vk;
    const VkCommandBuffer commands = d.submissions.commands();
    const uint32_t *blocks = request.blocks;
    if (!relocated) {
        vk.vkCmdDispatch(commands, blocks[0], blocks[1], blocks[2]);
        return;
    }
    for (int32_t &word : scratch.push) word = 0;
    for (uint32_t i = 0; i < request.buffers; i++) {
        const BoundArgument &a = scratch.arguments[i];
        if (a.place != kNoIndex && !has_index_members) scratch.push[kIndexOffsetsAt / 4 + a.place] = a.binding.index;
    }
    vk.vkCmdPushConstants(commands, kernel->shape->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, kernel->shape->push_bytes,
                          scratch.push.data());
    const uint32_t *limit = d.gpu.limits().maxComputeWorkGroupCount;
    uint32_t base[3], n[3];
    bool first = true;
    for (base[2] = 0; base[2] < blocks[2]; base[2] += n[2]) {
        n[2] = min_of(limit[2], blocks[2] - base[2]);
        for (base[1] = 0; base[1] < blocks[1]; base[1] += n[1]) {
            n[1] = min_of(limit[1], blocks[1] - base[1]);
            for (base[0] = 0; base[0] < blocks[0]; base[0] += n[0]) {
                n[0] = min_of(limit[0], blocks[0] - base[0]);
                vk.vkCmdPushConstants(commands, kernel->shape->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(base),
                                      base);
                // Groups of one launch do not depend on each other, but one buffer may be both input and output: two
                // pieces may then touch the same descriptor ranges, which only a barrier makes orderly.
                if (!first) d.submissions.record_barrier(d.gpu);
                first = false;
                vk.vkCmdDispatch(commands, n[0], n[1], n[2]);
            }
        }
    }
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_LAUNCH_H
