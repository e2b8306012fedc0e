// vulkan_submission.h: the ring of reusable submissions, and epochs.
//
// A submission is one slot: command pool, command buffer, a part of the scalar arena, and a place in every table
// of descriptor sets (vulkan_shapes.h). All 16 are made with the device and used over and over; nothing is created for
// a launch.
//
// Every submission gets the next 64-bit number, its epoch, and uses slot epoch % 16. `completed` is the newest epoch
// known to be done (vulkan_progress.h): the signal of a submission also waits for all earlier ones of its queue, so
// epochs end in order. Whatever must
// outlive GPU work carries an epoch and is compared with `completed`; nothing else is tracked.
//
// A slot is open (commands are recorded), in flight, or done.
//
// Order. Commands take effect as if they ran one after the other (what a CUDA stream promises), by barriers where they
// conflict and nowhere else: the hazard tracker lives on from one submission to the next. When the host has seen that
// everything before is done, no barrier is needed at all: that signal makes the GPU's writes available, vkQueueSubmit
// makes what is available visible to all that it starts (Vulkan 1.3, appendix B, "Availability, Visibility, and Domain
// Operations"). Work that is not ours (an application's on the same queue) counts as a conflict with everything.
//
// A submission whose writes the CPU may look at, or write over, ends with a barrier to the host, which covers all
// before it; host_done() is the newest that did and is done. Others do without: it costs 1.9 us of a launch that is
// waited for (H200).
//
// A submission that the driver refuses is lost: its epoch counts as completed, its number is remembered, and what it
// would have written is known to be wrong (see was_lost).
//
// Thread rule: unsafe, the device's lock. A waiter outside the lock pins its slot; a pinned slot is not reused.

#ifndef HALIDE_VULKAN_SUBMISSION_H
#define HALIDE_VULKAN_SUBMISSION_H

#include "vulkan_deferred.h"
#include "vulkan_flush.h"
#include "vulkan_hazards.h"
#include "vulkan_progress.h"
#include "vulkan_timeline.h"

namespace halide_vulkan {
namespace {

// Commands in a batch. At 64 a submit of 8 us adds 0.13 us to each; the descriptor sets kept for each shape of kernel
// are kSlots times this.
constexpr uint32_t kBatchCommands = 64;

// Scalar arguments of one batch: 64 kernels with 1 KiB each. A kernel's own block is at most
// maxUniformBufferRange, 64 KiB on most devices.
constexpr uint64_t kScalarBytes = 64 << 10;

struct Slot {
    VkCommandPool pool;
    VkCommandBuffer commands;
    uint64_t epoch;  // of its present or last use
    uint32_t pins;   // waiters that look at its progress without the lock
    uint32_t command_count;
    uint64_t submit_ns;
    bool lost;          // the driver refused it
    bool host_barrier;  // it ends with one
};

class Submissions {
public:
    uint64_t completed;  // newest epoch known to be done
    uint64_t submitted;  // newest epoch handed to the queue
    bool open;           // a batch of epoch submitted + 1 is being recorded
    FlushPolicy::Batch batch;
    Progress progress;
    OwnedBuffer scalars;
    Timeline timeline;

    uint64_t open_epoch() const { return submitted + 1; }
    uint64_t in_flight() const { return submitted - completed; }
    // The epoch whose end is that of every command so far.
    uint64_t newest_recorded() const { return open && batch.commands > 0 ? open_epoch() : submitted; }
    Slot &slot_of(uint64_t epoch) { return slots[epoch & (kSlots - 1)]; }
    uint32_t open_slot() const { return (uint32_t)(open_epoch() & (kSlots - 1)); }
    VkCommandBuffer commands() { return slot_of(open_epoch()).commands; }
    // For the open batch's next dispatch. A pipeline that is bound already costs nothing (0.07 us to bind, H200).
    void bind_pipeline(Gpu &gpu, VkPipeline pipeline) {
        if (bound == pipeline) return;
        bound = pipeline;
        gpu.vk.vkCmdBindPipeline(commands(), VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    }

    bool create(Gpu &gpu, Failure &failure);
    void destroy(Gpu &gpu);
    bool create_pools(Gpu &gpu, Failure &failure);
    void destroy_pools(Gpu &gpu);

    // A dispatch was recorded; `has_run` is its pipeline's, and true from here on. A CPU device compiles a pipeline
    // when it runs for the first time, and must not do so while the process ends: what its compiler has made since its
    // first use, in destructors that run at exit, is gone before our handler waits for it (lavapipe: LLVM goes round in
    // circles then). So the call that recorded it waits.
    void note_run(const Gpu &gpu, bool &has_run) {
        if (__builtin_expect(has_run, 1)) return;
        has_run = true;
        if (gpu.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) first_run = open_epoch();
    }
    // The epoch that the session has to wait for when it ends; 0: none.
    uint64_t take_first_run() {
        if (__builtin_expect(first_run == 0, 1)) return 0;
        const uint64_t epoch = first_run;
        first_run = 0;
        return epoch;
    }

    // Asks what is done. No call when nothing is in flight; one with a timeline, else one for each that is done. False
    // when the driver did not answer: nothing is known then, and nothing is lost unless the device is.
    bool poll(Gpu &gpu) {
        for (skip_lost(); completed < submitted; skip_lost()) {
            uint64_t newest = completed;
            const VkResult result = progress.passed(gpu, completed + 1, &newest);
            if (result == VK_NOT_READY) return true;
            if (result != VK_SUCCESS) {
                Failure ignored;
                gpu_failed(gpu, ignored, progress.query_name(), result);
                return false;
            }
            completed = min_of(newest, submitted);
            if (progress.has_timeline()) break;
        }
        skip_lost();
        return true;
    }
    // Refused submissions right behind what is done are done as well.
    void skip_lost() {
        while (completed < submitted && slot_of(completed + 1).lost) completed++;
    }

    // Whether a batch can be open now: it is, or its slot is free. When not, `*wait_for` is the epoch to wait for; 0
    // means a waiter still holds the slot and will let go in a moment.
    bool can_open(Gpu &gpu, uint64_t *wait_for) {
        if (open) return true;
        Slot &slot = slot_of(open_epoch());
        if (slot.epoch > completed) poll(gpu);
        *wait_for = slot.epoch > completed ? slot.epoch : 0;
        return slot.epoch <= completed && slot.pins == 0;
    }

    // After can_open. Begins a batch if none is open.
    bool open_batch(Gpu &gpu, Failure &failure);

    // Begins the next batch, if its slot is free, for a caller that has time: one that is about to wait for the GPU.
    // Resetting and beginning cost 1 to 2 us (H200), which the next command then need not pay. What is refused here is
    // tried again, and told, by the call that needs the batch.
    void open_ahead(Gpu &gpu) {
        Failure ignored;
        const Slot &slot = slot_of(open_epoch());
        if (!open && slot.epoch <= completed && slot.pins == 0 && !gpu.lost) open_batch(gpu, ignored);
    }

    // Room for scalar arguments in the open batch; null when the batch is full and must be submitted first.
    uint8_t *scalar_space(const Gpu &gpu, uint64_t bytes, uint64_t *offset) {
        const uint64_t at = align_up(scalars_used, max_of<uint64_t>(16, gpu.limits().minUniformBufferOffsetAlignment));
        if (at + bytes > kScalarBytes) return nullptr;
        scalars_used = at + bytes;
        *offset = open_slot() * kScalarBytes + at;
        return scalars.mapped + *offset;
    }

    // Notes a command's accesses; records a barrier before it where one of them conflicts with what may be running.
    void order(Gpu &gpu, const Access *accesses, size_t count) {
        if (untouched) {
            untouched = false;
            if (completed == submitted && !outside) hazards.clear();
            if (outside) hazards.assume_anything();
        }
        if (!hazards.add(accesses, count) && !gpu.serial) {
            barriers_spared++;
            return;
        }
        record_barrier(gpu);
        outside_ordered |= outside;
        outside = false;
    }
    void record_barrier(Gpu &gpu);

    // Work that is not ours may be on the queue.
    void note_outside_work() {
        outside = true;
        untouched = true;
    }
    // The open batch writes what the CPU may read, or write over, without a command in between.
    void end_with_host_barrier() { host_barrier = true; }

    bool submit(Gpu &gpu, Failure &failure);

    // Forgets the open batch: an empty one for a change of queue, any at exit.
    void abandon_batch() {
        if (!open) return;
        slot_of(open_epoch()).epoch = 0;
        open = false;
        forget_barriers();
    }

    // Waits for everything in flight, under the lock: for rare events only. *call: as Progress::wait.
    VkResult drain(Gpu &gpu, const char **call) {
        uint64_t target = submitted;
        while (target > completed && slot_of(target).lost) target--;
        const VkResult result = target > completed ? progress.wait(gpu, target, call) : VK_SUCCESS;
        if (result == VK_SUCCESS) completed = submitted;
        return result;
    }

    // A refused submission that no call was told of yet (the flusher's): its message, once.
    const char *take_unreported() {
        const bool had = unreported;
        unreported = false;
        return had ? cause : nullptr;
    }
    void leave_unreported() { unreported = true; }
    bool has_unreported() const { return unreported; }

    // Whether the submission of this epoch was refused, so that what it should have written was not.
    bool was_lost(uint64_t epoch) const {
        if (epoch == 0 || lost_count == 0) return false;
        for (uint64_t e : lost_epochs) {
            if (e == epoch) return true;
        }
        return false;
    }
    const char *lost_cause() const { return without_origin(cause); }
    // Submissions that were refused, ever.
    uint32_t losses() const { return lost_count; }

    // What epochs up to here wrote, the CPU may touch: they are done, and so is a barrier to the host behind them. One
    // that is still to run says nothing, whatever is done before it.
    uint64_t host_done() const {
        if (host_epoch <= completed) return host_epoch;
        uint64_t newest = host_before;
        for (const Slot &slot : slots) {
            if (slot.host_barrier && slot.epoch <= completed) newest = max_of(newest, slot.epoch);
        }
        return newest;
    }

    uint32_t row;          // submissions since a caller last waited
    uint64_t submissions;  // ever, for statistics
    uint64_t barriers, barriers_spared;
    uint64_t commands_submitted;
    uint64_t batches;  // submissions of two commands or more
    uint64_t refused() const { return lost_count; }

private:
    Slot slots[kSlots];
    Hazards hazards;
    bool untouched;        // no command of the open batch was ordered yet
    bool outside;          // work that is not ours may be on the queue
    bool outside_ordered;  // a barrier of the open batch waits for such work
    bool host_barrier;     // see end_with_host_barrier
    uint64_t host_epoch;   // newest submission that ends with one
    uint64_t host_before;  // newest of those whose slots are used again
    VkPipeline bound;      // in the open batch
    uint64_t first_run;    // see note_run; 0: none, or taken
    uint64_t scalars_used;
    // The newest refused submissions. Memory::note_losses marks the regions before one is overwritten here.
    uint64_t lost_epochs[32];
    uint32_t lost_count;
    bool unreported;
    char cause[256];

    void record_host_barrier(Gpu &gpu);
    // The barriers of the open batch will never run.
    void forget_barriers() {
        hazards.assume_anything();
        outside |= outside_ordered;
    }
    void give_up_batch(const Failure &failure) {
        Slot &slot = slot_of(open_epoch());
        slot.lost = true;
        timeline.drop_batch(slot.epoch);
        slot.command_count = 0;
        lost_epochs[lost_count++ & 31] = open_epoch();
        Text(cause, sizeof(cause)) << failure.message;
        submitted++;
        open = false;
        forget_barriers();
        if (completed + 1 == submitted) completed = submitted;
    }
};

inline void Submissions::destroy_pools(Gpu &gpu) {
    for (Slot &slot : slots) {
        if (!slot.pool) continue;
        trace("vk_destroy_command_buffer", handle_number(slot.pool));
        trace("vk_destroy_command_pool", handle_number(slot.pool));
        gpu.vk.vkDestroyCommandPool(gpu.device, slot.pool, gpu.callbacks);
        slot.pool = VK_NULL_HANDLE;
        slot.commands = nullptr;
    }
}

inline bool Submissions::create_pools(Gpu &gpu, Failure &failure) {
    for (Slot &slot : slots) {
        VkCommandPoolCreateInfo pool = {};
        pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
        pool.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
        pool.queueFamilyIndex = gpu.family;
        VkResult result = gpu.vk.vkCreateCommandPool(gpu.device, &pool, gpu.callbacks, &slot.pool);
        if (result != VK_SUCCESS) {
            slot.pool = VK_NULL_HANDLE;
            gpu_failed(gpu, failure, "vkCreateCommandPool", result);
            return false;
        }
        VkCommandBufferAllocateInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
        info.commandPool = slot.pool;
        info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
        info.commandBufferCount = 1;
        result = gpu.vk.vkAllocateCommandBuffers(gpu.device, &info, &slot.commands);
        if (result != VK_SUCCESS) {
            gpu.vk.vkDestroyCommandPool(gpu.device, slot.pool, gpu.callbacks);
            slot.pool = VK_NULL_HANDLE;
            gpu_failed(gpu, failure, "vkAllocateCommandBuffers", result);
            return false;
        }
        const uint64_t number = (uint64_t)(&slot - slots) + 1;
        name_object(gpu, VK_OBJECT_TYPE_COMMAND_POOL, slot.pool, "commands of slot", number);
        name_object(gpu, VK_OBJECT_TYPE_COMMAND_BUFFER, slot.commands, "commands of slot", number);
        trace("vk_create_command_pool", handle_number(slot.pool));
        trace("vk_create_command_buffer", handle_number(slot.pool));
    }
    return true;
}

inline bool Submissions::create(Gpu &gpu, Failure &failure) {
    MemoryOrder order;
    plan_scalar_memory(gpu.memory, order);
    return progress.create(gpu, failure) && create_pools(gpu, failure) &&
           create_buffer(gpu, kSlots * kScalarBytes, VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT, order, true,
                         "scalar arguments", scalars, failure);
}

inline void Submissions::destroy(Gpu &gpu) {
    destroy_pools(gpu);
    progress.destroy(gpu);
    destroy_buffer(gpu, scalars);
}

inline void Submissions::record_barrier(Gpu &gpu) {
    VkMemoryBarrier barrier = {};
    barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    barrier.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                            VK_ACCESS_TRANSFER_WRITE_BIT;
    const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    if (outside) barrier.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
    gpu.vk.vkCmdPipelineBarrier(commands(), outside ? VK_PIPELINE_STAGE_ALL_COMMANDS_BIT : stages, stages, 0, 1,
                                &barrier, 0, nullptr, 0, nullptr);
    barriers++;
}

inline void Submissions::record_host_barrier(Gpu &gpu) {
    VkMemoryBarrier barrier = {};
    barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    barrier.dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT;
    gpu.vk.vkCmdPipelineBarrier(commands(), VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                                VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

inline bool Submissions::open_batch(Gpu &gpu, Failure &failure) {
    if (open) return true;
    if (!check_not_lost(gpu, failure)) return false;
    Slot &slot = slot_of(open_epoch());
    const char *call = "vkResetFences";
    VkResult result = progress.prepare(gpu, open_epoch());
    if (result == VK_SUCCESS) {
        call = "vkResetCommandPool";
        result = gpu.vk.vkResetCommandPool(gpu.device, slot.pool, 0);
    }
    if (result == VK_SUCCESS) {
        VkCommandBufferBeginInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
        info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
        call = "vkBeginCommandBuffer";
        result = gpu.vk.vkBeginCommandBuffer(slot.commands, &info);
    }
    if (result != VK_SUCCESS) {
        gpu_failed(gpu, failure, call, result);
        return false;
    }
    if (slot.host_barrier) host_before = max_of(host_before, slot.epoch);
    slot.host_barrier = false;
    slot.lost = false;
    slot.epoch = open_epoch();
    open = true;
    batch = {};
    scalars_used = 0;
    untouched = true;
    outside_ordered = false;
    host_barrier = false;
    bound = VK_NULL_HANDLE;
    timeline.begin_batch(gpu, slot.commands, slot.epoch);
    return true;
}

// An empty batch stays open. On failure the batch is lost and its slot free again; the failure names the call.
inline bool Submissions::submit(Gpu &gpu, Failure &failure) {
    if (!open || batch.commands == 0) return true;
    if (gpu.lost) {  // by another call, since the batch was begun
        Failure known;
        check_not_lost(gpu, known);
        failure.take(known);
        give_up_batch(known);
        return false;
    }
    TraceSpan span(TraceKind::submit, "submit");
    Slot &slot = slot_of(open_epoch());
    if (host_barrier) record_host_barrier(gpu);
    timeline.end_batch(gpu, slot.commands, slot.epoch);
    Failure cause_of_loss;
    VkResult result = gpu.vk.vkEndCommandBuffer(slot.commands);
    const char *call = "vkEndCommandBuffer";
    if (result == VK_SUCCESS) {
        call = "vkQueueSubmit";
        result = progress.submit(gpu, slot.commands, open_epoch());
        // Finished work gives memory back to the driver: let it finish, try once more.
        const char *ignored = nullptr;
        if (is_out_of_memory(result) && drain(gpu, &ignored) == VK_SUCCESS)
            result = progress.submit(gpu, slot.commands, open_epoch());
    }
    if (result != VK_SUCCESS) {
        gpu_failed(gpu, cause_of_loss, call, result)
            << " for a submission of " << batch.commands << " commands; what they were to write is lost";
        failure.take(cause_of_loss);
        give_up_batch(cause_of_loss);
        return false;
    }
    span.tell(open_epoch(), batch.commands, in_flight());
    slot.command_count = batch.commands;
    slot.submit_ns = now_ns(gpu.clock);
    submitted++;
    slot.host_barrier = host_barrier;
    if (host_barrier) host_epoch = submitted;
    submissions++;
    commands_submitted += batch.commands;
    batches += batch.commands > 1;
    row++;
    open = false;
    return true;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_SUBMISSION_H
