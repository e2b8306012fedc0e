// entry.cpp: every entry point of the mock, made from calls.inc.
//
// An entry point counts, is refused if the test said so, and then behaves: as do_NAME says where a file defines that,
// else as its signature tells (creation, destruction, or nothing). Its handles are looked up either way, so that a
// stale one is noticed in every call.

#include "state.h"

#include <cstring>
#include <tuple>

namespace mock {

// Declares what make_calls.py found to be written by hand. The type is that of vulkan.h, so a definition that differs
// does not link.
#define MOCK_WRITTEN_0(name)
#define MOCK_WRITTEN_1(name) std::remove_pointer_t<PFN_##name> do_##name;
#define MOCK_CALL(name, version, extension, errors, written) MOCK_WRITTEN_##written(name)
#include "calls.inc"
#undef MOCK_WRITTEN_0
#undef MOCK_WRITTEN_1

namespace {

template<Call C>
struct Behaviour {
    static constexpr auto written = nullptr;
};
#define MOCK_WRITTEN_0(name)
#define MOCK_WRITTEN_1(name)                                                                                           \
    template<>                                                                                                         \
    struct Behaviour<k##name> {                                                                                        \
        static constexpr auto written = &do_##name;                                                                    \
    };
#define MOCK_CALL(name, version, extension, errors, written) MOCK_WRITTEN_##written(name)
#include "calls.inc"

// ---- Behaviour by signature.

template<typename R, typename... A>
R by_signature(A...) {
    return R();
}
template<typename R, typename Info, typename H, typename = typename Behind<H>::type>
R by_signature(VkDevice device, const Info *, const VkAllocationCallbacks *callbacks, H *out) {
    make(get(device), callbacks, out);
    return R();
}
template<typename R, typename H, typename = typename Behind<H>::type>
R by_signature(VkDevice, H handle, const VkAllocationCallbacks *callbacks) {
    if (handle) end_object(&get(handle), callbacks);
    return R();
}

// ---- Checks of all handle arguments: alive, and of the device that the call is made on.

struct Checker {
    Device *device = nullptr;  // of the first handle
    bool first = true;

    template<typename T>
    void check(T value) {
        if constexpr (IsHandle<T>::value) {
            if (first || value) {
                Object &object = get(value);
                if (first)
                    device = object.device;
                else if (object.device && device && object.device != device)
                    wrong(std::string(object.type) + " belongs to another device");
            }
            first = false;
        } else {
            (void)value;
        }
    }
};

// Calls that the "null" profile answers without a look.
constexpr bool begins(const char *name, const char *with) {
    while (*with) {
        if (*name++ != *with++) return false;
    }
    return true;
}
constexpr bool is_hot(const char *name) {
    for (const char *prefix : {"vkCmd", "vkQueueSubmit", "vkGetFenceStatus", "vkWaitFor", "vkResetFences",
                               "vkResetCommandPool", "vkBeginCommandBuffer", "vkEndCommandBuffer",
                               "vkUpdateDescriptorSets", "vkFlushMapped", "vkInvalidateMapped", "vkWaitSemaphores"}) {
        if (begins(name, prefix)) return true;
    }
    return false;
}
template<Call C>
struct Hot;
#define MOCK_CALL(name, version, extension, errors, written)                                                           \
    template<>                                                                                                         \
    struct Hot<k##name> : std::bool_constant<is_hot(#name)> {};
#include "calls.inc"

// Calls that make one object. What such a call leaves behind its last argument when it fails is undefined: no handle.
constexpr bool is_maker(const char *name) {
    return (begins(name, "vkCreate") && !begins(name, "vkCreateComputePipelines")) || begins(name, "vkAllocateMemory");
}
template<Call C>
struct Maker;
#define MOCK_CALL(name, version, extension, errors, written)                                                           \
    template<>                                                                                                         \
    struct Maker<k##name> : std::bool_constant<is_maker(#name)> {};
#include "calls.inc"

template<typename Handle>
void leave_undefined(Handle *out) {
    memset((void *)out, 0xEE, sizeof(Handle));
}

template<Call C, typename Function>
struct Entry;
template<Call C, typename R, typename... A>
struct Entry<C, R(VKAPI_PTR *)(A...)> {
    static R VKAPI_CALL call(A... arguments) {
        note_call(C);
        if (Hot<C>::value && fast.load(std::memory_order_relaxed)) return R();
        std::lock_guard<std::mutex> lock(mutex);
        current_call = C;
        Checker checker;
        if (C != kvkGetInstanceProcAddr) (checker.check(arguments), ...);  // which may be asked with no instance
        if constexpr (std::is_same<R, VkResult>::value) {
            VkResult result = VK_SUCCESS;
            if (!take_failure(C, &result, checker.device)) result = behave(arguments...);
            if constexpr (Maker<C>::value) {
                if (result < 0) leave_undefined(std::get<sizeof...(A) - 1>(std::tie(arguments...)));
            }
            note_result(C, result);
            return result;
        } else {
            note_result(C, VK_SUCCESS);
            return behave(arguments...);
        }
    }
    static R behave(A... arguments) {
        if constexpr (!std::is_same<decltype(Behaviour<C>::written), const std::nullptr_t>::value)
            return Behaviour<C>::written(arguments...);
        else
            return by_signature<R>(arguments...);
    }
};

struct Named {
    Call call;
    PFN_vkVoidFunction function;
};
const Named kFunctions[kCallCount] = {
#define MOCK_CALL(name, version, extension, errors, written)                                                           \
    {k##name, (PFN_vkVoidFunction)&Entry<k##name, PFN_##name>::call},
#include "calls.inc"
};

bool has(const std::vector<std::string> &names, const char *name) {
    for (const std::string &one : names) {
        if (one == name) return true;
    }
    return false;
}

// Whether a device or instance of that version with these extensions has the function.
bool offers(const CallInfo &call, uint32_t version, const std::vector<std::string> &extensions) {
    const uint32_t number = VK_API_VERSION_MAJOR(version) << 8 | VK_API_VERSION_MINOR(version);
    return (call.version && call.version <= number) || (*call.extension && has(extensions, call.extension));
}

PFN_vkVoidFunction find(const char *name, uint32_t version, const std::vector<std::string> &extensions) {
    for (const Named &function : kFunctions) {
        const CallInfo &call = kCalls[function.call];
        if (strcmp(call.name, name) == 0) return offers(call, version, extensions) ? function.function : nullptr;
    }
    return nullptr;
}

}  // namespace

PFN_vkVoidFunction do_vkGetInstanceProcAddr(VkInstance handle, const char *name) {
    if (!handle) {
        const bool global = strncmp(name, "vkEnumerateInstance", 19) == 0 || strcmp(name, "vkCreateInstance") == 0 ||
                            strcmp(name, "vkGetInstanceProcAddr") == 0;
        const uint32_t version = current_profile().loader_version;
        return global ? find(name, version, {}) : nullptr;
    }
    Instance &instance = get(handle);
    // Functions of devices are found here too; those of device extensions, since some device may have them.
    std::vector<std::string> extensions = instance.extensions;
    for (const char *extension : instance.profile->extensions) extensions.push_back(extension);
    return find(name, instance.profile->loader_version, extensions);
}

PFN_vkVoidFunction do_vkGetDeviceProcAddr(VkDevice handle, const char *name) {
    Device &device = get(handle);
    // Of instance extensions too, those of VK_EXT_debug_utils for example.
    std::vector<std::string> extensions = device.extensions;
    if (const auto *instance = static_cast<const Instance *>(device.parent))
        extensions.insert(extensions.end(), instance->extensions.begin(), instance->extensions.end());
    return find(name, device.api_version, extensions);
}

}  // namespace mock

extern "C" __attribute__((visibility("default"))) PFN_vkVoidFunction VKAPI_CALL
vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    return mock::Entry<mock::kvkGetInstanceProcAddr, PFN_vkGetInstanceProcAddr>::call(instance, name);
}
