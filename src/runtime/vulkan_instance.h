// vulkan_instance.h: makes an instance, looks at its devices, and makes the device that the plan chose.
//
// Used twice: for the runtime's own context, and for a short-lived look at the machine (compute_capability). Nothing is
// required of the driver beyond Vulkan 1.0: extensions are switched on where they are offered, by API version.
//
// Ownership: what create_* makes is destroyed by destroy_* of the same name. Thread rule: unsafe, the context locks.

#ifndef HALIDE_VULKAN_INSTANCE_H
#define HALIDE_VULKAN_INSTANCE_H

#include "vulkan_choice.h"
#include "vulkan_features.h"
#include "vulkan_functions.h"
#include "vulkan_options.h"

namespace halide_vulkan {
namespace {

// What a device of ours can do beyond Vulkan 1.0, where it matters to us. Nothing is assumed of an application's
// device.
struct DeviceAbilities {
    uint32_t instance_version;  // of Vulkan, that the instance was made for; 0: not known
    bool timeline;              // timelineSemaphore, switched on
    bool memory_budget;         // VK_EXT_memory_budget
    bool byte_storage;          // storageBuffer8BitAccess, switched on
    bool debug_utils;           // VK_EXT_debug_utils, switched on: names and labels
    bool calibrated;            // VK_EXT_calibrated_timestamps or its successor, switched on
    uint32_t features;          // Feature bits, switched on
    bool one_family;            // all work is on queues of one family
};

struct Instance {
    GlobalFunctions global;
    InstanceFunctions vk;
    VkInstance instance;
    VkDebugUtilsMessengerEXT messenger;
    uint32_t api_version;  // what was asked for: the newest we know that the loader knows too
    DeviceAbilities abilities;
    bool traced;            // HL_VK_TRACE was set when it was made
    bool must_stay_loaded;  // a device of a driver that cannot be loaded often was seen, see vulkan_anchor.h
};

inline bool wants_trace(void *user_context) {
    const char *path = halide_vulkan_get_trace_file(user_context);
    return path && *path;
}

VKAPI_ATTR VkBool32 VKAPI_CALL print_debug_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                                   VkDebugUtilsMessageTypeFlagsEXT,
                                                   const VkDebugUtilsMessengerCallbackDataEXT *data, void *) {
    char line[1024];
    Text(line, sizeof(line)) << "Vulkan: " << (data && data->pMessage ? data->pMessage : "(no message)") << "\n";
    halide_print(nullptr, line);
    return VK_FALSE;
}

// A list of names, split in place.
struct NameList {
    static constexpr uint32_t kMost = 32;
    char storage[kTextBytes];
    const char *names[kMost];
    uint32_t count;
};

// False with the reason in failure where not all of them have room: none is left out in silence.
inline bool split_names(const char *text, const char *option, NameList &out, Failure &failure) {
    out.count = 0;
    Text(out.storage, sizeof(out.storage)) << text;
    const size_t n = text_length(out.storage);
    bool fits = !may_be_cut(out.storage);
    char *start = out.storage;
    for (size_t i = 0; i <= n; i++) {
        // A ':' would also part "C:\..." but layer and extension names hold neither.
        if (i < n && out.storage[i] != ':' && out.storage[i] != ';' && out.storage[i] != ',') continue;
        out.storage[i] = 0;
        if (*start && out.count == NameList::kMost)
            fits = false;
        else if (*start)
            out.names[out.count++] = start;
        start = out.storage + i + 1;
    }
    if (fits) return true;
    (failure.because(kGenericError) << "Vulkan: the list of " << option << ", which begins with ").quote(text)
        << ", is too long: it takes " << NameList::kMost << " names of " << (uint64_t)(kTextBytes - 2)
        << " characters in all";
    return false;
}

inline bool has_extension(const Array<VkExtensionProperties> &offered, const char *name) {
    for (const VkExtensionProperties &e : offered) {
        if (same_text(e.extensionName, name)) return true;
    }
    return false;
}

// Fills an Array with an enumeration that may grow between its two calls.
template<typename T, typename Enumerate>
inline VkResult enumerate_into(Array<T> &out, Enumerate enumerate) {
    for (;;) {
        uint32_t count = 0;
        VkResult result = enumerate(&count, (T *)nullptr);
        if (result != VK_SUCCESS) return result;
        if (!out.resize(count)) return VK_ERROR_OUT_OF_HOST_MEMORY;
        if (count == 0) return VK_SUCCESS;
        result = enumerate(&count, out.data());
        if (result == VK_INCOMPLETE) continue;
        if (result == VK_SUCCESS) out.resize(count);
        return result;
    }
}

inline bool check_layers(Instance &in, const NameList &wanted, Failure &failure) {
    if (wanted.count == 0) return true;
    Array<VkLayerProperties> offered;
    const VkResult result = enumerate_into(
        offered, [&](uint32_t *n, VkLayerProperties *p) { return in.global.vkEnumerateInstanceLayerProperties(n, p); });
    bool good = result == VK_SUCCESS;
    if (!good) call_failed(failure, "vkEnumerateInstanceLayerProperties", result);
    for (uint32_t i = 0; good && i < wanted.count; i++) {
        for (const VkLayerProperties &layer : offered) {
            good = same_text(layer.layerName, wanted.names[i]);
            if (good) break;
        }
        if (offered.empty()) good = false;
        if (good) continue;
        Text text = failure.because(kGenericError);
        (text << "Vulkan: layer ").quote(wanted.names[i])
            << " (HL_VK_LAYERS, VK_INSTANCE_LAYERS) is not installed; " << (uint64_t)offered.size() << " are:";
        for (const VkLayerProperties &layer : offered) text << " " << layer.layerName;
    }
    offered.release();
    return good;
}

inline void destroy_messenger(Instance &in, const VkAllocationCallbacks *callbacks) {
    if (in.messenger) in.vk.vkDestroyDebugUtilsMessengerEXT(in.instance, in.messenger, callbacks);
    in.messenger = VK_NULL_HANDLE;
}

inline void destroy_instance(Instance &in, const VkAllocationCallbacks *callbacks) {
    if (!in.instance) return;
    destroy_messenger(in, callbacks);
    in.vk.vkDestroyInstance(in.instance, callbacks);
    in.instance = nullptr;
}

// Names the variable that keeps the loader from looking where drivers are installed; the newer one of two has its way.
HALIDE_VULKAN_COLD inline void tell_no_driver(Text &text) {
    const char *newer = getenv("VK_DRIVER_FILES"), *older = getenv("VK_ICD_FILENAMES");
    const char *files = newer ? newer : older;
    text << ": the loader works, but no driver is " << (files ? "found: " : "installed");
    if (files) (text << (newer ? "VK_DRIVER_FILES" : "VK_ICD_FILENAMES") << " is ").quote(files);
}

inline bool create_instance(void *user_context, const VkAllocationCallbacks *callbacks, Instance &in,
                            Failure &failure) {
    if (!load_global_functions(user_context, in.global, failure)) return false;

    NameList layers, wanted_extensions;
    if (!split_names(halide_vulkan_get_layer_names(user_context), "HL_VK_LAYERS (VK_INSTANCE_LAYERS)", layers,
                     failure) ||
        !split_names(halide_vulkan_get_extension_names(user_context), "HL_VK_EXTENSIONS", wanted_extensions, failure) ||
        !check_layers(in, layers, failure))
        return false;

    Array<VkExtensionProperties> offered;
    VkResult result = enumerate_into(offered, [&](uint32_t *n, VkExtensionProperties *p) {
        return in.global.vkEnumerateInstanceExtensionProperties(nullptr, n, p);
    });
    if (result != VK_SUCCESS) {
        offered.release();
        call_failed(failure, "vkEnumerateInstanceExtensionProperties", result);
        return false;
    }
    uint32_t loader_version = VK_API_VERSION_1_0;
    if (in.global.vkEnumerateInstanceVersion) in.global.vkEnumerateInstanceVersion(&loader_version);
    in.api_version =
        loader_version < VK_API_VERSION_1_1
            ? VK_API_VERSION_1_0
            : min_of<uint32_t>(VK_API_VERSION_1_3, VK_MAKE_API_VERSION(0, 1, VK_API_VERSION_MINOR(loader_version), 0));

    const char *extensions[NameList::kMost + 4];
    uint32_t extension_count = 0;
    VkInstanceCreateFlags flags = 0;
    // Behind a newer loader too: a device of Vulkan 1.0 can be asked in no other way.
    if (has_extension(offered, VK_KHR_GET_PHYSICAL_DEVICE_PROPERTIES_2_EXTENSION_NAME))
        extensions[extension_count++] = VK_KHR_GET_PHYSICAL_DEVICE_PROPERTIES_2_EXTENSION_NAME;
    if (has_extension(offered, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
        extensions[extension_count++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
        flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    in.traced = wants_trace(user_context);
    // Layers speak through the debug messenger, and name objects by the names they are given; without layers nobody
    // would, and drivers take a slower path with it. A trace may be looked at beside another tool's. For RenderDoc and
    // Nsight, which put themselves into a program, HL_VK_EXTENSIONS asks for it.
    bool debug_utils = layers.count > 0 || in.traced;
    for (uint32_t i = 0; i < wanted_extensions.count; i++)
        debug_utils |= same_text(wanted_extensions.names[i], VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
#ifdef DEBUG_RUNTIME
    debug_utils = true;
#endif
    debug_utils = debug_utils && has_extension(offered, VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    if (debug_utils) extensions[extension_count++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    for (uint32_t i = 0; i < wanted_extensions.count; i++) {
        bool there = false;
        for (uint32_t k = 0; k < extension_count; k++) there |= same_text(extensions[k], wanted_extensions.names[i]);
        if (!there && has_extension(offered, wanted_extensions.names[i]))
            extensions[extension_count++] = wanted_extensions.names[i];
    }
    offered.release();
    in.abilities = {};
    in.abilities.debug_utils = debug_utils;

    VkApplicationInfo application = {};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.pApplicationName = "Halide";
    application.pEngineName = "Halide";
    application.apiVersion = in.api_version;
    VkInstanceCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.flags = flags;
    info.pApplicationInfo = &application;
    info.enabledLayerCount = layers.count;
    info.ppEnabledLayerNames = layers.names;
    info.enabledExtensionCount = extension_count;
    info.ppEnabledExtensionNames = extensions;
    result = in.global.vkCreateInstance(&info, callbacks, &in.instance);
    if (result != VK_SUCCESS) {
        in.instance = nullptr;
        Text text = call_failed(failure, "vkCreateInstance", result);
        if (result == VK_ERROR_INCOMPATIBLE_DRIVER) tell_no_driver(text);
        return false;
    }
    if (!load_instance_functions(in.global.vkGetInstanceProcAddr, in.instance, in.vk, failure)) {
        PFN_vkDestroyInstance destroy =
            (PFN_vkDestroyInstance)in.global.vkGetInstanceProcAddr(in.instance, "vkDestroyInstance");
        if (destroy) destroy(in.instance, callbacks);
        in.instance = nullptr;
        return false;
    }
    if (debug_utils && in.vk.vkCreateDebugUtilsMessengerEXT && in.vk.vkDestroyDebugUtilsMessengerEXT) {
        VkDebugUtilsMessengerCreateInfoEXT messenger = {};
        messenger.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
        messenger.messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
        messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT |
                                VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                                VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
        messenger.pfnUserCallback = print_debug_message;
        // Not worth failing for: without it, messages are lost and nothing else.
        if (in.vk.vkCreateDebugUtilsMessengerEXT(in.instance, &messenger, callbacks, &in.messenger) != VK_SUCCESS) {
            in.messenger = VK_NULL_HANDLE;
        }
    }
    return true;
}

// Fills in what a chain of structures asks about a device. False where the driver cannot be asked like that.
inline bool ask_properties(const Instance &in, VkPhysicalDevice device, uint32_t device_version,
                           VkPhysicalDeviceProperties2 &properties) {
    PFN_vkGetPhysicalDeviceProperties2 ask =
        in.api_version >= VK_API_VERSION_1_1 && device_version >= VK_API_VERSION_1_1
            ? in.vk.vkGetPhysicalDeviceProperties2
            : nullptr;
    if (!ask) ask = in.vk.vkGetPhysicalDeviceProperties2KHR;
    if (!ask) return false;
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    ask(device, &properties);
    return true;
}

// The first kMaxFamilies, and how many those are.
inline uint32_t read_families(const InstanceFunctions &vk, VkPhysicalDevice device, VkQueueFamilyProperties *to) {
    uint32_t count = 0;
    vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
    count = min_of(count, kMaxFamilies);
    vk.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, to);
    return count;
}

inline void describe_device(const Instance &in, VkPhysicalDevice device, DeviceOffer &offer) {
    in.vk.vkGetPhysicalDeviceProperties(device, &offer.properties);
    in.vk.vkGetPhysicalDeviceMemoryProperties(device, &offer.memory);
    offer.family_count = read_families(in.vk, device, offer.families);
    // Before Vulkan 1.1 only an extension that nobody need offer knows UUIDs; such devices are named otherwise.
    VkPhysicalDeviceIDProperties id = {};
    id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
    VkPhysicalDeviceProperties2 properties = {};
    properties.pNext = &id;
    offer.has_uuid = offer.properties.apiVersion >= VK_API_VERSION_1_1 &&
                     ask_properties(in, device, offer.properties.apiVersion, properties);
    if (offer.has_uuid) __builtin_memcpy(offer.uuid, id.deviceUUID, VK_UUID_SIZE);
}

constexpr uint32_t kNvidia = 0x10de;  // as a vendorID

// Every device of the instance, in the loader's order.
struct DeviceList {
    Array<VkPhysicalDevice> devices;
    Array<DeviceOffer> offers;

    HALIDE_VULKAN_COLD bool read(Instance &in, Failure &failure) {
        const VkResult result = enumerate_into(devices, [&](uint32_t *n, VkPhysicalDevice *p) {
            return in.vk.vkEnumeratePhysicalDevices(in.instance, n, p);
        });
        if (result != VK_SUCCESS) {
            call_failed(failure, "vkEnumeratePhysicalDevices", result);
            return false;
        }
        if (!offers.resize(devices.size())) {
            failure.because(kOutOfMemory)
                << "Vulkan: out of host memory while looking at " << (uint64_t)devices.size() << " devices";
            return false;
        }
        for (size_t i = 0; i < devices.size(); i++) {
            describe_device(in, devices[i], offers[i]);
            in.must_stay_loaded |= offers[i].properties.vendorID == kNvidia;
        }
        return true;
    }
    void release() {
        devices.release();
        offers.release();
    }
};

// What the environment and the program ask for now.
inline DeviceRequest device_request(void *user_context) {
    return {halide_vulkan_get_device(user_context), halide_vulkan_get_device_type(user_context),
            halide_get_gpu_device(user_context), getenv("HL_GPU_DEVICE")};
}

// Describes every device of the instance and picks one. Returns its handle, with its description in `offer`.
inline VkPhysicalDevice choose_device(void *user_context, Instance &in, DeviceOffer &offer, DeviceChoice &choice,
                                      Failure &failure) {
    choice = {kNoIndex, ChosenBy::nothing};
    VkPhysicalDevice chosen = nullptr;
    DeviceList list;
    if (list.read(in, failure)) {
        choice = pick_device(list.offers.data(), (uint32_t)list.offers.size(), device_request(user_context), failure);
        if (choice.index != kNoIndex) {
            chosen = list.devices[choice.index];
            offer = list.offers[choice.index];
        }
    }
    list.release();
    return chosen;
}

// The features kernels may need, asked for only where the device has them. robustBufferAccess stays off: it makes every
// access of a kernel slower, and Halide's bounds are checked before the launch.
struct FeatureChain {
    VkPhysicalDeviceFeatures2 features;
    VkPhysicalDevice16BitStorageFeatures storage16;
    VkPhysicalDevice8BitStorageFeatures storage8;
    VkPhysicalDeviceShaderFloat16Int8Features small;
    VkPhysicalDeviceShaderAtomicInt64Features atomics;
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline;
    const char *extensions[8];
    uint32_t extension_count;
    bool memory_budget;
    const char *calibration;  // the extension for calibrated timestamps that is offered; not switched on
    bool chained;             // the device can be asked through Features2
};

inline bool fill_features(const Instance &in, VkPhysicalDevice device, uint32_t device_version, FeatureChain &chain,
                          Failure &failure) {
    chain = {};
    Array<VkExtensionProperties> offered;
    const VkResult result = enumerate_into(offered, [&](uint32_t *n, VkExtensionProperties *p) {
        return in.vk.vkEnumerateDeviceExtensionProperties(device, nullptr, n, p);
    });
    if (result != VK_SUCCESS) {
        offered.release();
        call_failed(failure, "vkEnumerateDeviceExtensionProperties", result);
        return false;
    }
    PFN_vkGetPhysicalDeviceFeatures2 ask = in.api_version >= VK_API_VERSION_1_1 && device_version >= VK_API_VERSION_1_1
                                               ? in.vk.vkGetPhysicalDeviceFeatures2
                                               : nullptr;
    if (!ask) ask = in.vk.vkGetPhysicalDeviceFeatures2KHR;
    chain.chained = ask != nullptr;
    chain.features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    chain.storage16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
    chain.storage8.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES;
    chain.small.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
    chain.timeline.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES;
    chain.atomics.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_INT64_FEATURES;

    void **tail = &chain.features.pNext;
    // Switches the extension on if it is not yet core and is offered; true when its feature struct may be chained.
    auto use = [&](const char *name, uint32_t core_since) {
        if (device_version >= core_since) return true;
        if (!has_extension(offered, name)) return false;
        chain.extensions[chain.extension_count++] = name;
        return true;
    };
    auto link = [&](auto &item) {
        *tail = &item;
        tail = &item.pNext;
    };
    const bool storage_class = use(VK_KHR_STORAGE_BUFFER_STORAGE_CLASS_EXTENSION_NAME, VK_API_VERSION_1_1);
    if (chain.chained) {
        if (storage_class && use(VK_KHR_16BIT_STORAGE_EXTENSION_NAME, VK_API_VERSION_1_1)) link(chain.storage16);
        if (storage_class && use(VK_KHR_8BIT_STORAGE_EXTENSION_NAME, VK_API_VERSION_1_2)) link(chain.storage8);
        if (use(VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME, VK_API_VERSION_1_2)) link(chain.small);
        if (use(VK_KHR_SHADER_ATOMIC_INT64_EXTENSION_NAME, VK_API_VERSION_1_2)) link(chain.atomics);
        if (device_version >= VK_API_VERSION_1_2) link(chain.timeline);
        ask(device, &chain.features);
    } else {
        in.vk.vkGetPhysicalDeviceFeatures(device, &chain.features.features);
    }
    if (has_extension(offered, "VK_KHR_portability_subset"))
        chain.extensions[chain.extension_count++] = "VK_KHR_portability_subset";
    // Not switched on: asking a physical device needs no more than the driver's offer.
    chain.memory_budget = has_extension(offered, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    const char *const calibrations[] = {"VK_KHR_calibrated_timestamps", VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME};
    for (const char *name : calibrations) {
        if (has_extension(offered, name)) chain.calibration = name;
    }
    chain.features.features.robustBufferAccess = VK_FALSE;
    offered.release();
    return true;
}

// What kernels may count on, of what was asked for.
inline uint32_t features_of(const FeatureChain &chain) {
    const VkPhysicalDeviceFeatures &core = chain.features.features;
    const struct {
        VkBool32 there;
        uint32_t feature;
    } all[] = {
        {core.shaderFloat64, kFloat64},
        {core.shaderInt64, kInt64},
        {core.shaderInt16, kInt16},
        {chain.small.shaderFloat16, kFloat16},
        {chain.small.shaderInt8, kInt8},
        {chain.storage16.storageBuffer16BitAccess | chain.storage16.uniformAndStorageBuffer16BitAccess, kStorage16},
        {chain.storage8.storageBuffer8BitAccess | chain.storage8.uniformAndStorageBuffer8BitAccess, kStorage8},
        {chain.atomics.shaderBufferInt64Atomics, kAtomics64},
    };
    uint32_t features = 0;
    for (const auto &one : all) features |= one.there ? one.feature : 0;
    return features;
}

inline VkDevice create_device(Instance &in, VkPhysicalDevice physical, const DeviceOffer &offer, uint32_t family,
                              const VkAllocationCallbacks *callbacks, Failure &failure) {
    FeatureChain chain;
    const uint32_t version = min_of(offer.properties.apiVersion, in.api_version);
    if (!fill_features(in, physical, version, chain, failure)) return nullptr;
    const bool calibrated = in.traced && chain.calibration;
    if (calibrated) chain.extensions[chain.extension_count++] = chain.calibration;
    const float priority = 1.0f;
    VkDeviceQueueCreateInfo queue = {};
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueFamilyIndex = family;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = chain.extension_count;
    info.ppEnabledExtensionNames = chain.extensions;
    if (chain.chained) {
        info.pNext = &chain.features;
    } else {
        info.pEnabledFeatures = &chain.features.features;
    }
    VkDevice device = nullptr;
    const VkResult result = in.vk.vkCreateDevice(physical, &info, callbacks, &device);
    if (result != VK_SUCCESS) {
        call_failed(failure, "vkCreateDevice", result) << " on " << offer.properties.deviceName;
        return nullptr;
    }
    in.abilities = {in.api_version,           chain.timeline.timelineSemaphore == VK_TRUE,
                    chain.memory_budget,      chain.storage8.storageBuffer8BitAccess == VK_TRUE,
                    in.abilities.debug_utils, calibrated,
                    features_of(chain),       true};
    return device;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_INSTANCE_H
