// vulkan_timeline.h: when the commands of one device ran, by timestamps, for the trace.
//
// Each slot of the submission ring has one query pool: a timestamp at the head and the end of the batch and on both
// sides of each command. They are written by the GPU in passing (TOP_OF_PIPE before, BOTTOM_OF_PIPE after) and read
// when the submission is known to be done, so nothing waits for them. Commands that overlap have spans that overlap;
// a viewer wants the spans of a track to nest, so they are laid on several lanes. Where true times of single kernels
// are wanted, HL_VK_TRACE_SERIAL puts a barrier before every command.
//
// Pools and records are made with the device, and only when tracing is on then. A device without timestamps, or whose
// query pools are refused, is traced on the CPU's side alone, and the trace says so.
//
// Thread rule: unsafe, the device's lock.

#ifndef HALIDE_VULKAN_TIMELINE_H
#define HALIDE_VULKAN_TIMELINE_H

#include "vulkan_timestamps.h"
#include "vulkan_trace.h"

namespace halide_vulkan {
namespace {

// As many as the submission ring has slots (vulkan_submission.h).
constexpr uint32_t kTimedSlots = 16;
// Commands of a batch that are timed. A batch has 64, and a few more where one launch copies its arguments.
constexpr uint32_t kTimedCommands = 80;
constexpr uint32_t kTimedQueries = 2 + 2 * kTimedCommands;
// Work that ran at the same time is shown on so many lanes; more is drawn shorter.
constexpr uint32_t kSubmissionLanes = 4, kCommandLanes = 16;

struct TimedCommand {
    TraceKind kind;
    uint64_t bytes;
    char name[kTraceName];
};

struct TimedBatch {
    uint64_t epoch;  // 0: nothing to read
    uint64_t submit_ns;
    uint64_t track;  // the thread that submitted it
    uint32_t commands;
    TimedCommand command[kTimedCommands];
};

class Timeline {
public:
    bool on;

    bool create(Gpu &gpu, const InstanceFunctions &vk);
    void destroy(Gpu &gpu);

    // The queue is one of another family from now on. All work is done.
    void change_family(Gpu &gpu, uint64_t completed);

    // A batch is begun, and is about to be ended. The slot's former submission is done.
    void begin_batch(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch) {
        if (__builtin_expect(on, 0)) begin_batch_(gpu, commands, epoch);
    }
    void end_batch(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch) {
        if (__builtin_expect(on, 0)) end_batch_(gpu, commands, epoch);
    }
    // The batch was refused, or thrown away.
    void drop_batch(uint64_t epoch) {
        if (__builtin_expect(on, 0)) batches[epoch & (kTimedSlots - 1)].epoch = 0;
    }

    // Around the recording of one command.
    void begin_command(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch, TraceKind kind, const char *name,
                       uint64_t bytes);
    void end_command(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch);

    // Reads what is done.
    void collect(Gpu &gpu, uint64_t completed) {
        if (!__builtin_expect(on, 0)) return;
        for (uint64_t e = completed > kTimedSlots ? completed - kTimedSlots + 1 : 1; e <= completed; e++) read(gpu, e);
    }

private:
    uint32_t device;                    // its number in the trace
    uint32_t valid_bits[kMaxFamilies];  // of timestamps, for each queue family
    bool can_calibrate;
    PFN_vkGetCalibratedTimestampsEXT ask_times;
    Timestamps clock;
    VkQueryPool pools[kTimedSlots];
    TimedBatch *batches;  // kTimedSlots
    uint64_t submission_ends[kSubmissionLanes], command_ends[kCommandLanes];
    bool told[kSubmissionLanes + kCommandLanes];

    uint32_t slot_of(uint64_t epoch) const { return (uint32_t)(epoch & (kTimedSlots - 1)); }
    void begin_batch_(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch);
    void end_batch_(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch);
    void read(Gpu &gpu, uint64_t epoch);
    void calibrate(Gpu &gpu);
    uint32_t place(uint64_t *ends, uint32_t lanes, uint32_t first, uint64_t &begin, uint64_t end);
    bool find_domains(const Gpu &gpu, const InstanceFunctions &vk);
};

// Whether the driver relates the device's clock to the one that everything here is timed with.
inline bool Timeline::find_domains(const Gpu &gpu, const InstanceFunctions &vk) {
    // The extension's successor has the same functions under other names, which older headers do not know.
    Failure ignored;
    const PFN_vkGetInstanceProcAddr find = find_loader(nullptr, ignored);
    ask_times = gpu.vk.vkGetCalibratedTimestampsEXT;
    if (!ask_times)
        ask_times =
            (PFN_vkGetCalibratedTimestampsEXT)vk.vkGetDeviceProcAddr(gpu.device, "vkGetCalibratedTimestampsKHR");
    PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT ask = vk.vkGetPhysicalDeviceCalibrateableTimeDomainsEXT;
    if (!ask && find)
        ask = (PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT)find(
            gpu.instance, "vkGetPhysicalDeviceCalibrateableTimeDomainsKHR");
    if (!ask || !ask_times) return false;
    VkTimeDomainEXT domains[16];
    uint32_t count = 16;
    const VkResult result = ask(gpu.physical, &count, domains);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE) return false;
    bool device = false, monotonic = false;
    for (uint32_t i = 0; i < count; i++) {
        device |= domains[i] == VK_TIME_DOMAIN_DEVICE_EXT;
        monotonic |= domains[i] == VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT;
    }
    return device && monotonic;
}

// False: no timestamps, and nothing is left behind.
inline bool Timeline::create(Gpu &gpu, const InstanceFunctions &vk) {
    on = false;
    if (!tracing()) return false;
    device = tracer.next_device();
    char line[kTraceName];
    Text(line, sizeof(line)) << "Vulkan device " << device << ": " << gpu.properties.deviceName;
    tracer.push(TraceKind::name_process, device, 0, line, 0, 0, nullptr, 0);
    VkQueueFamilyProperties families[kMaxFamilies];
    const uint32_t count = read_families(vk, gpu.physical, families);
    for (uint32_t i = 0; i < count; i++) valid_bits[i] = families[i].timestampValidBits;
    const uint32_t bits = gpu.family < count ? valid_bits[gpu.family] : 0;
    const float period = gpu.limits().timestampPeriod;
    // Periods are from 0.5 (some GPUs) to 1000 ns; what does not fit the fixed point is no clock.
    if (bits == 0 || !(period > 0.0f && period < 32768.0f)) {
        tracer.note("this device has no timestamps: only the CPU's side is traced");
        return false;
    }
    batches = (TimedBatch *)host_malloc(sizeof(TimedBatch) * kTimedSlots);
    VkResult result = batches ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
    if (batches) __builtin_memset((void *)batches, 0, sizeof(TimedBatch) * kTimedSlots);
    for (uint32_t i = 0; i < kTimedSlots && result == VK_SUCCESS; i++) {
        VkQueryPoolCreateInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
        info.queryType = VK_QUERY_TYPE_TIMESTAMP;
        info.queryCount = kTimedQueries;
        result = gpu.vk.vkCreateQueryPool(gpu.device, &info, gpu.callbacks, &pools[i]);
        if (result != VK_SUCCESS) pools[i] = VK_NULL_HANDLE;
        if (pools[i]) name_object(gpu, VK_OBJECT_TYPE_QUERY_POOL, pools[i], "times of slot", i + 1);
    }
    if (result != VK_SUCCESS) {
        Failure cause;
        gpu_failed(gpu, cause, "vkCreateQueryPool", result);
        tracer.note(cause.message);
        destroy(gpu);
        return false;
    }
    clock.init(period, bits);
    can_calibrate = gpu.abilities.calibrated && tracer.is_monotonic() && find_domains(gpu, vk);
    calibrate(gpu);
    if (!clock.calibrated()) tracer.note("this device's times are estimated: its clock is not calibrated");
    on = true;
    return true;
}

inline void Timeline::destroy(Gpu &gpu) {
    for (VkQueryPool &pool : pools) {
        if (pool) gpu.vk.vkDestroyQueryPool(gpu.device, pool, gpu.callbacks);
        pool = VK_NULL_HANDLE;
    }
    host_free(batches);
    batches = nullptr;
    on = false;
}

HALIDE_VULKAN_COLD inline void Timeline::change_family(Gpu &gpu, uint64_t completed) {
    if (!batches) return;
    collect(gpu, completed);
    const uint32_t bits = gpu.family < kMaxFamilies ? valid_bits[gpu.family] : 0;
    if (on && bits == 0) tracer.note("the queue has no timestamps: only the CPU's side is traced");
    on = bits != 0;
    if (!on) return;
    clock.init(gpu.limits().timestampPeriod, bits);
    calibrate(gpu);
}

HALIDE_VULKAN_COLD inline void Timeline::calibrate(Gpu &gpu) {
    if (!can_calibrate || !clock.wants_calibration(tracer.now())) return;
    VkCalibratedTimestampInfoEXT infos[2] = {};
    infos[0].sType = infos[1].sType = VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT;
    infos[0].timeDomain = VK_TIME_DOMAIN_DEVICE_EXT;
    infos[1].timeDomain = VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT;
    uint64_t times[2], deviation = 0;
    const VkResult result = ask_times(gpu.device, 2, infos, times, &deviation);
    if (result == VK_SUCCESS) {
        clock.calibrate(times[0], times[1]);
        return;
    }
    // What was calibrated before still holds for a while; otherwise submissions bound it.
    can_calibrate = false;
    Failure cause;
    gpu_failed(gpu, cause, "vkGetCalibratedTimestamps", result);
    tracer.note(cause.message);
}

HALIDE_VULKAN_COLD inline void Timeline::begin_batch_(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch) {
    if (epoch > kTimedSlots) read(gpu, epoch - kTimedSlots);
    TimedBatch &b = batches[slot_of(epoch)];
    b.epoch = 0;  // until it is submitted
    b.commands = 0;
    gpu.vk.vkCmdResetQueryPool(commands, pools[slot_of(epoch)], 0, kTimedQueries);
    gpu.vk.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, pools[slot_of(epoch)], 0);
}

HALIDE_VULKAN_COLD inline void Timeline::end_batch_(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch) {
    TimedBatch &b = batches[slot_of(epoch)];
    gpu.vk.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pools[slot_of(epoch)], 1);
    b.epoch = epoch;
    b.submit_ns = tracer.now();
    b.track = tracer.this_thread();
    const uint64_t id[2] = {device, epoch};
    tracer.push(TraceKind::flow_begin, 0, b.track, nullptr, b.submit_ns, 0, id, 2);
}

HALIDE_VULKAN_COLD inline void Timeline::begin_command(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch,
                                                       TraceKind kind, const char *name, uint64_t bytes) {
    TimedBatch &b = batches[slot_of(epoch)];
    if (b.commands == kTimedCommands) return;
    TimedCommand &c = b.command[b.commands];
    c.kind = kind;
    c.bytes = bytes;
    set_trace_name(c.name, name);
    gpu.vk.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, pools[slot_of(epoch)], 2 + 2 * b.commands);
}

HALIDE_VULKAN_COLD inline void Timeline::end_command(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch) {
    TimedBatch &b = batches[slot_of(epoch)];
    if (b.commands == kTimedCommands) return;
    gpu.vk.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pools[slot_of(epoch)],
                               3 + 2 * b.commands);
    b.commands++;
}

// The first lane that is free at `begin`; when none is, the one that is free first, and the span is drawn from there.
inline uint32_t Timeline::place(uint64_t *ends, uint32_t lanes, uint32_t first, uint64_t &begin, uint64_t end) {
    uint32_t lane = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        if (ends[i] <= begin) {
            lane = i;
            break;
        }
        if (ends[i] < ends[lane]) lane = i;
    }
    begin = max_of(begin, ends[lane]);
    ends[lane] = max_of(begin, end);
    if (!told[first + lane]) {
        told[first + lane] = true;
        char line[kTraceName];
        Text text(line, sizeof(line));
        text << (first == 0 ? "submissions" : "commands");
        if (lane) text << ", overlapping " << lane;
        tracer.push(TraceKind::name_thread, device, first + lane + 1, line, 0, 0, nullptr, 0);
    }
    return first + lane + 1;
}

HALIDE_VULKAN_COLD inline void Timeline::read(Gpu &gpu, uint64_t epoch) {
    TimedBatch &b = batches[slot_of(epoch)];
    if (b.epoch != epoch) return;  // read before, refused, or not timed
    b.epoch = 0;
    uint64_t ticks[kTimedQueries];
    const uint32_t count = 2 + 2 * b.commands;
    const VkResult result =
        gpu.vk.vkGetQueryPoolResults(gpu.device, pools[slot_of(epoch)], 0, count, count * sizeof(uint64_t), ticks,
                                     sizeof(uint64_t), VK_QUERY_RESULT_64_BIT);
    if (result != VK_SUCCESS) {
        Failure cause;
        gpu_failed(gpu, cause, "vkGetQueryPoolResults", result);
        tracer.note(cause.message);
        return;
    }
    calibrate(gpu);
    clock.bound(ticks[0], ticks[1], b.submit_ns, tracer.now());
    uint64_t begin = clock.cpu_ns(ticks[0]);
    const uint64_t end = clock.cpu_ns(ticks[1]);
    uint64_t numbers[3] = {epoch, b.commands, clock.calibrated()};
    uint64_t lane = place(submission_ends, kSubmissionLanes, 0, begin, end);
    tracer.push(TraceKind::gpu_submission, device, lane, "submission", begin, end, numbers, 3);
    const uint64_t id[2] = {device, epoch};
    tracer.push(TraceKind::flow_end, device, lane, nullptr, begin, 0, id, 2);
    for (uint32_t i = 0; i < b.commands; i++) {
        const TimedCommand &c = b.command[i];
        begin = clock.cpu_ns(ticks[2 + 2 * i]);
        const uint64_t command_end = clock.cpu_ns(ticks[3 + 2 * i]);
        lane = place(command_ends, kCommandLanes, kSubmissionLanes, begin, command_end);
        const uint64_t of_command[3] = {epoch, clock.calibrated(), c.bytes};
        tracer.push(c.kind, device, lane, c.name, begin, command_end, of_command, 3);
    }
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_TIMELINE_H
