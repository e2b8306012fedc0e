// bench_device.h: says what a figure was measured on: the GPU's name, its driver, and which runtime Halide took.
//
// Halide has no call that tells any of it, so the drivers are asked beside it, through libraries opened at run time:
// the program must start on a machine that has CUDA and no Vulkan, and the other way round. With several devices all
// names are given, since which of them Halide takes is the runtime's decision. The runtime is told by the file that
// holds the bitcode libHalide was bound to; that is a fact of the process, where an environment variable would be a
// hope.
//
// Ownership: the instance made here is destroyed before the function returns.

#ifndef HALIDE_VULKAN_BENCH_DEVICE_H
#define HALIDE_VULKAN_BENCH_DEVICE_H

#include <dlfcn.h>
#include <string>
#include <vector>
#include <vulkan/vulkan_core.h>

namespace bench {

inline std::string joined(const std::vector<std::string> &names) {
    std::string out;
    for (const std::string &name : names) out += (out.empty() ? "" : ", ") + name;
    return out.empty() ? "unknown" : out;
}

struct VulkanDevices {
    std::string names, drivers;
};

// Name and version as the driver writes them (Vulkan 1.2), else the number that it gives, whose parts are its own.
inline std::string driver_of(PFN_vkGetPhysicalDeviceProperties2 properties_of, VkPhysicalDevice device,
                             const VkPhysicalDeviceProperties &properties) {
    VkPhysicalDeviceDriverProperties driver = {};
    driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
    VkPhysicalDeviceProperties2 more = {};
    more.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    more.pNext = &driver;
    if (!properties_of || properties.apiVersion < VK_API_VERSION_1_2) return std::to_string(properties.driverVersion);
    properties_of(device, &more);
    return std::string(driver.driverName) + " " + driver.driverInfo;
}

inline VulkanDevices vulkan_devices() {
    std::vector<std::string> names, drivers;
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return {"no Vulkan library", "no Vulkan library"};
    auto get = (PFN_vkGetInstanceProcAddr)dlsym(library, "vkGetInstanceProcAddr");
    auto create = get ? (PFN_vkCreateInstance)get(nullptr, "vkCreateInstance") : nullptr;
    VkApplicationInfo application = {};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    // A loader of Vulkan 1.0 has no such function, and refuses an instance of any later version.
    if (get && get(nullptr, "vkEnumerateInstanceVersion")) info.pApplicationInfo = &application;
    VkInstance instance = nullptr;
    if (create && create(&info, nullptr, &instance) == VK_SUCCESS) {
        auto enumerate = (PFN_vkEnumeratePhysicalDevices)get(instance, "vkEnumeratePhysicalDevices");
        auto properties_of = (PFN_vkGetPhysicalDeviceProperties)get(instance, "vkGetPhysicalDeviceProperties");
        auto more_of = (PFN_vkGetPhysicalDeviceProperties2)get(instance, "vkGetPhysicalDeviceProperties2");
        auto destroy = (PFN_vkDestroyInstance)get(instance, "vkDestroyInstance");
        VkPhysicalDevice devices[16];
        uint32_t count = 16;
        VkResult result = enumerate(instance, &count, devices);
        if (result == VK_SUCCESS || result == VK_INCOMPLETE) {
            for (uint32_t i = 0; i < count; i++) {
                VkPhysicalDeviceProperties properties;
                properties_of(devices[i], &properties);
                names.push_back(properties.deviceName);
                drivers.push_back(driver_of(more_of, devices[i], properties));
            }
        }
        destroy(instance, nullptr);
    }
    dlclose(library);
    return {joined(names), joined(drivers)};
}

inline std::string vulkan_device_names() { return vulkan_devices().names; }

inline std::string vulkan_driver_names() { return vulkan_devices().drivers; }

inline std::string cuda_device_names() {
    std::vector<std::string> names;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return "no CUDA library";
    auto init = (int (*)(unsigned))dlsym(library, "cuInit");
    auto count_of = (int (*)(int *))dlsym(library, "cuDeviceGetCount");
    auto name_of = (int (*)(char *, int, int))dlsym(library, "cuDeviceGetName");
    int count = 0;
    if (init && count_of && name_of && init(0) == 0 && count_of(&count) == 0) {
        for (int i = 0; i < count; i++) {
            char name[256] = "";
            if (name_of(name, sizeof(name), i) == 0) names.push_back(name);
        }
    }
    return joined(names);
}

inline std::string vulkan_runtime_file() {
    void *array = dlsym(RTLD_DEFAULT, "halide_internal_initmod_vulkan_64");
    Dl_info info;
    if (!array || !dladdr(array, &info) || !info.dli_fname) return "unknown";
    std::string path = info.dli_fname;
    return path.substr(path.rfind('/') + 1);
}

}  // namespace bench

#endif
