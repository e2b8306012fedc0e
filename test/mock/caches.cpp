// caches.cpp: what is kept in a VkPipelineCache.
//
// An entry of 16 bytes for each pipeline: a hash of its code and entry point, and the hash's complement, so that no
// entry passes for another's. A driver may crash on bytes that are not its own; this one notes that it was given some.

#include "state.h"

#include <cstring>

namespace mock {

namespace {

// As the specification has it, and as instance.cpp describes the device.
struct Header {
    uint32_t bytes = 32, version = VK_PIPELINE_CACHE_HEADER_VERSION_ONE, vendor = 0x10000, device = 1;
    char uuid[VK_UUID_SIZE] = {'m', 'o', 'c', 'k', '-', 'd', 'r', 'i', 'v', 'e', 'r', '-', 'u', 'u', 'i', 'd'};
};
struct Entry {
    uint64_t hash, complement;
};

bool parse(const uint8_t *data, size_t size, std::set<uint64_t> &pipelines) {
    const Header header;
    if (size < sizeof(header) || (size - sizeof(header)) % sizeof(Entry) || memcmp(data, &header, sizeof(header)))
        return false;
    for (size_t at = sizeof(header); at < size; at += sizeof(Entry)) {
        Entry entry;
        memcpy(&entry, data + at, sizeof(entry));
        if (entry.hash != ~entry.complement) return false;
        pipelines.insert(entry.hash);
    }
    return true;
}

}  // namespace

uint64_t hash_of(const std::vector<uint32_t> &words, const std::string &entry) {
    uint64_t h = 0xcbf29ce484222325ull;
    for (uint32_t word : words) h = (h ^ word) * 0x100000001b3ull;
    for (char c : entry) h = (h ^ (uint8_t)c) * 0x100000001b3ull;
    return h;
}

VkResult do_vkCreatePipelineCache(VkDevice device, const VkPipelineCacheCreateInfo *info,
                                  const VkAllocationCallbacks *callbacks, VkPipelineCache *out) {
    PipelineCache *cache = make(get(device), callbacks, out);
    const auto *data = (const uint8_t *)info->pInitialData;
    if (info->initialDataSize && !parse(data, info->initialDataSize, cache->pipelines))
        wrong("a cache is begun with bytes that this driver never gave out");
    return VK_SUCCESS;
}

VkResult do_vkGetPipelineCacheData(VkDevice, VkPipelineCache handle, size_t *size, void *data) {
    const std::set<uint64_t> &pipelines = get(handle).pipelines;
    const Header header;
    const size_t all = sizeof(header) + pipelines.size() * sizeof(Entry);
    if (!data) {
        *size = all;
        return VK_SUCCESS;
    }
    if (*size < all) {
        *size = 0;
        return VK_INCOMPLETE;
    }
    *size = all;
    auto *to = (uint8_t *)data;
    memcpy(to, &header, sizeof(header));
    to += sizeof(header);
    for (uint64_t hash : pipelines) {
        const Entry entry = {hash, ~hash};
        memcpy(to, &entry, sizeof(entry));
        to += sizeof(entry);
    }
    return VK_SUCCESS;
}

VkResult do_vkMergePipelineCaches(VkDevice, VkPipelineCache handle, uint32_t count, const VkPipelineCache *from) {
    PipelineCache &to = get(handle);
    for (uint32_t i = 0; i < count; i++) {
        if (from[i] == handle) wrong("a cache is merged into itself");
        const std::set<uint64_t> &more = get(from[i]).pipelines;
        to.pipelines.insert(more.begin(), more.end());
    }
    return VK_SUCCESS;
}

}  // namespace mock
