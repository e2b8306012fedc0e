// No Vulkan library on the machine: an error with one clear message, the same again on a second try, and no crash.
//
// The just-in-time route cannot show this, because libHalide itself looks for the library first. Here an override of
// halide_vulkan_get_symbol makes it absent, then present: an application may bring the loader with it, and the next
// call after that must work.

#include "HalideBuffer.h"
#include "HalideRuntime.h"
#include "HalideRuntimeVulkan.h"
#include "double_and_add.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <string>
#include <vector>

using Halide::Runtime::Buffer;

namespace {

std::vector<std::string> errors;
void on_error(void *, const char *message) { errors.emplace_back(message); }

void *loader = nullptr;

}  // namespace

extern "C" void *halide_vulkan_get_symbol(void *, const char *name) { return loader ? dlsym(loader, name) : nullptr; }

namespace {

TEST(GpuAotLoader, AbsentThenPresent) {
    halide_set_error_handler(on_error);
    Buffer<int32_t, 1> in(100), out(100);
    in.fill(4);
    for (int time = 0; time < 3; time++) {
        errors.clear();
        in.set_host_dirty();
        EXPECT_LT(double_and_add(nullptr, in, 1, out), 0);
        ASSERT_EQ(errors.size(), 1u);
        EXPECT_NE(errors[0].find("vkGetInstanceProcAddr"), std::string::npos) << errors[0];
    }
    errors.clear();
    int major = -1, minor = -1;
    const halide_device_interface_t *interface = halide_vulkan_device_interface();
    EXPECT_EQ(interface->compute_capability(nullptr, &major, &minor), 0) << "no Vulkan is an answer, not an error";
    EXPECT_EQ(major * 10 + minor, 0);
    halide_device_release(nullptr, interface);
    EXPECT_TRUE(errors.empty());

    loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(loader, nullptr) << dlerror();
    ASSERT_EQ(double_and_add(nullptr, in, 1, out), 0) << (errors.empty() ? "" : errors[0]);
    ASSERT_EQ(out.copy_to_host(), 0);
    for (int x = 0; x < 100; x++) ASSERT_EQ(out(x), 9);
    EXPECT_EQ(interface->compute_capability(nullptr, &major, &minor), 0);
    EXPECT_GE(major * 10 + minor, 10);
}

}  // namespace
