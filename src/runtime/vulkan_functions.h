// vulkan_functions.h: the Vulkan entry points as tables, filled from vulkan_api.def.
//
// The loader library is not linked: it is found at run time through halide_vulkan_get_symbol, which a program may
// replace. Device functions are fetched from the device itself, which spares the loader's trampoline on every call.
//
// Thread rule: a table is written once, before it is shared, and only read afterwards.

#ifndef HALIDE_VULKAN_FUNCTIONS_H
#define HALIDE_VULKAN_FUNCTIONS_H

#include "vulkan_base.h"
#include "vulkan_system_error.h"

namespace halide_vulkan {
namespace {

// Headers before 1.3.272 know these by their older name alone.
#ifndef VK_KHR_calibrated_timestamps
#define VK_KHR_CALIBRATED_TIMESTAMPS_EXTENSION_NAME "VK_KHR_calibrated_timestamps"
typedef PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsKHR;
typedef PFN_vkGetCalibratedTimestampsEXT PFN_vkGetCalibratedTimestampsKHR;
#endif

struct GlobalFunctions {
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    PFN_vkEnumerateInstanceVersion vkEnumerateInstanceVersion;  // null on a Vulkan 1.0 loader
#define HV_GLOBAL(name) PFN_##name name;
#include "vulkan_api.def"
};

struct InstanceFunctions {
#define HV_INSTANCE(name) PFN_##name name;
#define HV_INSTANCE_OPTIONAL(name) PFN_##name name;
#include "vulkan_api.def"
};

struct DeviceFunctions {
#define HV_DEVICE(name) PFN_##name name;
#define HV_DEVICE_OPTIONAL(name) PFN_##name name;
#include "vulkan_api.def"
};

// Libraries that may hold the loader, besides the one that HL_VK_LOADER_LIB names.
#ifdef WINDOWS
constexpr const char *kLoaderNames[] = {"vulkan-1.dll"};
#else
constexpr const char *kLoaderNames[] = {
    "libvulkan.so.1",
    "libvulkan.so",
    "libvulkan.1.dylib",
    "libvulkan.dylib",
    "/usr/local/lib/libvulkan.dylib",
    "libMoltenVK.dylib",
    "vulkan.framework/vulkan",
    "MoltenVK.framework/MoltenVK",
};
#endif

void *loader_library;  // opened once and never closed

// A function of the loader. HL_VK_LOADER_LIB, when set, is the only library that is opened; otherwise the process is
// asked first, then the names above. Null when nothing has it: whoever needs Vulkan then says so.
inline void *find_loader_symbol(void *, const char *name) {
    const char *named = getenv("HL_VK_LOADER_LIB");
    const bool only_named = named && *named;
    void *library = __atomic_load_n(&loader_library, __ATOMIC_ACQUIRE);
    if (library || !only_named) {
        if (void *symbol = halide_get_library_symbol(library, name)) return symbol;
    }
    if (library) return nullptr;
    if (only_named) {
        library = halide_load_library(named);
    } else {
        for (const char *candidate : kLoaderNames) {
            library = halide_load_library(candidate);
            if (library) break;
        }
    }
    if (!library) return nullptr;
    __atomic_store_n(&loader_library, library, __ATOMIC_RELEASE);
    return halide_get_library_symbol(library, name);
}

// The loader's first function; null, with the reason in failure, when there is no Vulkan loader on this machine.
inline PFN_vkGetInstanceProcAddr find_loader(void *user_context, Failure &failure) {
    void *const found = halide_vulkan_get_symbol(user_context, "vkGetInstanceProcAddr");
    if (found) return (PFN_vkGetInstanceProcAddr)found;
    const char *named = getenv("HL_VK_LOADER_LIB");
    Text text = failure.because(kSymbolNotFound);
    text << "Vulkan: no loader library found: ";
    if (!named || !*named) {
        text << "asked for vkGetInstanceProcAddr in libvulkan.so.1 and its other names; HL_VK_LOADER_LIB names another "
                "file";
        return nullptr;
    }
    const char *why = loading_error(named);
    (text << "HL_VK_LOADER_LIB names ").quote(named, kQuotedPathBytes)
        << ": " << (why ? why : "it is a library, but has no vkGetInstanceProcAddr");
    return nullptr;
}

inline bool load_global_functions(void *user_context, GlobalFunctions &vk, Failure &failure) {
    vk.vkGetInstanceProcAddr = find_loader(user_context, failure);
    if (!vk.vkGetInstanceProcAddr) return false;
    vk.vkEnumerateInstanceVersion =
        (PFN_vkEnumerateInstanceVersion)vk.vkGetInstanceProcAddr(nullptr, "vkEnumerateInstanceVersion");
#define HV_GLOBAL(name)                                                                                                \
    vk.name = (PFN_##name)vk.vkGetInstanceProcAddr(nullptr, #name);                                                    \
    if (!vk.name) {                                                                                                    \
        failure.because(kSymbolNotFound) << "Vulkan: the loader library does not offer " #name;                        \
        return false;                                                                                                  \
    }
#include "vulkan_api.def"
    return true;
}

inline bool load_instance_functions(PFN_vkGetInstanceProcAddr find, VkInstance instance, InstanceFunctions &vk,
                                    Failure &failure) {
#define HV_INSTANCE(name)                                                                                              \
    vk.name = (PFN_##name)find(instance, #name);                                                                       \
    if (!vk.name) {                                                                                                    \
        failure.because(kSymbolNotFound) << "Vulkan: the instance does not offer " #name;                              \
        return false;                                                                                                  \
    }
#define HV_INSTANCE_OPTIONAL(name) vk.name = (PFN_##name)find(instance, #name);
#include "vulkan_api.def"
    return true;
}

inline bool load_device_functions(PFN_vkGetDeviceProcAddr find, VkDevice device, DeviceFunctions &vk,
                                  Failure &failure) {
#define HV_DEVICE(name)                                                                                                \
    vk.name = (PFN_##name)find(device, #name);                                                                         \
    if (!vk.name) {                                                                                                    \
        failure.because(kSymbolNotFound) << "Vulkan: the device does not offer " #name;                                \
        return false;                                                                                                  \
    }
#define HV_DEVICE_OPTIONAL(name) vk.name = (PFN_##name)find(device, #name);
#include "vulkan_api.def"
    return true;
}

// The specification's name of a result, for messages.
inline const char *result_name(VkResult result) {
    switch (result) {
#define HV_RESULT(name)                                                                                                \
    case name: return #name;
        HV_RESULT(VK_SUCCESS)
        HV_RESULT(VK_NOT_READY)
        HV_RESULT(VK_TIMEOUT)
        HV_RESULT(VK_INCOMPLETE)
        HV_RESULT(VK_ERROR_OUT_OF_HOST_MEMORY)
        HV_RESULT(VK_ERROR_OUT_OF_DEVICE_MEMORY)
        HV_RESULT(VK_ERROR_INITIALIZATION_FAILED)
        HV_RESULT(VK_ERROR_DEVICE_LOST)
        HV_RESULT(VK_ERROR_MEMORY_MAP_FAILED)
        HV_RESULT(VK_ERROR_LAYER_NOT_PRESENT)
        HV_RESULT(VK_ERROR_EXTENSION_NOT_PRESENT)
        HV_RESULT(VK_ERROR_FEATURE_NOT_PRESENT)
        HV_RESULT(VK_ERROR_INCOMPATIBLE_DRIVER)
        HV_RESULT(VK_ERROR_TOO_MANY_OBJECTS)
        HV_RESULT(VK_ERROR_FORMAT_NOT_SUPPORTED)
        HV_RESULT(VK_ERROR_FRAGMENTED_POOL)
        HV_RESULT(VK_ERROR_UNKNOWN)
        HV_RESULT(VK_ERROR_OUT_OF_POOL_MEMORY)
        HV_RESULT(VK_ERROR_FRAGMENTATION)
        HV_RESULT(VK_ERROR_INVALID_EXTERNAL_HANDLE)
        HV_RESULT(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS)
        HV_RESULT(VK_ERROR_INVALID_SHADER_NV)
#undef HV_RESULT
    default: return "an unlisted VkResult";
    }
}

inline bool is_out_of_memory(VkResult result) {
    return result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY ||
           result == VK_ERROR_TOO_MANY_OBJECTS;
}

// Begins the message of a failed Vulkan call: "Vulkan: vkCreateBuffer failed with VK_ERROR_... (-1)".
HALIDE_VULKAN_COLD inline Text call_failed(Failure &failure, const char *call, VkResult result,
                                           int code = kGenericError) {
    Text text = failure.because(is_out_of_memory(result) ? (int)kOutOfMemory : code);
    text << "Vulkan: " << call << " failed with " << result_name(result) << " (" << (int32_t)result << ")";
    return text;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_FUNCTIONS_H
