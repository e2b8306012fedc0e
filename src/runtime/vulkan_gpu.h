// vulkan_gpu.h: one VkDevice and its queue as everything below uses it, and buffers with memory of their own.
//
// The latch: VK_ERROR_DEVICE_LOST ends a device. The first cause is kept with the call that met it, and every later
// call returns it without asking the driver again, until device_release.
//
// Thread rule: the owner's lock (vulkan_device.h) guards everything but the tables and limits, which never change.

#ifndef HALIDE_VULKAN_GPU_H
#define HALIDE_VULKAN_GPU_H

#include "vulkan_instance.h"

namespace halide_vulkan {
namespace {

// The debug flavour says what is made and destroyed; Halide's object lifetime tests count these lines. One of the
// counted words per line, and none of them anywhere else.
#ifdef DEBUG_RUNTIME
inline void trace(const char *what, uint64_t value = 0) {
    char line[256];
    Text text(line, sizeof(line));
    text << what << " ";
    text.hex(value) << "\n";
    halide_print(nullptr, line);
}
#else
inline void trace(const char *, uint64_t = 0) {}
#endif

// A non-dispatchable handle as a number: a pointer on 64-bit targets, already a number on 32-bit ones.
template<typename H>
inline uint64_t handle_number(H handle) {
    return (uint64_t)handle;
}

// A clock that only goes forward, for policies; 0 where there is none. Halide's own reads the wall clock through a
// system call; this one is some 20 ns on Linux. Elsewhere clock 1 is another clock or none, and the policies do
// without.
typedef int (*ClockGetTime)(int clock, long *seconds_and_nanoseconds);
inline ClockGetTime find_clock() {
#ifdef WINDOWS
    return nullptr;
#else
    return (ClockGetTime)halide_get_symbol("clock_gettime");
#endif
}
inline uint64_t now_ns(ClockGetTime clock) {
    long t[2] = {0, 0};
    if (!clock || clock(1, t) != 0) return 0;
    return (uint64_t)t[0] * 1000000000u + (uint64_t)t[1];
}

// What a look at the clock may cost to be worth it in each launch and several times in each wait. It is 40 to 50 ns
// where the processor's counter can be used, and 2,200 on virtual machines where it cannot (an H200 machine was met in
// that state: a launch took 4.3 us instead of 2.4, with a wait 26 us more).
constexpr uint64_t kDearClock_ns = 300;

// Null where the clock is dear: then nobody looks, and the policies count instead.
inline ClockGetTime clock_for_policies(ClockGetTime clock) {
    constexpr int kLooks = 8;
    uint64_t least = UINT64_MAX;  // of two rounds: the first may be interrupted, or find the code cold
    for (int round = 0; round < 2; round++) {
        const uint64_t begin = now_ns(clock);
        uint64_t end = begin;
        for (int i = 0; i < kLooks; i++) end = now_ns(clock);
        least = min_of(least, (end - begin) / kLooks);
    }
    return least <= kDearClock_ns ? clock : nullptr;
}

// The kernels that were recorded last: when the device is lost, one of them is the likeliest cause. Names are copied,
// since a pipeline may be unloaded before its work is done; some 30 instructions of a launch.
class LastKernels {
public:
    // `bytes`: of the name, its end included.
    void note(const char *name, uint32_t bytes) {
        char *to = names[count++ & (kKept - 1)];
        __builtin_memcpy(to, name, min_of<uint32_t>(bytes, kLength));
        to[kLength - 1] = 0;
    }
    // " (last kernels: a, b)", the newest first, each once; nothing where there was none.
    HALIDE_VULKAN_COLD void tell(Text &text) const {
        const uint32_t kept = min_of(count, kKept);
        for (uint32_t i = 0; i < kept; i++) {
            const char *name = name_before(i);
            bool told = false;
            for (uint32_t k = 0; k < i && !told; k++) told = same_text(name_before(k), name);
            if (!told) text << (i == 0 ? " (last kernels: " : ", ") << name;
        }
        if (kept) text << ")";
    }

private:
    static constexpr uint32_t kKept = 4, kLength = 64;
    char names[kKept][kLength];
    uint32_t count;

    const char *name_before(uint32_t i) const { return names[(count - 1 - i) & (kKept - 1)]; }
};

struct Gpu {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    const VkAllocationCallbacks *callbacks;
    DeviceFunctions vk;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    NumberOptions options;
    AllocConfig alloc_config;
    DeviceAbilities abilities;
    uint64_t storage_range;          // see vulkan_plan.h
    uint32_t sharing[kMaxFamilies];  // queue families that share our buffers, see learn_sharing
    uint32_t sharing_count;
    bool marked;                     // commands are timed or labelled (vulkan_marks.h)
    bool serial;                     // a barrier before every command: HL_VK_TRACE_SERIAL
    VkPipelineCache pipeline_cache;  // borrowed from vulkan_cache.h; null before it is made
    // See vulkan_budget.h. 0 and null: not known.
    uint64_t largest_allocation;
    PFN_vkGetPhysicalDeviceMemoryProperties2 ask_memory;
    ClockGetTime clock;       // for policies; null where there is none, or a look is dear
    ClockGetTime rare_clock;  // for what happens seldom
    bool can_spin;
    LastKernels last_kernels;
    bool lost;
    char lost_message[448];

    const VkPhysicalDeviceLimits &limits() const { return properties.limits; }
};

// The name of an object in validation messages, RenderDoc and Nsight. That it is refused is no failure: a name is lost.
HALIDE_VULKAN_COLD inline void give_name(const Gpu &gpu, VkObjectType type, uint64_t handle, const char *what,
                                         uint64_t number) {
    if (!gpu.vk.vkSetDebugUtilsObjectNameEXT) return;
    char name[160];
    Text text(name, sizeof(name));
    text << "Halide: " << what;
    if (number) text << " " << number;
    VkDebugUtilsObjectNameInfoEXT info = {};
    info.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT;
    info.objectType = type;
    info.objectHandle = handle;
    info.pObjectName = name;
    gpu.vk.vkSetDebugUtilsObjectNameEXT(gpu.device, &info);
}
// `number`, from 1: which of several.
template<typename H>
inline void name_object(const Gpu &gpu, VkObjectType type, H handle, const char *what, uint64_t number = 0) {
    if (__builtin_expect(gpu.abilities.debug_utils, 0)) give_name(gpu, type, handle_number(handle), what, number);
}

// Of a device that is lost: the first cause, whoever met it.
HALIDE_VULKAN_COLD inline Text tell_lost(const Gpu &gpu, Failure &failure) {
    Text text = failure.because(kGpuDeviceError);
    text << kOrigin << gpu.lost_message;
    return text;
}

// Reports a failed call, and latches the loss of the device. A call that meets it after another thread's tells that.
HALIDE_VULKAN_COLD inline Text gpu_failed(Gpu &gpu, Failure &failure, const char *call, VkResult result,
                                          int code = kGenericError) {
    if (result != VK_ERROR_DEVICE_LOST) return call_failed(failure, call, result, code);
    if (gpu.lost) return tell_lost(gpu, failure);
    gpu.lost = true;
    Text kept(gpu.lost_message, sizeof(gpu.lost_message));
    kept << "the device was lost in " << call;
    gpu.last_kernels.tell(kept);
    kept << "; halide_device_release starts afresh";
    Text text = call_failed(failure, call, result, kGpuDeviceError);
    gpu.last_kernels.tell(text);
    return text;
}

inline bool check_not_lost(Gpu &gpu, Failure &failure) {
    if (gpu.lost) tell_lost(gpu, failure);
    return !gpu.lost;
}

// An application may lend a queue of another family from one call to the next. A buffer that is not shared would have
// to be handed over by a command on the queue that is left, which is not ours any more. So all families that compute
// share the buffers on such a device.
inline void learn_sharing(const InstanceFunctions &vk, Gpu &gpu) {
    VkQueueFamilyProperties families[kMaxFamilies];
    const uint32_t count = read_families(vk, gpu.physical, families);
    for (uint32_t i = 0; i < count; i++) {
        if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) gpu.sharing[gpu.sharing_count++] = i;
    }
}

// After that: whether commands may go to a queue of this family.
inline bool check_family(const Gpu &gpu, uint32_t family, Failure &failure) {
    bool found = gpu.sharing_count == 0;  // a device of ours, with the family that was chosen
    for (uint32_t i = 0; i < gpu.sharing_count; i++) found |= gpu.sharing[i] == family;
    if (!found) {
        Text text = failure.because(kNoDevice);
        text << "Vulkan: halide_vulkan_acquire_context gave a queue of family " << family << "; those that compute are";
        for (uint32_t i = 0; i < gpu.sharing_count; i++) text << " " << gpu.sharing[i];
    }
    return found;
}

// A buffer that owns its memory.
struct OwnedBuffer {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint8_t *mapped;  // null when the CPU cannot see it
    uint64_t size;
    uint32_t type;
    bool coherent;
    bool cached;
};

constexpr VkBufferUsageFlags kTransferUsage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;

inline void destroy_buffer(Gpu &gpu, OwnedBuffer &b) {
    if (b.buffer) gpu.vk.vkDestroyBuffer(gpu.device, b.buffer, gpu.callbacks);
    if (b.memory) gpu.vk.vkFreeMemory(gpu.device, b.memory, gpu.callbacks);  // unmaps
    b = {};
}

// A buffer without memory yet, to learn what the device asks of such buffers.
inline VkResult create_bare_buffer(Gpu &gpu, uint64_t size, VkBufferUsageFlags usage, VkBuffer *buffer,
                                   VkMemoryRequirements *needs) {
    VkBufferCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = size;
    info.usage = usage;
    if (gpu.sharing_count > 1) {
        info.sharingMode = VK_SHARING_MODE_CONCURRENT;
        info.queueFamilyIndexCount = gpu.sharing_count;
        info.pQueueFamilyIndices = gpu.sharing;
    }
    const VkResult result = gpu.vk.vkCreateBuffer(gpu.device, &info, gpu.callbacks, buffer);
    if (result == VK_SUCCESS)
        gpu.vk.vkGetBufferMemoryRequirements(gpu.device, *buffer, needs);
    else
        *buffer = VK_NULL_HANDLE;  // a call that failed may have left anything there
    return result;
}

// Tries the memory types in order until one works. Where the CPU can see the memory it is mapped for good (on 32-bit
// targets only if asked: address space is scarce there). On failure nothing is left behind.
inline bool create_buffer(Gpu &gpu, uint64_t size, VkBufferUsageFlags usage, const MemoryOrder &order, bool must_map,
                          const char *purpose, OwnedBuffer &out, Failure &failure) {
    out = {};
    VkMemoryRequirements needs;
    VkResult result = create_bare_buffer(gpu, size, usage, &out.buffer, &needs);
    const char *call = "vkCreateBuffer";
    if (result == VK_SUCCESS) {
        result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
        call = "vkAllocateMemory";
        for (uint32_t i = 0; i < order.count && result != VK_SUCCESS && result != VK_ERROR_DEVICE_LOST; i++) {
            if (!(needs.memoryTypeBits & (1u << order.types[i]))) continue;
            VkMemoryAllocateInfo info = {};
            info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
            info.allocationSize = needs.size;
            info.memoryTypeIndex = order.types[i];
            out.type = order.types[i];
            result = gpu.vk.vkAllocateMemory(gpu.device, &info, gpu.callbacks, &out.memory);
            if (result != VK_SUCCESS) out.memory = VK_NULL_HANDLE;
        }
    }
    if (result == VK_SUCCESS) {
        call = "vkBindBufferMemory";
        result = gpu.vk.vkBindBufferMemory(gpu.device, out.buffer, out.memory, 0);
    }
    if (result == VK_SUCCESS) {
        const VkMemoryPropertyFlags flags = gpu.memory.memoryTypes[out.type].propertyFlags;
        out.size = size;
        out.coherent = (flags & kCoherent) != 0;
        out.cached = (flags & kCached) != 0;
        if ((flags & kVisible) && (must_map || sizeof(void *) == 8)) {
            void *mapped = nullptr;
            call = "vkMapMemory";
            result = gpu.vk.vkMapMemory(gpu.device, out.memory, 0, VK_WHOLE_SIZE, 0, &mapped);
            if (result == VK_SUCCESS) out.mapped = (uint8_t *)mapped;
            // What need not be mapped works without: it is only slower to reach.
            if (!must_map && result != VK_ERROR_DEVICE_LOST) result = VK_SUCCESS;
        }
    }
    if (result == VK_SUCCESS) {
        name_object(gpu, VK_OBJECT_TYPE_BUFFER, out.buffer, purpose);
        name_object(gpu, VK_OBJECT_TYPE_DEVICE_MEMORY, out.memory, purpose);
        return true;
    }
    destroy_buffer(gpu, out);
    gpu_failed(gpu, failure, call, result) << ": asked for " << size << " bytes for " << purpose;
    return false;
}

// Before the GPU reads what the CPU wrote, and before the CPU reads what the GPU wrote; nothing to do where memory is
// coherent. Ranges are widened to the device's atom, which neighbours never share (region_alignment).
inline VkMappedMemoryRange mapped_range(const Gpu &gpu, const OwnedBuffer &b, uint64_t offset, uint64_t bytes) {
    const uint64_t atom = max_of<uint64_t>(1, gpu.limits().nonCoherentAtomSize);
    VkMappedMemoryRange range = {};
    range.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE;
    range.memory = b.memory;
    range.offset = align_down(offset, atom);
    range.size = align_up(offset + bytes, atom) - range.offset;
    if (range.offset + range.size >= b.size) range.size = VK_WHOLE_SIZE;
    return range;
}
inline bool flush_written(Gpu &gpu, const OwnedBuffer &b, uint64_t offset, uint64_t bytes, Failure &failure) {
    if (b.coherent || bytes == 0) return true;
    const VkMappedMemoryRange range = mapped_range(gpu, b, offset, bytes);
    const VkResult result = gpu.vk.vkFlushMappedMemoryRanges(gpu.device, 1, &range);
    if (result == VK_SUCCESS) return true;
    gpu_failed(gpu, failure, "vkFlushMappedMemoryRanges", result);
    return false;
}
inline bool invalidate_before_read(Gpu &gpu, const OwnedBuffer &b, uint64_t offset, uint64_t bytes, Failure &failure) {
    if (b.coherent || bytes == 0) return true;
    const VkMappedMemoryRange range = mapped_range(gpu, b, offset, bytes);
    const VkResult result = gpu.vk.vkInvalidateMappedMemoryRanges(gpu.device, 1, &range);
    if (result == VK_SUCCESS) return true;
    gpu_failed(gpu, failure, "vkInvalidateMappedMemoryRanges", result);
    return false;
}

// Processors that this process may run on; 0 when that cannot be learnt (sched_getaffinity is glibc's and bionic's).
HALIDE_VULKAN_COLD inline uint32_t usable_cores() {
    typedef int (*GetAffinity)(int, size_t, void *);
    const GetAffinity get_affinity = (GetAffinity)halide_get_symbol("sched_getaffinity");
    uint64_t mask[16] = {};  // 1024 processors, the size of glibc's own cpu_set_t
    if (!get_affinity || get_affinity(0, sizeof(mask), mask) < 0) return 0;
    uint32_t cores = 0;
    for (uint64_t word : mask) {
        for (; word; word &= word - 1) cores++;
    }
    return cores;
}

// Whether a thread may spin while the device works: not on a CPU device, which needs the core itself, and not with one
// usable core.
inline bool spinning_pays(const NumberOptions &options, VkPhysicalDeviceType type, uint32_t cores) {
    return options.spin && type != VK_PHYSICAL_DEVICE_TYPE_CPU && cores != 1;
}

// Threads that help the caller with a large copy. Half the cores: the program has other things to do. Where the cores
// are not known, none. The option counts the caller too.
inline uint32_t copy_threads(const NumberOptions &options, uint32_t cores) {
    return options.copy_threads ? options.copy_threads - 1 : min_of(7u, cores / 2);
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_GPU_H
