// state.cpp: counts, failures, ledger, and the exported functions of count_layer.h.
//
// Counts and failures are atomics in fixed arrays, so that counting neither allocates nor locks: a test that counts
// host allocations or races sees those of the runtime. The ledger locks and allocates; it is touched where objects are
// made and destroyed, which in steady state is never. Labels lock as well, and allocate for a text that is new.

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#define HV_COUNT_LAYER_IMPLEMENTATION
#include "count_layer.h"
#include "state.h"

namespace hv_layer {

const char *const kCallNames[kCallCount] = {
#define CALL(name, level) #name,
#include "calls.def"
};

namespace {

template<typename Function>
struct ReturnsResult : std::false_type {};
template<typename... A>
struct ReturnsResult<VkResult(VKAPI_PTR *)(A...)> : std::true_type {};

const bool kFallible[kCallCount] = {
#define CALL(name, level) ReturnsResult<PFN_##name>::value,
#include "calls.def"
};

struct Failure {
    std::atomic<int> countdown;  // 0: none; n: the nth call from now; < 0: all
    std::atomic<int> result;
};

std::atomic<uint64_t> counts[kCallCount];
Failure failures[kCallCount];
std::atomic<uint64_t> failed_calls, wrong, instance_count, barriers_to_host;
std::atomic<int> newest_device_type{-1};

constexpr int kMaxNext = 128;  // instances and devices alive at once
Next nexts[kMaxNext];
std::mutex next_mutex;

struct Object {
    const char *type;
    uint64_t parent, bytes;
    bool named;
};
std::mutex ledger_mutex;
using Ledger = std::map<std::pair<std::string, uint64_t>, Object>;
Ledger &ledger = *new Ledger;  // never destroyed: handlers that run at exit still destroy Vulkan objects
std::map<std::string, int64_t> &live = *new std::map<std::string, int64_t>;
uint64_t allocated = 0, peak_allocated = 0;
std::map<uint64_t, std::pair<uint32_t, uint64_t>> &heap_of = *new std::map<uint64_t, std::pair<uint32_t, uint64_t>>;
using Texts = std::map<std::string, uint64_t>;
Texts &names = *new Texts, &labels = *new Texts;

std::mutex settings_mutex;
std::set<uint32_t> &vendors_told = *new std::set<uint32_t>;
std::unordered_map<std::string, uint64_t> &limits = *new std::unordered_map<std::string, uint64_t>;
std::vector<uint32_t> &memory_types = *new std::vector<uint32_t>;

int call_of(const char *name) {
    for (int i = 0; i < kCallCount; i++) {
        if (strcmp(kCallNames[i], name) == 0) return i;
    }
    return -1;
}

void forget(Ledger::iterator object) {
    live[object->second.type]--;
    allocated -= object->second.bytes;
    ledger.erase(object);
}

// HV_LAYER_LIMITS="key=value,key=value" and HV_LAYER_MEMORY="discrete" set up programs that do not include
// count_layer.h; HV_LAYER_REPORT names a file that gets the counts when the process ends.
struct FromEnvironment {
    FromEnvironment() {
        if (const char *text = getenv("HV_LAYER_LIMITS")) {
            std::string all = text;
            for (size_t begin = 0; begin < all.size();) {
                size_t end = all.find(',', begin);
                if (end == std::string::npos) end = all.size();
                std::string one = all.substr(begin, end - begin);
                size_t equals = one.find('=');
                if (equals == std::string::npos ||
                    !hv_layer_limit(one.substr(0, equals).c_str(), strtoull(one.c_str() + equals + 1, nullptr, 0))) {
                    fprintf(stderr, "HV_LAYER_LIMITS: cannot use '%s'\n", one.c_str());
                    abort();
                }
                begin = end + 1;
            }
        }
        if (const char *text = getenv("HV_LAYER_MEMORY")) {
            if (strcmp(text, "discrete") != 0) {
                fprintf(stderr, "HV_LAYER_MEMORY: '%s' is not 'discrete'\n", text);
                abort();
            }
            const uint32_t host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
            const uint32_t types[] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, host,
                                      host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT};
            hv_layer_memory_types(types, 3);
        }
    }
    ~FromEnvironment() {
        const char *path = getenv("HV_LAYER_REPORT");
        FILE *file = path ? fopen(path, "w") : nullptr;
        if (!file) return;
        hv_layer_print(file);
        fclose(file);
    }
} from_environment;

}  // namespace

Next &next_of(void *key) {
    for (Next &next : nexts) {
        if (next.key.load(std::memory_order_acquire) == key) return next;
    }
    fprintf(stderr, HV_COUNT_LAYER_NAME ": a handle of no known instance or device\n");
    abort();
}

Next &add_next(void *key) {
    std::lock_guard<std::mutex> lock(next_mutex);
    for (Next &next : nexts) {
        if (next.key.load() == nullptr || next.key.load() == key) {
            next.lost = false;  // the place may have been a lost device's
            next.device = VK_NULL_HANDLE;
            next.key.store(key, std::memory_order_release);
            return next;
        }
    }
    fprintf(stderr, HV_COUNT_LAYER_NAME ": more than %d instances and devices\n", kMaxNext);
    abort();
}

void remove_next(void *key) {
    std::lock_guard<std::mutex> lock(next_mutex);
    next_of(key).key.store(nullptr);
}

void count_call(Call call) { counts[call].fetch_add(1, std::memory_order_relaxed); }

bool take_failure(Call call, VkResult *result, Next *next) {
    if (take_numbered_failure(call, result, next)) {
        failed_calls++;
        return true;
    }
    Failure &failure = failures[call];
    int countdown = failure.countdown.load(std::memory_order_acquire);
    while (countdown > 0 && !failure.countdown.compare_exchange_weak(countdown, countdown - 1)) {}
    if (countdown == 0 || countdown > 1) return false;
    *result = (VkResult)failure.result.load();
    note_failure(call, *result);
    failed_calls++;
    return true;
}

uint64_t limit_or(const char *key, uint64_t otherwise) {
    std::lock_guard<std::mutex> lock(settings_mutex);
    auto found = limits.find(key);
    return found == limits.end() ? otherwise : found->second;
}

bool limit_is_set(const char *key) {
    std::lock_guard<std::mutex> lock(settings_mutex);
    return limits.count(key) != 0;
}

std::vector<uint32_t> wanted_memory_types() {
    std::lock_guard<std::mutex> lock(settings_mutex);
    return memory_types;
}

void created(const char *type, uint64_t handle, uint64_t parent, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    // A handle that is there already belongs to a leaked object whose device is gone; it stays counted as live.
    ledger[{type, handle}] = {type, parent, bytes, false};
    live[type]++;
    allocated += bytes;
    if (allocated > peak_allocated) peak_allocated = allocated;
}

void destroyed(const char *type, uint64_t handle) {
    if (!handle) return;
    std::lock_guard<std::mutex> lock(ledger_mutex);
    auto found = ledger.find({type, handle});
    if (found == ledger.end()) {
        wrong++;
    } else {
        forget(found);
    }
}

void destroyed_children(const char *type, uint64_t parent) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    for (auto object = ledger.lower_bound({type, 0}); object != ledger.end() && object->first.first == type;) {
        auto next = std::next(object);
        if (object->second.parent == parent) forget(object);
        object = next;
    }
}

bool would_exceed(uint64_t bytes, uint64_t limit) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    return allocated + bytes > limit;
}

void heap_took(uint64_t memory, uint32_t heap, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    heap_of[memory] = {heap, bytes};
}
void heap_gave(uint64_t memory) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    heap_of.erase(memory);
}
uint64_t heap_used(uint32_t heap) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    uint64_t sum = 0;
    for (auto &one : heap_of) {
        if (one.second.first == heap) sum += one.second.second;
    }
    return sum;
}

void entered_instance() { instance_count++; }
void made_device_of(VkPhysicalDeviceType type) { newest_device_type = type; }
void told_of_vendor(uint32_t vendor) {
    std::lock_guard<std::mutex> lock(settings_mutex);
    vendors_told.insert(vendor);
}
void recorded_barrier(VkPipelineStageFlags to) { barriers_to_host += to == VK_PIPELINE_STAGE_HOST_BIT; }

void named(const char *type, uint64_t handle, const char *name) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    names[name ? name : ""]++;
    auto found = ledger.find({type, handle});
    if (found != ledger.end()) found->second.named = true;
}

void labelled(const char *name) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    labels[name ? name : ""]++;
}

}  // namespace hv_layer

using namespace hv_layer;

uint64_t hv_layer_count(const char *call) {
    const int i = call_of(call);
    return i < 0 ? UINT64_MAX : counts[i].load();
}

uint64_t hv_layer_count_prefix(const char *prefix) {
    uint64_t sum = 0;
    for (int i = 0; i < kCallCount; i++) {
        if (strncmp(kCallNames[i], prefix, strlen(prefix)) == 0) sum += counts[i].load();
    }
    return sum;
}

void hv_layer_reset() {
    for (auto &count : counts) count = 0;
    barriers_to_host = 0;
    reset_log();
    std::lock_guard<std::mutex> lock(ledger_mutex);
    peak_allocated = allocated;
    names.clear();
    labels.clear();
}

int hv_layer_fail(const char *call, int nth, int result) {
    const int i = call_of(call);
    if (i < 0 || !kFallible[i]) return 0;
    failures[i].countdown = 0;
    failures[i].result = result;
    failures[i].countdown.store(nth, std::memory_order_release);
    return 1;
}

uint64_t hv_layer_failed() { return failed_calls; }

int hv_layer_memory_types(const uint32_t *flags, int count) {
    if (count < 0 || count > (int)VK_MAX_MEMORY_TYPES) return 0;
    std::lock_guard<std::mutex> lock(settings_mutex);
    memory_types.assign(flags, flags + count);
    return 1;
}

int hv_layer_limit(const char *key, uint64_t value) {
    if (!is_limit(key)) return 0;
    std::lock_guard<std::mutex> lock(settings_mutex);
    limits[key] = value;
    return 1;
}

void hv_layer_clear() {
    for (Failure &failure : failures) failure.countdown = 0;
    clear_numbered_failures();
    std::lock_guard<std::mutex> lock(settings_mutex);
    limits.clear();
    memory_types.clear();
}

int64_t hv_layer_live(const char *type) {
    static const char *const kTypes[] = {"VkInstance",
                                         "VkDevice",
                                         "VkBuffer",
                                         "VkDeviceMemory",
                                         "VkFence",
                                         "VkSemaphore",
                                         "VkEvent",
                                         "VkQueryPool",
                                         "VkShaderModule",
                                         "VkPipelineCache",
                                         "VkPipeline",
                                         "VkPipelineLayout",
                                         "VkDescriptorSetLayout",
                                         "VkDescriptorPool",
                                         "VkDescriptorSet",
                                         "VkDescriptorUpdateTemplate",
                                         "VkCommandPool",
                                         "VkCommandBuffer",
                                         "VkDebugUtilsMessengerEXT"};
    std::lock_guard<std::mutex> lock(ledger_mutex);
    if (strcmp(type, "mapped") == 0) return live["mapped"];
    int64_t sum = 0;
    bool known = false;
    for (const char *one : kTypes) {
        if (*type && strcmp(type, one) != 0) continue;
        known = true;
        sum += live[one];
    }
    return known ? sum : -1;
}

int64_t hv_layer_unnamed(const char *type) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    int64_t sum = 0;
    for (auto &[key, object] : ledger) sum += (!*type || key.first == type) && !object.named;
    return sum;
}

static uint64_t count_containing(const Texts &list, const char *part) {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    uint64_t sum = 0;
    for (auto &[text, count] : list) sum += text.find(part) != std::string::npos ? count : 0;
    return sum;
}
uint64_t hv_layer_names(const char *part) { return count_containing(names, part); }
uint64_t hv_layer_labels(const char *part) { return count_containing(labels, part); }

uint64_t hv_layer_allocated_bytes() {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    return allocated;
}

uint64_t hv_layer_peak_allocated_bytes() {
    std::lock_guard<std::mutex> lock(ledger_mutex);
    return peak_allocated;
}

uint64_t hv_layer_wrong_destroys() { return wrong; }

uint64_t hv_layer_host_barriers() { return barriers_to_host; }
uint64_t hv_layer_instances() { return instance_count; }
int hv_layer_device_type() { return newest_device_type; }
int hv_layer_told_vendor(uint32_t vendor) {
    std::lock_guard<std::mutex> lock(settings_mutex);
    return vendors_told.count(vendor) > 0;
}

void hv_layer_print(FILE *to) {
    for (int i = 0; i < kCallCount; i++) {
        if (counts[i].load()) fprintf(to, "%-48s %llu\n", kCallNames[i], (unsigned long long)counts[i].load());
    }
    std::lock_guard<std::mutex> lock(ledger_mutex);
    for (auto &entry : live) {
        if (entry.second) fprintf(to, "live %-43s %lld\n", entry.first.c_str(), (long long)entry.second);
    }
}
