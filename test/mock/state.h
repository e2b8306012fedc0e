// state.h: what the mock driver's files share: the calls it has, its objects, and what the test asked for.
//
// One mutex guards everything but the counts. It is held for the length of a call; only waits let go of it.

#ifndef HALIDE_VULKAN_MOCK_STATE_H
#define HALIDE_VULKAN_MOCK_STATE_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define MOCK_IMPLEMENTATION
#include "mock.h"
#include "profiles.h"

namespace mock {

enum Call : int {
#define MOCK_CALL(name, version, extension, errors, written) k##name,
#include "calls.inc"
    kCallCount
};

struct CallInfo {
    const char *name;
    uint32_t version;  // core since, 0: never
    const char *extension;
    std::vector<VkResult> errors;
    bool returns_result;
};
extern const CallInfo kCalls[kCallCount];

// ---- Objects. Handles are numbers that are never used twice, so that a stale one is always known as stale.

struct Object {
    virtual ~Object() = default;
    const char *type = "";
    uint64_t handle = 0;
    Object *parent = nullptr;
    struct Device *device = nullptr;
    const VkAllocationCallbacks *callbacks = nullptr;
    uint32_t pending = 0;  // unfinished submissions that use it
};

struct Instance : Object {
    const Profile *profile;
    uint32_t api_version;
    std::vector<std::string> extensions;
};
struct Physical : Object {
    const Profile *profile;
};
struct Device : Object {
    const Profile *profile;
    uint32_t api_version;
    std::vector<std::string> extensions;
    std::vector<struct Queue *> queues;
    bool lost = false;
};
struct Memory : Object {
    uint64_t size = 0;
    uint32_t type_index = 0;
    uint8_t *bytes = nullptr;   // the device's
    uint8_t *shadow = nullptr;  // what the CPU sees of memory that is not coherent
    bool mapped = false;
};
struct Buffer : Object {
    uint64_t size = 0;
    VkBufferUsageFlags usage = 0;
    uint64_t memory = 0;  // a handle: it may be freed first
    uint64_t offset = 0;
    std::vector<uint32_t> families;  // that share it; none: it belongs to the family that uses it first
};
struct Fence : Object {
    bool signaled = false;
};
struct Semaphore : Object {
    bool timeline = false;
    uint64_t value = 0;  // of a binary one: 0 or 1
};
struct CommandPool : Object {
    uint32_t family = 0;
    std::vector<struct CommandBuffer *> buffers;
};
struct Shader : Object {
    std::vector<uint32_t> words;
};
struct Pipeline : Object {
    std::string kernel;
    uint32_t local_size[3] = {1, 1, 1};
    bool pushes = false;
    std::vector<uint32_t> words;
};
struct PipelineLayout : Object {
    uint32_t push_bytes = 0;
};
struct PipelineCache : Object {
    std::set<uint64_t> pipelines;  // hash_of each
};
struct SetLayout : Object {
    std::vector<VkDescriptorType> types;
};
struct DescriptorPool : Object {
    uint32_t sets_left = 0;
    std::map<VkDescriptorType, uint32_t> left;
    std::vector<struct DescriptorSet *> sets;
};
struct DescriptorSet : Object {
    struct Binding {
        VkDescriptorType type;
        uint64_t buffer = 0;
        uint64_t offset = 0, range = 0;
    };
    std::vector<Binding> bindings;
    uint32_t recorded = 0;  // commands that name it, from their recording to the end of their work
};
struct QueryPool : Object {};
struct Messenger : Object {};

// X(Vulkan's type, ours)
#define MOCK_TYPES(X)                                                                                                  \
    X(VkInstance, Instance)                                                                                            \
    X(VkPhysicalDevice, Physical)                                                                                      \
    X(VkDevice, Device)                                                                                                \
    X(VkQueue, Queue)                                                                                                  \
    X(VkDeviceMemory, Memory)                                                                                          \
    X(VkBuffer, Buffer)                                                                                                \
    X(VkFence, Fence)                                                                                                  \
    X(VkSemaphore, Semaphore)                                                                                          \
    X(VkCommandPool, CommandPool)                                                                                      \
    X(VkCommandBuffer, CommandBuffer)                                                                                  \
    X(VkShaderModule, Shader)                                                                                          \
    X(VkPipeline, Pipeline)                                                                                            \
    X(VkPipelineLayout, PipelineLayout)                                                                                \
    X(VkPipelineCache, PipelineCache)                                                                                  \
    X(VkDescriptorSetLayout, SetLayout)                                                                                \
    X(VkDescriptorPool, DescriptorPool)                                                                                \
    X(VkDescriptorSet, DescriptorSet)                                                                                  \
    X(VkQueryPool, QueryPool)                                                                                          \
    X(VkDebugUtilsMessengerEXT, Messenger)

// One recorded command: what it does when its submission finishes, and the handles it names.
struct Command {
    std::vector<std::pair<const char *, uint64_t>> uses;  // type and handle
    std::function<void()> run;
};
struct CommandBuffer : Object {
    enum State { initial, recording, executable, spent } state = initial;
    bool one_time = false;
    std::vector<Command> commands;
    uint64_t pipeline = 0, set = 0;  // bound now
    uint8_t push[128] = {};
};
struct Submission {
    std::vector<CommandBuffer *> commands;
    std::vector<Object *> uses;
    Fence *fence = nullptr;
    std::vector<std::pair<Semaphore *, uint64_t>> waits, signals;
    uint32_t polls_left = 0;
    uint64_t number = 0;  // over all queues
};
struct Queue : Object {
    uint32_t family = 0, index = 0;
    std::deque<Submission> submissions;
};

template<typename H>
struct Behind {};
#define X(handle, ours)                                                                                                \
    template<>                                                                                                         \
    struct Behind<handle> {                                                                                            \
        using type = ours;                                                                                             \
        static constexpr const char *name = #handle;                                                                   \
    };
MOCK_TYPES(X)
#undef X
template<typename T, typename = void>
struct IsHandle : std::false_type {};
template<typename T>
struct IsHandle<T, std::void_t<typename Behind<T>::type>> : std::true_type {};

// The living object of that number, or null. `type` null: of any.
Object *find_object(const char *type, uint64_t handle);
void add_object(Object *object, const char *type, Object *parent, const VkAllocationCallbacks *callbacks);
// Ends the object, after checking that nothing pending uses it and that the callbacks are those of its creation.
void end_object(Object *object, const VkAllocationCallbacks *callbacks);
// For an object with no callbacks of its own: its pool's or instance's.
void end_child(Object *object);
std::vector<Object *> children_of(const Object *parent);

// Whether unfinished work uses it. Work of a lost device counts as finished.
inline bool is_busy(const Object &object) { return object.pending && !(object.device && object.device->lost); }

// Notes a fault of the application, with the call that runs now.
void wrong(const std::string &what);

// The object behind a handle; where there is none, that is noted and a stand-in returned.
template<typename H>
typename Behind<H>::type &get(H handle) {
    using T = typename Behind<H>::type;
    if (Object *found = find_object(Behind<H>::name, (uint64_t)handle)) return *static_cast<T *>(found);
    wrong(std::string(Behind<H>::name) + (handle ? " was destroyed, or never made" : " is null"));
    static T *stand_in = new T;
    return *stand_in;
}
template<typename H>
typename Behind<H>::type *make(Object &parent, const VkAllocationCallbacks *callbacks, H *out) {
    auto *object = new typename Behind<H>::type;
    add_object(object, Behind<H>::name, &parent, callbacks);
    *out = (H)object->handle;
    return object;
}

// ---- What the test asked for.

extern std::mutex mutex;
extern std::condition_variable finished_some;  // a submission finished, or a device was lost
extern std::atomic<bool> fast;                 // the "null" profile: nothing is checked or executed
extern thread_local Call current_call;

const Profile &current_profile();
void note_call(Call call);
void note_result(Call call, VkResult result);
// Whether this call is to fail, and how.
bool take_failure(Call call, VkResult *result, Device *device);
extern MockCompletion completion;
extern uint32_t completion_polls;
extern bool lost_says_done;
// A barrier was recorded: stages and accesses before and after it.
void note_barrier(uint32_t from_stages, uint32_t from_accesses, uint32_t to_stages, uint32_t to_accesses);
// Whether the submit that is being made is the one that loses the device in flight.
bool loses_in_flight();

MockKernel find_kernel(const std::string &name);

// queue.cpp
uint64_t finish_submissions(uint64_t n);
uint64_t pending_submissions();
void finish_all_of(Device &device);
void lose(Device &device);

// caches.cpp
uint64_t hash_of(const std::vector<uint32_t> &words, const std::string &entry);

// commands.cpp
void forget_commands(CommandBuffer &buffer);

// The bytes of a buffer from `offset` on, null (and noted) where it has no living memory or fewer than `size`.
uint8_t *bytes_of(uint64_t buffer, uint64_t offset, uint64_t size);

// The enumerations' two-call rule.
template<typename T>
VkResult enumerate(const std::vector<T> &from, uint32_t *count, T *to) {
    if (!to) {
        *count = (uint32_t)from.size();
        return VK_SUCCESS;
    }
    const uint32_t n = *count < from.size() ? *count : (uint32_t)from.size();
    for (uint32_t i = 0; i < n; i++) to[i] = from[i];
    *count = n;
    return n < from.size() ? VK_INCOMPLETE : VK_SUCCESS;
}

}  // namespace mock

#endif
