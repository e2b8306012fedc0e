// vulkan_describe.h: the machine and the plan, told as JSON: what `halide-vulkan info` and `doctor` show.
//
// Problem: "why is it slow here" and "why this device" are questions about decisions that nobody sees. So the runtime
// tells for each device what it reports, and what the plan makes of it, by calling the very functions that decide.
// A short-lived instance is made for the look, and no device: asking changes nothing.
//
// The text is one object:
//   {"version":, "flavour":, "stage":, "error":, "loader_version":, "request":{}, "in_use":, "chosen":, "chosen_by":,
//    "devices":[{"name":, ..., "limits":{}, "heaps":[], "types":[], "families":[], "features":{}, "plan":{}}]}
// "stage" is how far the look came: loader, instance, devices, choice, done. "chosen" and "in_use" are places in
// "devices", absent when there is none. A device whose features cannot be asked for has an "error" in their place.
// Later versions add names and remove none.
//
// Thread rule: entered by any number of threads; takes the context's lock to read which device is in use.

#ifndef HALIDE_VULKAN_DESCRIBE_H
#define HALIDE_VULKAN_DESCRIBE_H

#include "vulkan_context.h"
#include "vulkan_json.h"

extern "C" {

// Writes at most `bytes` to `out` and returns how many the whole text needs, with its NUL, as snprintf does.
size_t halide_vulkan_describe(void *user_context, char *out, size_t bytes);

}  // extern "C"

namespace halide_vulkan {
namespace {

// The project's version, as in CMakeLists.txt; a test compares the two.
constexpr const char *kVersion = "0.1.0";

#ifdef DEBUG_RUNTIME
constexpr const char *kFlavour = "debug";
#else
constexpr const char *kFlavour = "release";
#endif

// Limits that decide whether and how a Halide pipeline runs.
#define HV_DESCRIBED_LIMITS(X)                                                                                         \
    X(maxStorageBufferRange)                                                                                           \
    X(maxUniformBufferRange)                                                                                           \
    X(maxPushConstantsSize)                                                                                            \
    X(maxMemoryAllocationCount)                                                                                        \
    X(maxPerStageDescriptorStorageBuffers)                                                                             \
    X(maxComputeSharedMemorySize)                                                                                      \
    X(maxComputeWorkGroupInvocations)                                                                                  \
    X(minStorageBufferOffsetAlignment)                                                                                 \
    X(nonCoherentAtomSize)                                                                                             \
    X(timestampComputeAndGraphics)

HALIDE_VULKAN_COLD inline void describe_limits(Json &json, const VkPhysicalDeviceLimits &limits) {
    json.begin("limits", '{');
#define X(name) json.number(#name, limits.name);
    HV_DESCRIBED_LIMITS(X)
#undef X
    json.begin("maxComputeWorkGroupCount", '[');
    for (uint32_t n : limits.maxComputeWorkGroupCount) json.number(nullptr, n);
    json.end(']').begin("maxComputeWorkGroupSize", '[');
    for (uint32_t n : limits.maxComputeWorkGroupSize) json.number(nullptr, n);
    json.end(']').end('}');
}

HALIDE_VULKAN_COLD inline void describe_memory(Json &json, const VkPhysicalDeviceMemoryProperties &memory) {
    json.begin("heaps", '[');
    for (uint32_t i = 0; i < memory.memoryHeapCount; i++) {
        json.begin(nullptr, '{').number("size", memory.memoryHeaps[i].size);
        json.number("flags", memory.memoryHeaps[i].flags).end('}');
    }
    json.end(']').begin("types", '[');
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        json.begin(nullptr, '{').number("heap", memory.memoryTypes[i].heapIndex);
        json.number("flags", memory.memoryTypes[i].propertyFlags).end('}');
    }
    json.end(']');
}

HALIDE_VULKAN_COLD inline void describe_order(Json &json, const char *name, const MemoryOrder &order) {
    json.begin(name, '[');
    for (uint32_t i = 0; i < order.count; i++) json.number(nullptr, order.types[i]);
    json.end(']');
}

// What the runtime would do on this device, with the options as they are.
HALIDE_VULKAN_COLD inline void describe_plan(Json &json, const DeviceOffer &offer, const NumberOptions &options) {
    const VkPhysicalDeviceType type = offer.properties.deviceType;
    const uint32_t cores = usable_cores();
    MemoryOrder buffers, staging, scalars;
    plan_buffer_memory(offer.memory, buffers);
    plan_staging_memory(offer.memory, staging);
    plan_scalar_memory(offer.memory, scalars);
    const VkMemoryPropertyFlags flags = buffers.count ? offer.memory.memoryTypes[buffers.types[0]].propertyFlags : 0;
    // As Memory::mapped() and mapped_for_reading() decide: 32-bit targets do not map device memory.
    const bool mapped = sizeof(void *) == 8 && (flags & kVisible) && (flags & kCoherent) && options.direct;
    json.begin("plan", '{')
        .number("queue_family", pick_queue_family(offer.families, offer.family_count, (QueueWish)options.queue));
    describe_order(json, "buffer_types", buffers);
    describe_order(json, "staging_types", staging);
    describe_order(json, "scalar_types", scalars);
    json.number("storage_range", storage_range(offer.properties));
    json.flag("direct_uploads", mapped).flag("direct_downloads", mapped && (flags & kCached));
    json.flag("copy_kernel", options.copy_kernel && type != VK_PHYSICAL_DEVICE_TYPE_CPU);
    json.flag("spin", spinning_pays(options, type, cores)).number("cores", cores);
    json.number("copy_threads", copy_threads(options, cores)).number("flush_mode", options.flush_mode);
    json.flag("flush_thread", options.flush_thread).end('}');
}

HALIDE_VULKAN_COLD inline void describe_features(Json &json, const Instance &in, VkPhysicalDevice device,
                                                 uint32_t version) {
    Failure failure;
    FeatureChain chain;
    if (!fill_features(in, device, version, chain, failure)) {
        json.text("error", failure.message);
        return;
    }
    const VkPhysicalDeviceFeatures &core = chain.features.features;
    json.begin("features", '{').flag("float64", core.shaderFloat64).flag("int64", core.shaderInt64);
    json.flag("int16", core.shaderInt16 && chain.storage16.storageBuffer16BitAccess);
    json.flag("int8", chain.small.shaderInt8 && chain.storage8.storageBuffer8BitAccess);
    json.flag("float16", chain.small.shaderFloat16 && chain.storage16.storageBuffer16BitAccess).end('}');
}

HALIDE_VULKAN_COLD inline void describe_offer(Json &json, const Instance &in, VkPhysicalDevice device,
                                              const DeviceOffer &offer, const NumberOptions &options) {
    const VkPhysicalDeviceProperties &p = offer.properties;
    json.begin(nullptr, '{').text("name", p.deviceName).text("type", device_type_name(p.deviceType));
    char uuid[40];
    Text line(uuid, sizeof(uuid));
    if (offer.has_uuid) write_uuid(line, offer.uuid);
    json.text("uuid", uuid).number("api_version", p.apiVersion).number("driver_version", p.driverVersion);
    json.number("vendor_id", p.vendorID).number("device_id", p.deviceID);
    if (p.apiVersion >= VK_API_VERSION_1_2) {
        VkPhysicalDeviceDriverProperties driver = {};
        driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
        VkPhysicalDeviceProperties2 properties = {};
        properties.pNext = &driver;
        if (ask_properties(in, device, p.apiVersion, properties))
            json.text("driver_name", driver.driverName).text("driver_info", driver.driverInfo);
    }
    json.flag("computes", can_compute(offer)).begin("families", '[');
    for (uint32_t i = 0; i < offer.family_count; i++) {
        json.begin(nullptr, '{').number("flags", offer.families[i].queueFlags);
        json.number("queues", offer.families[i].queueCount).end('}');
    }
    json.end(']');
    describe_limits(json, p.limits);
    describe_memory(json, offer.memory);
    describe_features(json, in, device, p.apiVersion);
    if (can_compute(offer)) describe_plan(json, offer, options);
    json.end('}');
}

// The part that needs an instance. Returns how far it came.
HALIDE_VULKAN_COLD inline const char *describe_machine(void *user_context, Json &json, DeviceChoice &choice,
                                                       Failure &failure) {
    NumberOptions options = {};
    if (!read_number_options(options, failure)) return "options";
    const VkAllocationCallbacks *callbacks = halide_vulkan_get_allocation_callbacks(user_context);
    if (!find_loader(user_context, failure)) return "loader";
    Instance in = {};
    if (!create_instance(user_context, callbacks, in, failure)) return "instance";
    json.number("loader_version", in.api_version);
    const char *stage = "devices";
    DeviceList list;
    if (list.read(in, failure)) {
        stage = "choice";
        const uint32_t count = (uint32_t)list.offers.size();
        if (choice.index == kNoIndex)
            choice = pick_device(list.offers.data(), count, device_request(user_context), failure);
        json.begin("devices", '[');
        for (uint32_t i = 0; i < count; i++) describe_offer(json, in, list.devices[i], list.offers[i], options);
        json.end(']');
    }
    list.release();
    end_instance(in, callbacks);
    return failure.failed() ? stage : "done";
}

HALIDE_VULKAN_COLD inline size_t describe(void *user_context, char *out, size_t bytes) {
    Json json(out, bytes);
    json.begin(nullptr, '{').text("version", kVersion).text("flavour", kFlavour);
    const DeviceRequest request = device_request(user_context);
    json.begin("request", '{').text("HL_VK_DEVICE", request.device).text("HL_VK_DEVICE_TYPE", request.type);
    if (request.gpu >= 0) json.number("HL_GPU_DEVICE", (uint64_t)request.gpu);
    json.end('}');

    Failure failure;
    const char *stage = "process";
    DeviceChoice choice = {kNoIndex, ChosenBy::nothing};
    if (check_not_forked(failure)) {
        own_context.lock.lock();
        if (own_context.state) choice = own_context.choice;
        own_context.lock.unlock();
        if (choice.index != kNoIndex) json.number("in_use", choice.index);
        stage = describe_machine(user_context, json, choice, failure);
    }
    if (choice.index != kNoIndex) json.number("chosen", choice.index).text("chosen_by", chosen_by_name(choice.by));
    json.text("stage", stage);
    if (failure.failed()) json.text("error", failure.message);
    json.end('}');
    return json.size();
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_DESCRIBE_H
