// support.h: what the correctness tests share.
//
// Every test here is an ordinary Halide JIT program: it chooses its own target, compiles small pipelines with Halide.h
// and compares what comes back with values computed on the CPU. Which Vulkan runtime stands behind it, stock or ours,
// is decided outside by the launcher (VK_RUNTIME_UNDER_TEST), so that each test can be seen red on the stock runtime.
//
// A machine without Vulkan makes every test fail: the first pipeline throws. Nothing here skips.
//
// Errors: Halide aborts the process when a runtime error arrives with a NULL user context, so calls that are expected
// to fail take a `Context`, which keeps the messages instead. Calls that are expected to work may use NULL.
//
// HV_TEST_LIMITS="key=value,key=value" makes the counting layer report other device limits (the keys are those of
// hv_layer_limit), HV_TEST_MEMORY="flags,flags" other memory types (VkMemoryPropertyFlags), so one program can be run
// as if on several devices. The run fails if the layer was not in use.
//
// HV_TEST_FEATURES="no_asserts" (features, separated by '-') adds them to the target of every test.
//
// Threads: a Context belongs to one thread at a time; everything else is stateless.

#ifndef HALIDE_VULKAN_TEST_SUPPORT_H
#define HALIDE_VULKAN_TEST_SUPPORT_H

#include "Halide.h"

#include "../layer/count_layer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace vulkan_test {

// The target of the whole directory: every integer type, Vulkan 1.3. vk_float64 only where a test computes with double.
inline Halide::Target gpu_target(const std::vector<Halide::Target::Feature> &more = {}) {
    const char *features = std::getenv("HV_TEST_FEATURES");
    Halide::Target target(std::string("host-vulkan-vk_v13-vk_int8-vk_int16-vk_int64") + (features ? "-" : "") +
                          (features ? features : ""));
    for (Halide::Target::Feature feature : more) target.set_feature(feature);
    return target;
}

inline const halide_device_interface_t *vulkan_interface(const Halide::Target &target = gpu_target()) {
    return Halide::get_device_interface_for_device_api(Halide::DeviceAPI::Vulkan, target);
}

// The address of a function that the JIT's runtime modules export: ours (halide_vulkan_*) or Halide's own
// (halide_copy_to_host, halide_reuse_device_allocations). Null if no module has it.
inline void *find_export(const std::string &name, const Halide::Target &target = gpu_target()) {
    using namespace Halide::Internal;
    for (JITModule &module : JITSharedRuntime::get(nullptr, target.with_feature(Halide::Target::JIT))) {
        JITModule::Symbol symbol = module.find_symbol_by_name(name);
        if (symbol.address) return symbol.address;
    }
    return nullptr;
}

// runtime_call<int(void *, bool)>("halide_reuse_device_allocations")(nullptr, false)
template<typename Signature>
Signature *runtime_call(const std::string &name, const Halide::Target &target = gpu_target()) {
    void *address = find_export(name, target);
    if (!address) throw std::runtime_error("the runtime does not export " + name);
    return reinterpret_cast<Signature *>(address);
}

// A user context that keeps error and trace messages. As a JITUserContext it can be passed to Callables, to realize
// and, as a void pointer, to every exported function and device interface member.
class Context : public Halide::JITUserContext {
public:
    Context() {
        handlers.custom_error = on_error;
        handlers.custom_print = on_print;
    }
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;

    std::vector<std::string> errors;
    std::vector<std::string> prints;

    Halide::JITUserContext *jit() { return this; }
    void *raw() { return static_cast<Halide::JITUserContext *>(this); }

    std::string all() const {
        std::string text;
        for (const std::string &error : errors) text += "[" + error + "] ";
        return text;
    }
    void clear() {
        errors.clear();
        prints.clear();
    }

private:
    static void on_error(Halide::JITUserContext *self, const char *message) {
        if (self) static_cast<Context *>(self)->errors.emplace_back(message);
    }
    static void on_print(Halide::JITUserContext *self, const char *message) {
        if (self) static_cast<Context *>(self)->prints.emplace_back(message);
    }
};

// A call that must work: returns 0 and throws nothing. (GoogleTest does not know Halide's exceptions and would only say
// "unknown".)
template<typename Call>
::testing::AssertionResult succeeded(Call &&call) {
    try {
        const int code = call();
        if (code == 0) return ::testing::AssertionSuccess();
        return ::testing::AssertionFailure() << "returned " << code;
    } catch (const Halide::Error &error) {
        return ::testing::AssertionFailure() << "threw: " << error.what();
    }
}
#define ASSERT_OK(...) ASSERT_TRUE(::vulkan_test::succeeded([&]() -> int { return (__VA_ARGS__); }))

// The smallest pipeline there is: out(x) = in(x) * factor + add. A Callable of (in, add, out), compiled anew.
inline Halide::Callable line_kernel(int factor, const Halide::Target &target = gpu_target()) {
    Halide::Var x("x"), xi("xi");
    Halide::ImageParam input(Halide::Int(32), 1, "input");
    Halide::Param<int> add("add");
    Halide::Func f("line");
    f(x) = input(x) * factor + add;
    f.gpu_tile(x, xi, 32, Halide::TailStrategy::GuardWithIf);
    return f.compile_to_callable({input, add}, target);
}

// Exactly one message, and it names every given part (what failed, what was asked, the limit).
// Halide's own buffer_copy adds "Failure in halide_buffer_copy_already_locked" to whatever its callee said; that one
// does not count.
inline ::testing::AssertionResult one_message(const Context &context, const std::vector<std::string> &parts = {}) {
    std::vector<std::string> causes;
    for (const std::string &error : context.errors) {
        if (error.find("Failure in halide_buffer_copy") == std::string::npos) causes.push_back(error);
    }
    if (causes.size() != 1) {
        return ::testing::AssertionFailure() << causes.size() << " messages instead of 1: " << context.all();
    }
    if (causes[0].find("Vulkan: ") != causes[0].rfind("Vulkan: ")) {
        return ::testing::AssertionFailure() << "the message says twice whose it is: " << context.all();
    }
    for (const std::string &part : parts) {
        if (causes[0].find(part) == std::string::npos) {
            return ::testing::AssertionFailure() << "the message does not say \"" << part << "\": " << context.all();
        }
    }
    return ::testing::AssertionSuccess();
}

// Compares a whole buffer with expected(position): reports how many elements differ and the first of them.
template<typename T, int Dims, typename Expected>
::testing::AssertionResult matches(const Halide::Runtime::Buffer<T, Dims> &buffer, Expected &&expected) {
    using Value = std::remove_const_t<T>;
    size_t wrong = 0, total = 0;
    std::ostringstream first;
    buffer.for_each_element([&](const int *position) {
        total++;
        const Value want = static_cast<Value>(expected(position));
        const Value got = buffer(position);
        if (got == want) return;
        if (wrong++ == 0) {
            first << "(";
            for (int d = 0; d < buffer.dimensions(); d++) first << (d ? ", " : "") << position[d];
            first << ") is " << +got << " instead of " << +want;
        }
    });
    if (wrong == 0) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << wrong << " of " << total << " elements are wrong, the first at "
                                         << first.str();
}

template<typename T, int Dims, typename Expected>
::testing::AssertionResult matches(const Halide::Buffer<T, Dims> &buffer, Expected &&expected) {
    return matches(*buffer.get(), expected);
}

// Fills by position and marks the host as newer than the device.
template<typename T, int Dims, typename Value>
void fill(Halide::Runtime::Buffer<T, Dims> &buffer, Value &&value) {
    buffer.for_each_element([&](const int *position) { buffer(position) = static_cast<T>(value(position)); });
    buffer.set_host_dirty();
}

template<typename T, int Dims, typename Value>
void fill(Halide::Buffer<T, Dims> &buffer, Value &&value) {
    fill(*buffer.get(), value);
}

// Fresh device memory for a buffer that has none.
template<typename T, int Dims>
void allocate_on_device(Halide::Runtime::Buffer<T, Dims> &buffer) {
    ASSERT_OK(buffer.device_malloc(vulkan_interface()));
}

// A number that looks random and can be written in C++ and in a kernel alike.
inline uint32_t scramble(uint32_t value) {
    value = value * 2654435761u + 12345u;
    return value ^ (value >> 15);
}
inline Halide::Expr scramble(Halide::Expr value) {
    value = Halide::cast<uint32_t>(value) * Halide::Expr(2654435761u) + Halide::Expr(12345u);
    return value ^ (value >> 15);
}

// Applies HV_TEST_LIMITS and HV_TEST_MEMORY before the first test and holds the layer to it after the last.
class ReportedLimits : public ::testing::Environment {
public:
    void SetUp() override {
        for (const std::string &item : list_in("HV_TEST_LIMITS")) {
            const size_t equals = item.find('=');
            ASSERT_NE(equals, std::string::npos) << "HV_TEST_LIMITS: no value in " << item;
            const uint64_t value = std::strtoull(item.c_str() + equals + 1, nullptr, 0);
            ASSERT_TRUE(hv_layer_limit(item.substr(0, equals).c_str(), value))
                << "HV_TEST_LIMITS: unknown key in " << item;
            in_use = true;
        }
        std::vector<uint32_t> flags;
        for (const std::string &item : list_in("HV_TEST_MEMORY"))
            flags.push_back(std::strtoul(item.c_str(), nullptr, 0));
        if (flags.empty()) return;
        ASSERT_TRUE(hv_layer_memory_types(flags.data(), (int)flags.size())) << "HV_TEST_MEMORY was refused";
        in_use = true;
    }
    void TearDown() override {
        if (!in_use) return;
        EXPECT_GT(hv_layer_instances(), 0u) << "another device is asked for, but the counting layer is not in use";
        EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
    }

private:
    static std::vector<std::string> list_in(const char *variable) {
        const char *text = std::getenv(variable);
        std::vector<std::string> items;
        std::istringstream list(text ? text : "");
        for (std::string item; std::getline(list, item, ',');) items.push_back(item);
        return items;
    }
    bool in_use = false;
};
inline ::testing::Environment *const reported_limits = ::testing::AddGlobalTestEnvironment(new ReportedLimits);

}  // namespace vulkan_test

#endif
