// caches.cpp: a model of what a driver keeps in a VkPipelineCache.
//
// Software drivers keep nothing there: lavapipe's cache is a header without content, so nothing could be seen of a
// cache that outlives its process. With the limit "pipelineCache.model" set to a number of bytes, the layer keeps the
// content itself: an entry of so many bytes for each compute pipeline (a hash of its code, entry point and
// specialization, then bytes that follow from the hash). Its caches are given out, taken back and merged as the
// specification says, and pipelines are counted as found or as compiled anew. Below it every pipeline is compiled by
// the driver, as ever.
//
// A driver may crash on content that is damaged; this one counts it (hv_layer_cache_refused), so that a test can ask
// that it never gets any.

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#define HV_COUNT_LAYER_IMPLEMENTATION
#include "count_layer.h"
#include "state.h"

namespace hv_layer {
namespace {

constexpr size_t kHeader = 32;  // VkPipelineCacheHeaderVersionOne

std::mutex mutex;
std::map<VkPipelineCache, std::set<uint64_t>> &caches = *new std::map<VkPipelineCache, std::set<uint64_t>>;
std::map<VkShaderModule, uint64_t> &modules = *new std::map<VkShaderModule, uint64_t>;
std::string &initial = *new std::string;
uint64_t found = 0, compiled = 0, refused = 0;

uint64_t hash(uint64_t h, const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull;
    return h;
}
constexpr uint64_t kSeed = 0xcbf29ce484222325ull;

size_t entry_bytes() { return limit_or("pipelineCache.model", 0); }

std::string header_of(Next &next) {
    VkPhysicalDeviceProperties p;
    ((PFN_vkGetPhysicalDeviceProperties)next.call[kvkGetPhysicalDeviceProperties])(next.physical, &p);
    change(next.physical, &p);
    const uint32_t words[4] = {(uint32_t)kHeader, 1, p.vendorID, p.deviceID};
    return std::string((const char *)words, sizeof(words)) + std::string((const char *)p.pipelineCacheUUID, 16);
}

std::string entry_of(uint64_t pipeline) {
    std::string entry(entry_bytes(), 0);
    for (size_t i = 0; i < entry.size(); i++) entry[i] = (char)(i < 8 ? pipeline >> (8 * i) : pipeline * i >> 56);
    return entry;
}

std::string data_of(Next &next, const std::set<uint64_t> &pipelines) {
    std::string data = header_of(next);
    for (uint64_t pipeline : pipelines) data += entry_of(pipeline);
    return data;
}

bool parse(Next &next, const std::string &data, std::set<uint64_t> &pipelines) {
    const size_t bytes = entry_bytes();
    if (data.substr(0, kHeader) != header_of(next) || (data.size() - kHeader) % bytes != 0) return false;
    for (size_t at = kHeader; at < data.size(); at += bytes) {
        uint64_t pipeline;
        memcpy(&pipeline, &data[at], 8);
        if (data.compare(at, bytes, entry_of(pipeline)) != 0) return false;
        pipelines.insert(pipeline);
    }
    return true;
}

}  // namespace

bool models_caches() { return entry_bytes() >= 8; }

void remember_module(VkShaderModule module, const VkShaderModuleCreateInfo *info) {
    std::lock_guard<std::mutex> lock(mutex);
    modules[module] = hash(kSeed, info->pCode, info->codeSize);
}

void remember_initial(const VkPipelineCacheCreateInfo *info) {
    std::lock_guard<std::mutex> lock(mutex);
    initial.assign((const char *)info->pInitialData, info->initialDataSize);
}

void remember_cache(Next &next, VkPipelineCache cache, const VkPipelineCacheCreateInfo *info) {
    std::lock_guard<std::mutex> lock(mutex);
    std::set<uint64_t> &pipelines = caches[cache];
    pipelines.clear();
    if (!info->initialDataSize) return;
    if (!parse(next, std::string((const char *)info->pInitialData, info->initialDataSize), pipelines)) {
        pipelines.clear();
        refused++;
    }
}

void look_up_pipeline(VkPipelineCache cache, const VkComputePipelineCreateInfo &info) {
    std::lock_guard<std::mutex> lock(mutex);
    uint64_t pipeline = hash(modules[info.stage.module], info.stage.pName, strlen(info.stage.pName));
    if (const VkSpecializationInfo *s = info.stage.pSpecializationInfo) {
        pipeline = hash(pipeline, s->pMapEntries, s->mapEntryCount * sizeof(*s->pMapEntries));
        pipeline = hash(pipeline, s->pData, s->dataSize);
    }
    if (cache != VK_NULL_HANDLE && !caches[cache].insert(pipeline).second)
        found++;
    else
        compiled++;
}

VkResult give_cache_data(Next &next, VkPipelineCache cache, size_t *size, void *to) {
    std::lock_guard<std::mutex> lock(mutex);
    const std::string data = data_of(next, caches[cache]);
    const size_t room = *size;
    *size = data.size();
    if (!to) return VK_SUCCESS;
    if (room < data.size()) *size = room < kHeader ? 0 : room - (room - kHeader) % entry_bytes();
    memcpy(to, data.data(), *size);
    return *size < data.size() ? VK_INCOMPLETE : VK_SUCCESS;
}

void merge_caches(VkPipelineCache into, uint32_t count, const VkPipelineCache *from) {
    std::lock_guard<std::mutex> lock(mutex);
    for (uint32_t i = 0; i < count; i++) caches[into].insert(caches[from[i]].begin(), caches[from[i]].end());
}

}  // namespace hv_layer

using namespace hv_layer;

uint64_t hv_layer_cache_found() {
    std::lock_guard<std::mutex> lock(mutex);
    return found;
}
uint64_t hv_layer_cache_compiled() {
    std::lock_guard<std::mutex> lock(mutex);
    return compiled;
}
uint64_t hv_layer_cache_refused() {
    std::lock_guard<std::mutex> lock(mutex);
    return refused;
}
uint64_t hv_layer_cache_initial(void *to, uint64_t room) {
    std::lock_guard<std::mutex> lock(mutex);
    memcpy(to, initial.data(), initial.size() < room ? initial.size() : room);
    return initial.size();
}
