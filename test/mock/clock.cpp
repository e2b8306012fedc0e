// clock.cpp: the device's clock: timestamps, and how they are related to the CPU's.
//
// It counts its readers, a microsecond for each, so that times go forward whatever the machine does.

#include "state.h"

#include <chrono>
#include <cstring>

namespace mock {

namespace {

uint64_t next_tick() {
    static uint64_t now = 0;
    return now += 1000;
}

}  // namespace

void do_vkCmdWriteTimestamp(VkCommandBuffer handle, VkPipelineStageFlagBits, VkQueryPool pool, uint32_t) {
    get(pool);
    const CommandBuffer &buffer = get(handle);
    if (!buffer.parent) return;
    const uint32_t family = static_cast<const CommandPool *>(buffer.parent)->family;
    if (buffer.device->profile->families[family].timestampValidBits == 0)
        wrong("a timestamp is asked of a queue family that has none");
}

VkResult do_vkGetQueryPoolResults(VkDevice, VkQueryPool pool, uint32_t, uint32_t count, size_t bytes, void *data,
                                  VkDeviceSize stride, VkQueryResultFlags flags) {
    get(pool);
    const uint64_t size = flags & VK_QUERY_RESULT_64_BIT ? 8 : 4;
    for (uint32_t i = 0; i < count && i * stride + size <= bytes; i++) {
        const uint64_t now = next_tick();
        memcpy((uint8_t *)data + i * stride, &now, size);
    }
    return VK_SUCCESS;
}

VkResult do_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT(VkPhysicalDevice, uint32_t *count, VkTimeDomainEXT *to) {
    return enumerate(std::vector<VkTimeDomainEXT>{VK_TIME_DOMAIN_DEVICE_EXT, VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT}, count,
                     to);
}

VkResult do_vkGetCalibratedTimestampsEXT(VkDevice, uint32_t count, const VkCalibratedTimestampInfoEXT *infos,
                                         uint64_t *times, uint64_t *deviation) {
    const auto monotonic = std::chrono::steady_clock::now().time_since_epoch();
    for (uint32_t i = 0; i < count; i++) {
        const bool of_device = infos[i].timeDomain == VK_TIME_DOMAIN_DEVICE_EXT;
        if (!of_device && infos[i].timeDomain != VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT) wrong("there is no such clock");
        times[i] =
            of_device ? next_tick() : (uint64_t)std::chrono::duration_cast<std::chrono::nanoseconds>(monotonic).count();
    }
    *deviation = 1000;
    return VK_SUCCESS;
}

}  // namespace mock
